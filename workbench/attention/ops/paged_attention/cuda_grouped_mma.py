"""The query heads of a group packed into one tile, products on tensor cores, every warp a pipeline of its own.

The kernel is that of ``cuda_src/paged_attention_grouped_mma.cu``. Scores are a product of 16 rows of queries, of which
groups of 8 or fewer use half. The sums of values are computed transposed, 16 elements of the head by 8 queries, so that
such a group wastes neither registers nor products there. A quantized cache crosses memory and shared memory unchanged;
its elements become fp16 in registers, four at a time, and its scales multiply scores and sums, or weights.

Bytes that must move: K and V of every token once, query and output. With more than one partition also the fp32 partial
results, written and read: ``2 * 4 * num_heads * (head_size + 2)`` per partition, less than 1 % for 2048 tokens and a
group of 8, and a counter. At 4096 tokens of 8 query heads on a KV head of 128 elements, one partition
(``tests/attention/ops/test_paged_attention_grouped.py``), the least is 2,102,276 bytes; the machine counted 2,102,304
distinct bytes moved and 2,102,400 requested (1.0001 times as many). For an 8-bit cache the least is 1,053,700; it
counted 1,053,792 (1.0001) and 1,056,128 (1.002). With a scale per token the least is 1,086,468, and it counted 1.0000
and 1.002 times as many.
"""

from __future__ import annotations

from workbench.attention.ops.cache_problem import SCALES_OR_ONE, head_and_token_stride
from workbench.attention.ops.paged_attention.problem import ARGUMENTS, SCALE_PLACES, PagedAttentionProblem, macros
from workbench.attention.ops.paged_attention.rules import (
    GRID,
    GROUP,
    PAGE_SIZE,
    PARTITIONS,
    WHOLE_TILES,
    balanced_partition_size,
    num_partitions,
    partition_blocks,
)
from workbench.attention.ops.paged_attention.workspace import partials
from workbench.attention.ops.rules import rules, shared_limit, shared_memory
from workbench.base.packages import cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant, Footprint

_PARTITION_SIZES = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
_MOST_REGISTERS = 255


