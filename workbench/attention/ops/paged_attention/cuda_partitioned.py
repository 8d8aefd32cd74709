"""A block per partition of the sequence, online softmax in every warp; the last block combines the partitions.

The kernel is that of ``cuda_src/paged_attention_partitioned.cu``. PARTITION_SIZE is a number of *tokens*: with one
block per query head and sequence, a batch of few sequences leaves most multiprocessors idle, however long they are.
Because a partition has a fixed length, long sequences get more blocks than short ones, and no block gets more than one
partition's work. The last block of a query head and sequence to finish combines the partitions, without another launch;
a sequence of one partition needs no combining.

Bytes that must move: K and V of every token once, query and output. With more than one partition also the fp32 partial
results, written and read: ``2 * 4 * num_seqs * num_heads * partitions * (head_size + 2)``, and a counter. As there is a
block per *query* head, K and V are requested once per query head of a group; L2 can answer all but the first request.
"""

from __future__ import annotations

from workbench.attention.ops.paged_attention.problem import ARGUMENTS, PagedAttentionProblem, macros
from workbench.attention.ops.paged_attention.rules import (
    GRID,
    PAGE_SIZE,
    PARTITION_SIZES,
    PARTITIONS,
    longest_partitions,
    num_partitions,
    partition_blocks,
)
from workbench.attention.ops.paged_attention.workspace import partials
from workbench.attention.ops.rules import THREADS, rules, shared_memory
from workbench.base.packages import cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant, Footprint


def _shared_bytes(config: Config, problem: PagedAttentionProblem) -> int:
    warps = config["NUM_THREADS"] // 32
    return 4 * (problem.head_size * (warps + 1) + warps * (config["BLOCK_SIZE"] + 2)) + 32


RESTRICTIONS = rules(
    PAGE_SIZE,
    ("a page is one load of a warp", "BLOCK_SIZE in (8, 16, 32)"),
    ("whole pages", "PARTITION_SIZE % BLOCK_SIZE == 0"),
    ("whole 16-byte steps", "head_size % x == 0", "x = 16 / sizeof(cache element)"),
    THREADS,
    shared_memory(_shared_bytes, "4 * (head_size * (warps + 1) + warps * (BLOCK_SIZE + 2)) + 32", static=True),
    PARTITIONS,
    GRID,
)


def default_config(problem: PagedAttentionProblem) -> dict:
    """Return the longest partitions that still give every multiprocessor its blocks, and four warps."""
    return {"BLOCK_SIZE": problem.page, "PARTITION_SIZE": longest_partitions(problem), "NUM_THREADS": 128}


def _footprint(config: Config, problem: PagedAttentionProblem) -> Footprint:
    """Return the footprint of a block; in flight are up to eight loads of keys per lane, and of values if as few."""
    lanes_per_token = max(32 // config["BLOCK_SIZE"], 1)
    key_loads = -(-problem.head_size // (problem.x * lanes_per_token))
    width = min(problem.x, config["BLOCK_SIZE"])  # tokens of a value load
    value_loads = -(-problem.head_size * (config["BLOCK_SIZE"] // width) // 32)
    itemsize = problem.cache_itemsize
    lane_bytes = min(key_loads, 8) * 16 + (value_loads * width * itemsize if value_loads <= 8 else 0)
    return Footprint(
        blocks=partition_blocks(config, problem, problem.num_heads),
        threads=config["NUM_THREADS"],
        registers=128 if value_loads <= 16 and itemsize < 4 else 255,
        shared_bytes=_shared_bytes(config, problem),
        bytes_in_flight=config["NUM_THREADS"] * lane_bytes,
    )


VARIANT = CudaVariant(
    op="paged_attention",
    name="cuda_partitioned",
    idea="a block per partition of the sequence, a warp per page, online softmax; the last block combines them",
    source=cuda_sources() / "paged_attention_partitioned.cu",
    steps=(
        CudaStep(
            kernel="paged_attention_partition",
            grid=lambda config, problem: (problem.num_heads, problem.num_seqs, num_partitions(config, problem)),
            arguments=ARGUMENTS,
        ),
    ),
    space={
        "BLOCK_SIZE": (8, 16, 32),
        "PARTITION_SIZE": PARTITION_SIZES,
        "NUM_THREADS": (32, 64, 128, 256),
    },
    restrictions=RESTRICTIONS,
    layouts=("x",),
    dtypes=("float32", "float16", "bfloat16"),
    features=("alibi", "sliding_window", "soft_cap", "sinks", "fp8_e4m3", "fp8_e5m2", "int8", "token_scales"),
    defaults=default_config,
    footprint=_footprint,
    macros=macros,
    workspace=partials,
)
