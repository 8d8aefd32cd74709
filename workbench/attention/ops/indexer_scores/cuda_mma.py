"""Scores on tensor cores, tokens by heads: ``indexer_scores_mma.cu``."""

from __future__ import annotations

from workbench.attention.ops.indexer_scores.problem import ARGUMENTS, DTYPES, RESTRICTIONS, IndexerProblem, tiles
from workbench.attention.ops.rules import THREADS, rules, shared_memory
from workbench.base.packages import ELEMENT_TYPES, cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant


def _tile_bytes(config: Config, problem: IndexerProblem) -> int:
    """Return the dynamic shared memory: queries and keys, two bytes an element."""
    return (problem.padded_heads + config["TILE_TOKENS"]) * problem.head_size * 2


def _shared_bytes(config: Config, problem: IndexerProblem) -> int:
    """Return all shared memory: also the weights of the heads."""
    return _tile_bytes(config, problem) + 4 * problem.padded_heads


def default_config(problem: IndexerProblem) -> dict:
    """Return tiles of 64 tokens, 16 for each warp."""
    return {"BLOCK_SIZE": problem.page, "TILE_TOKENS": 64, "NUM_THREADS": 128}


VARIANT = CudaVariant(
    op="indexer_scores",
    name="cuda_mma",
    idea="a block per tile of tokens: keys times the queries of all heads, and the heads summed in registers",
    source=cuda_sources() / "indexer_scores_mma.cu",
    steps=(
        CudaStep(
            kernel="indexer_scores",
            grid=tiles,
            shared_bytes=_tile_bytes,
            arguments=ARGUMENTS | {"output": lambda config, problem, tensors: tensors.out},
        ),
    ),
    space={"BLOCK_SIZE": (16, 32, 64, 128), "TILE_TOKENS": (16, 32, 64, 128, 256), "NUM_THREADS": (32, 64, 128, 256)},
    restrictions=rules(
        *RESTRICTIONS,
        (
            "whole steps",
            "head_size % 16 == 0 and head_size <= 256",
            "a product takes 16 elements, a warp keeps its keys",
        ),
        ("every warp has work", "NUM_THREADS <= 2 * TILE_TOKENS", "16 tokens"),
        THREADS,
        shared_memory(_shared_bytes, "(heads in tiles of 16 + TILE_TOKENS) * head_size * 2 + weights"),
    ),
    layouts=("any",),
    dtypes=tuple(DTYPES),
    defaults=default_config,
    macros=lambda config, problem: {
        "SCALAR": ELEMENT_TYPES["float16" if problem.quantized else problem.dtype].cpp,
        "HEAD_SIZE": problem.head_size,
        "NUM_HEADS": problem.num_heads,
        **({"QUANTIZED": 1} if problem.quantized else {}),
        **config,
    },
)