def _steps(problem: PagedAttentionProblem) -> int:
    """Return the number of steps of a product along the head, 16 elements each."""
    return -(-problem.head_size // 16)


def _rows(problem: PagedAttentionProblem) -> int:
    """Return the queries of a group with the padding to whole tiles of 8."""
    return -(-problem.group // 8) * 8


def _row_bytes(problem: PagedAttentionProblem) -> int:
    """Return the bytes of a row of a tile in shared memory: the head in whole steps of 16 elements."""
    return _steps(problem) * 16 * problem.cache_itemsize


def _tile_bytes(config: Config, problem: PagedAttentionProblem) -> int:
    """Return the dynamic shared memory: all stages of all warps (keys, values, scales), or the sums of the warps."""
    scale_bytes = 4 if "token_scales" in problem.features else 0
    stages = config["NUM_STAGES"] * config["TILE_TOKENS"] * 2 * (_row_bytes(problem) + scale_bytes)
    sums = _rows(problem) * (_steps(problem) * 16 + 4) * 4
    return config["NUM_THREADS"] // 32 * max(stages, sums)


def _static_bytes(config: Config, problem: PagedAttentionProblem) -> int:
    """Return an upper bound of the bytes of queries, sinks, pages, and the warps' maxima and sums, aligned as tiles."""
    rows, warps = _rows(problem), config["NUM_THREADS"] // 32
    pages = config["PARTITION_SIZE"] // config["BLOCK_SIZE"]
    size = rows * _steps(problem) * 32 + 8 * rows + 4 * pages + 8 * rows * warps + 256
    return -(-size // 128) * 128


def _shared_bytes(config: Config, problem: PagedAttentionProblem) -> int:
    return _tile_bytes(config, problem) + _static_bytes(config, problem)


RESTRICTIONS = rules(
    PAGE_SIZE,
    GROUP,
    ("whole 16-byte steps", "head_size % 8 == 0 and head_size <= 256", "whose sums fit in registers"),
    ("pages and tiles", "BLOCK_SIZE >= 8 and is_power_of_two(BLOCK_SIZE) and TILE_TOKENS in (16, 32)"),
    ("offsets inside a page", "BLOCK_SIZE * num_kv_heads * head_size < 2**31", "elements, as 32-bit numbers"),
    WHOLE_TILES,
    ("stages", "NUM_STAGES >= 2", "one is copied while one is read"),
    ("threads per block", "NUM_THREADS % 32 == 0 and 32 <= NUM_THREADS <= 256", "up to 255 registers each"),
    shared_memory(
        _shared_bytes,
        "max(2 * warps * NUM_STAGES * TILE_TOKENS * head_size * sizeof(cache element), 4 * warps * group * head_size)"
        " + queries and pages",
    ),
    PARTITIONS,
    GRID,
)


def default_config(problem: PagedAttentionProblem) -> dict:
    """Return tiles of equal bytes for every element size, as many stages and warps as fit, balanced partitions."""
    tile = 32 // problem.cache_itemsize
    config = {"BLOCK_SIZE": problem.page, "PARTITION_SIZE": max(_PARTITION_SIZES), "TILE_TOKENS": tile}
    for stages, threads in ((3, 128), (2, 128), (3, 64), (2, 64)):
        config |= {"NUM_STAGES": stages, "NUM_THREADS": threads}
        if _shared_bytes(config, problem) <= shared_limit(problem):
            break
    resident = _footprint(config, problem).resident(problem.arch)
    return config | {"PARTITION_SIZE": balanced_partition_size(problem, _PARTITION_SIZES, resident=resident)}


def _footprint(config: Config, problem: PagedAttentionProblem) -> Footprint:
    """Return the footprint of a block; in flight are all stages of a warp except the one that it reads."""
    row_bytes = problem.head_size * problem.cache_itemsize
    stages = (config["NUM_STAGES"] - 1) * config["TILE_TOKENS"] * 2 * row_bytes
    return Footprint(
        blocks=partition_blocks(config, problem, problem.num_kv_heads),
        threads=config["NUM_THREADS"],
        registers=_MOST_REGISTERS,
        shared_bytes=_shared_bytes(config, problem),
        bytes_in_flight=min(config["NUM_THREADS"] // 32 * stages, 2 * config["PARTITION_SIZE"] * row_bytes),
    )


VARIANT = CudaVariant(
    op="paged_attention",
    name="cuda_grouped_mma",
    idea="a block per KV head and partition: its query heads in one tile on tensor cores, a copy pipeline per warp",
    source=cuda_sources() / "paged_attention_grouped_mma.cu",
    steps=(
        CudaStep(
            kernel="paged_attention_grouped",
            grid=lambda config, problem: (problem.num_kv_heads, problem.num_seqs, num_partitions(config, problem)),
            shared_bytes=_tile_bytes,
            arguments=ARGUMENTS
            | SCALES_OR_ONE
            | SCALE_PLACES
            | {
                "output": lambda config, problem, tensors: tensors.out,
                "head_stride": lambda config, problem, tensors: head_and_token_stride(problem, config["BLOCK_SIZE"])[0],
                "token_stride": lambda config, problem, tensors: head_and_token_stride(problem, config["BLOCK_SIZE"])[
                    1
                ],
            },
        ),
    ),
    space={
        "BLOCK_SIZE": (8, 16, 32, 64, 128),
        "PARTITION_SIZE": _PARTITION_SIZES,
        "TILE_TOKENS": (16, 32),
        "NUM_STAGES": (2, 3, 4),
        "NUM_THREADS": (32, 64, 128, 256),
    },
    restrictions=RESTRICTIONS,
    layouts=("nhd", "hnd"),
    dtypes=("float16", "bfloat16"),
    features=("alibi", "sliding_window", "soft_cap", "sinks", "fp8_e4m3", "fp8_e5m2", "int8", "token_scales"),
    defaults=default_config,
    footprint=_footprint,
    macros=lambda config, problem: {**macros(config, problem), "GROUP": problem.group},
    workspace=partials,
)
