"""Rows of query heads and tokens packed into one tile on tensor cores, keys and values copied from their pages.

The kernel is that of ``cuda_src/paged_prefill_packed_mma.cu``. A tile holds the query heads of a group for as many
tokens of one sequence as fit: of a decode step the one, of drafts all, of a prompt a piece. So a block reads every key
and value that its rows see once, whatever its sequence is in the middle of.

Bytes that must move: the keys and values of a sequence once for each tile of its rows, the queries and the output.
"""

from __future__ import annotations

from workbench.attention.ops.cache_problem import head_macros
from workbench.attention.ops.paged_prefill.problem import (
    ARGUMENTS,
    BLOCK_SIZES,
    FEATURES,
    RESTRICTIONS,
    PagedPrefillProblem,
    flags,
    rows_of_average,
    tiles,
)
from workbench.attention.ops.rules import rules, shared_limit, shared_memory
from workbench.base.packages import cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant, Restriction

_OTHER_REGISTERS = 56
"""Registers beside queries, scores and output: pieces of tiles, addresses, positions, maxima and sums."""


def _steps(problem: PagedPrefillProblem) -> int:
    """Return the number of steps of a product along the head, 16 elements each."""
    return -(-problem.head_size // 16)


def _row_tiles(config: Config) -> int:
    """Return the number of 16-row tiles of a warp."""
    return int(config["BLOCK_M"]) // (config["NUM_THREADS"] // 2)


def _registers(config: Config, problem: PagedPrefillProblem) -> int:
    """Return the registers of one thread: sums of the output, scores, and queries that stay."""
    row_tiles, steps = _row_tiles(config), _steps(problem)
    queries = 4 * min(row_tiles * steps, 8)
    masks = 6 if "tree" in problem.features else 0
    return row_tiles * (8 * steps + config["BLOCK_N"] // 2 + masks) + queries + _OTHER_REGISTERS


def _shared_bytes(config: Config, problem: PagedPrefillProblem) -> int:
    """Return the bytes of queries, and of all stages of keys and values."""
    rows = int(config["BLOCK_M"]) + 2 * config["NUM_STAGES"] * config["BLOCK_N"]
    return rows * _steps(problem) * 32


def _fits(config: Config, problem: PagedPrefillProblem) -> bool:
    return _registers(config, problem) <= 255 and _shared_bytes(config, problem) <= shared_limit(problem)


def default_config(problem: PagedPrefillProblem) -> dict:
    """Return tiles of as many rows as an average sequence has, at most 64, or of drafts 256, a warp for every 16.

    Tiles of tokens are as long as fit in registers and shared memory.
    """
    rows = rows_of_average(problem, 256 if "tree" in problem.features else 64)
    config = {"BLOCK_M": rows, "BLOCK_N": 64, "BLOCK_SIZE": problem.page, "NUM_STAGES": 2}
    config["NUM_THREADS"] = min(2 * rows, 256)
    for tokens in (64, 32, 16):
        config["BLOCK_N"] = tokens
        if _fits(config, problem):
            return config
    return config | {"BLOCK_M": 64, "NUM_THREADS": 128}


VARIANT = CudaVariant(
    op="paged_prefill",
    name="cuda_packed_mma",
    idea="a block per tile of tokens and heads of a group: products on tensor cores, pages copied a tile ahead",
    source=cuda_sources() / "paged_prefill_packed_mma.cu",
    steps=(
        CudaStep(
            kernel="paged_prefill_packed",
            grid=lambda config, problem: tiles(config, problem),
            shared_bytes=_shared_bytes,
            arguments=ARGUMENTS | {"output": lambda config, problem, tensors: tensors.out},
        ),
    ),
    space={
        "BLOCK_M": (16, 32, 64, 128, 256),
        "BLOCK_N": (16, 32, 64, 128),
        "BLOCK_SIZE": BLOCK_SIZES,
        "NUM_STAGES": (2, 3),
        "NUM_THREADS": (32, 64, 128, 256),
    },
    restrictions=rules(
        *RESTRICTIONS,
        ("whole 16-byte steps", "head_size % 8 == 0 and head_size <= 256", "8 elements each"),
        ("threads per block", "NUM_THREADS % 32 == 0 and 32 <= NUM_THREADS <= 256", "up to 255 registers each"),
        ("whole rows of a warp", "BLOCK_M % (NUM_THREADS // 2) == 0", "16 rows of a product, once or more"),
        ("whole tiles", "BLOCK_N >= 16 and BLOCK_N % 16 == 0"),
        ("stages", "NUM_STAGES >= 2", "one is copied while one is read"),
        Restriction(
            "registers",
            "BLOCK_M / (NUM_THREADS / 2) * (head_size / 2 + BLOCK_N / 2 + masks) + queries, at most 32, "
            f"+ {_OTHER_REGISTERS} <= 255",
            lambda config, problem: _registers(config, problem) <= 255,
        ),
        shared_memory(_shared_bytes, "2 * head_size * (BLOCK_M + 2 * NUM_STAGES * BLOCK_N)"),
    ),
    layouts=("nhd", "hnd"),
    dtypes=("float16", "bfloat16"),
    features=FEATURES,
    defaults=default_config,
    macros=lambda config, problem: {
        **head_macros(config, problem),
        "GROUP": problem.group,
        "TREE": int(flags(problem)["TREE"]),
    },
)
