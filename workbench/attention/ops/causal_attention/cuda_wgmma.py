"""FlashAttention-3's forward for Hopper: TMA, wgmma, a producer warp and warp groups that take turns.

The kernel is ``cuda_src/causal_attention_wgmma.cu``. In ``cuda_mma`` every warp copies, multiplies and computes
weights; here the work is divided. One warp requests tiles and waits for mbarriers, while warp groups of four warps have
the tensor cores read them from shared memory.
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
from workbench.ops import Config, CudaStep, CudaVariant, Restriction

_GROUP_ROWS = 64
"""Queries of a warp group."""

_STATIC_BYTES = 1024
"""Bytes of the mbarriers, up to the place where tiles may begin."""

_OTHER_REGISTERS = 32
"""Registers of a consumer beside output, scores and weights."""

_REGISTERS = {64: 232, 128: 240, 192: 160}
"""Registers of a consumer's thread, by BLOCK_M: those of a block that the producer leaves."""


def _registers(config: Config, problem: CausalAttentionProblem) -> int:
    """Return the registers of a consumer's thread: output and scores in fp32, weights in 16 bits."""
    return problem.head_size // 2 + config["BLOCK_N"] // 2 + config["BLOCK_N"] // 4 + _OTHER_REGISTERS


RESTRICTIONS = rules(
    Restriction.on("sm_90", "wgmma"),
    ROWS,
    HEAD_SIZE,
    ("large heads", "head_size <= 128 or BLOCK_M == 128", "of one group there are too few registers"),
    ("warp groups", "BLOCK_M in (64, 128, 192)", "one to three, of 64 queries each"),
    ("whole tiles", "BLOCK_N in (64, 128)", "as wide as a product"),
    Restriction(
        "registers",
        f"head_size / 2 + 3 * BLOCK_N / 4 + {_OTHER_REGISTERS} <= 232, 240, 160 with BLOCK_M = 64, 128, 192",
        lambda config, problem: _registers(config, problem) <= _REGISTERS.get(config["BLOCK_M"], 0),
    ),
    tiles_in_shared_memory(_STATIC_BYTES),
    GRID,
)


def default_config(problem: CausalAttentionProblem) -> dict:
    """Return two consumers, and two stages of as many tokens as their registers hold."""
    return {"BLOCK_M": 128, "BLOCK_N": 128 if problem.head_size <= 128 else 64, "NUM_STAGES": 2}


VARIANT = CudaVariant(
    op="causal_attention",
    name="cuda_wgmma",
    idea="FlashAttention-3: a producer warp and TMA, warp groups that take turns at wgmma, softmax beneath products",
    source=cuda_sources() / "causal_attention_wgmma.cu",
    steps=(
        CudaStep(
            kernel="causal_attention_wgmma",
            grid=lambda config, problem: blocks(config, problem),
            block=lambda config, problem: (2 * config["BLOCK_M"] + 128,),
            shared_bytes=tile_bytes,
            arguments=tensor_maps(_GROUP_ROWS),
        ),
    ),
    space={"BLOCK_M": (64, 128, 192), "BLOCK_N": (64, 128), "NUM_STAGES": (2, 3, 4)},
    restrictions=RESTRICTIONS,
    layouts=("heads first",),
    dtypes=("float16", "bfloat16"),
    features=("lengths",),
    defaults=default_config,
    macros=head_macros,
)
