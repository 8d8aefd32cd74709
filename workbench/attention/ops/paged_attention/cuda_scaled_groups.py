"""A lane per group of 16 elements with its scale, several tokens of a warp at once: paged attention over NVFP4.

The kernel is that of ``cuda_src/paged_attention_scaled_groups.cu``; partitions are those of ``cuda_partitioned``. No
element is multiplied by a scale: that of a key's group is a factor of a sum of 16 products, that of a value's group one
of the weight, and k_scale and v_scale are factors of the query and of the result.

Bytes that must move are those of ``cuda_partitioned``, with 9/16 of a byte per element of K and V.
"""

from __future__ import annotations

from workbench.attention.cache_formats.nvfp4 import LAYOUTS
from workbench.attention.ops.paged_attention.cuda_partitioned import VARIANT as PARTITIONED
from workbench.attention.ops.paged_attention.problem import ARGUMENTS, PagedAttentionProblem
from workbench.attention.ops.paged_attention.rules import (
    GRID,
    PAGE_SIZE,
    PARTITION_SIZES,
    PARTITIONS,
    num_partitions,
    partition_blocks,
)
from workbench.attention.ops.paged_attention.workspace import partials
from workbench.attention.ops.rules import THREADS, rules, shared_memory
from workbench.attention.ops.scaled_groups import BYTES_OF_A_GROUP, GROUP_STRIDES
from workbench.base.packages import ELEMENT_TYPES, cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant, Footprint

_REGISTERS = 128


def _shared_bytes(config: Config, problem: PagedAttentionProblem) -> int:
    warps = config["NUM_THREADS"] // 32
    return 4 * (problem.head_size * (warps + 1) + 2 * warps) + 32


RESTRICTIONS = rules(
    PAGE_SIZE,
    ("whole groups", "head_size % 16 == 0 and head_size <= 512", "a scale for 16 elements, a lane for a group"),
    ("loads in flight", "TOKENS_IN_FLIGHT in (1, 2, 4, 8)"),
    ("offsets inside a page", "BLOCK_SIZE * num_kv_heads * head_size < 2**31", "elements, as 32-bit numbers"),
    THREADS,
    shared_memory(_shared_bytes, "4 * (head_size * (warps + 1) + 2 * warps) + 32", static=True),
    PARTITIONS,
    GRID,
)


def default_config(problem: PagedAttentionProblem) -> dict:
    """Return the default of ``cuda_partitioned``, with four tokens of a warp in flight."""
    return PARTITIONED.default_config(problem) | {"TOKENS_IN_FLIGHT": 4}


def _footprint(config: Config, problem: PagedAttentionProblem) -> Footprint:
    """Return the footprint of a block; in flight are groups of keys and values of TOKENS_IN_FLIGHT tokens per lane."""
    return Footprint(
        blocks=partition_blocks(config, problem, problem.num_heads),
        threads=config["NUM_THREADS"],
        registers=_REGISTERS,
        shared_bytes=_shared_bytes(config, problem),
        bytes_in_flight=config["NUM_THREADS"] * config["TOKENS_IN_FLIGHT"] * 2 * BYTES_OF_A_GROUP,
    )


VARIANT = CudaVariant(
    op="paged_attention",
    name="cuda_scaled_groups",
    idea="nvfp4: a lane per group of 16 elements with its scale, a block per partition of the sequence",
    source=cuda_sources() / "paged_attention_scaled_groups.cu",
    steps=(
        CudaStep(
            kernel="paged_attention_scaled_groups",
            grid=lambda config, problem: (problem.num_heads, problem.num_seqs, num_partitions(config, problem)),
            arguments=ARGUMENTS | GROUP_STRIDES,
        ),
    ),
    space={
        "BLOCK_SIZE": (8, 16, 32, 64, 128),
        "PARTITION_SIZE": PARTITION_SIZES,
        "NUM_THREADS": (32, 64, 128, 256),
        "TOKENS_IN_FLIGHT": (1, 2, 4, 8),
    },
    restrictions=RESTRICTIONS,
    layouts=LAYOUTS,
    dtypes=("float32", "float16", "bfloat16"),
    needs=("nvfp4",),
    features=("alibi", "sliding_window", "soft_cap", "sinks"),
    defaults=default_config,
    footprint=_footprint,
    macros=lambda config, problem: {
        "SCALAR": ELEMENT_TYPES[problem.dtype].cpp,
        "HEAD_SIZE": problem.head_size,
        **config,
    },
    own_instructions_from=100,
    workspace=partials,
)
