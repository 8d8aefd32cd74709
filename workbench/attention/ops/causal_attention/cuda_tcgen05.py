"""FlashAttention-4's forward for Blackwell: scores and output in tensor memory, a warp or more for each task.

The kernel is ``cuda_src/causal_attention_tcgen05.cu``. In ``cuda_wgmma`` a warp group has the sums of its products in
registers; here they are in tensor memory, so that one thread asks for all products, a softmax thread has a whole row of
scores, and warps of their own rescale the output.
"""

from __future__ import annotations

from workbench.attention.ops.cache_problem import head_macros
from workbench.attention.ops.causal_attention.problem import GRID, ROWS, CausalAttentionProblem, blocks
from workbench.attention.ops.causal_attention.tensor_tiles import (
    HEAD_SIZE,
    tensor_maps,
    tile_bytes,
    tiles_in_shared_memory,
)
from workbench.attention.ops.rules import rules
from workbench.base.packages import cuda_sources
from workbench.ops import Arguments, CudaStep, CudaVariant, Restriction

_GROUP_ROWS = 128
"""Queries of a group: the lanes of tensor memory."""

_STATIC_BYTES = 3072
"""Bytes of mbarriers and of what rows tell each other, up to the place where tiles may begin."""


RESTRICTIONS = rules(
    Restriction.on("sm_100", "tcgen05"),
    ROWS,
    HEAD_SIZE,
    ("groups", "BLOCK_M in (128, 256)", "one or two, of 128 queries each"),
    ("whole tiles", "BLOCK_N in (64, 128)", "weights are stored 64 at once"),
    ("tensor memory", "BLOCK_M / 128 * (BLOCK_N + head_size) <= 512", "its columns hold scores and output"),
    ("slack", "0 <= RESCALE_ABOVE <= 14", "a weight of 2^15 is one of float16's largest"),
    tiles_in_shared_memory(_STATIC_BYTES),
    GRID,
)


def default_config(problem: CausalAttentionProblem) -> dict:
    """Return two groups where tensor memory holds them, and two stages."""
    if problem.head_size > 128:
        return {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 2, "RESCALE_ABOVE": 8}
    return {"BLOCK_M": 256, "BLOCK_N": 128, "NUM_STAGES": 2, "RESCALE_ABOVE": 8}


ARGUMENTS: Arguments = tensor_maps(_GROUP_ROWS) | {
    "group_size": lambda config, problem, tensors: problem.group,
}


VARIANT = CudaVariant(
    op="causal_attention",
    name="cuda_tcgen05",
    idea="FlashAttention-4: scores and output in tensor memory, warps for copies, products, softmax and rescaling",
    source=cuda_sources() / "causal_attention_tcgen05.cu",
    steps=(
        CudaStep(
            kernel="causal_attention_tcgen05",
            grid=lambda config, problem: blocks(config, problem),
            block=lambda config, problem: (config["BLOCK_M"] + 256,),
            shared_bytes=tile_bytes,
            arguments=ARGUMENTS,
        ),
    ),
    space={"BLOCK_M": (128, 256), "BLOCK_N": (64, 128), "NUM_STAGES": (2, 3, 4), "RESCALE_ABOVE": (8, 0)},
    restrictions=RESTRICTIONS,
    layouts=("heads first",),
    dtypes=("float16", "bfloat16"),
    features=("lengths",),
    defaults=default_config,
    macros=head_macros,
)
