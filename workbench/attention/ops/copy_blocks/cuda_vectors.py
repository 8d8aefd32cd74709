"""The CUDA kernel that copies pages by wide accesses, as a variant of several ops: ``copy_blocks_vectors.cu``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.attention.ops.copy_blocks.problem import ARGUMENTS, GRID, CopyBlocksProblem, MovesPages
from workbench.attention.ops.rules import THREADS, rules
from workbench.base.packages import cuda_sources
from workbench.ops import Config, CudaStep, CudaVariant, cdiv

SPACE = {
    "NUM_THREADS": (32, 64, 128, 256, 512),
    "VEC_BYTES": (4, 8, 16),
    "VECS_PER_THREAD": (1, 2, 4, 8),
}

RESTRICTIONS = rules(
    ("whole vectors", "page_bytes % VEC_BYTES == 0"),
    THREADS,
    (
        "every chunk has work",
        "NUM_THREADS * VEC_BYTES * VECS_PER_THREAD < 2 * page_bytes or (NUM_THREADS == 32 and VECS_PER_THREAD == 1)",
    ),
    GRID,
)


def chunk(config: Config) -> int:
    """Return the bytes of a page that one block copies."""
    return config["NUM_THREADS"] * config["VEC_BYTES"] * config["VECS_PER_THREAD"]


def default_config(problem: CopyBlocksProblem) -> dict:
    """Return 16 bytes per access if the page allows it, four accesses in flight, on as many threads as a page feeds."""
    config = {"NUM_THREADS": 128, "VEC_BYTES": max(math.gcd(problem.page_bytes, 16), 4), "VECS_PER_THREAD": 4}
    for name, least in (("VECS_PER_THREAD", 1), ("NUM_THREADS", 32)):
        while config[name] > least and chunk(config) >= 2 * problem.page_bytes:
            config[name] //= 2
    return config


@dataclass(frozen=True, eq=False, kw_only=True)
class _Vectors(MovesPages, CudaVariant):
    """Variant in CUDA C++ that copies pages in vectors."""


def variant(op: str) -> CudaVariant:
    """Return the variant of one of the ops that copy pages."""
    return _Vectors(
        op=op,
        name="cuda_vectors",
        idea="a block per pair, cache and chunk of a page; every thread has several wide loads in flight",
        source=cuda_sources() / "copy_blocks_vectors.cu",
        steps=(
            CudaStep(
                kernel="copy_blocks_vectors",
                grid=lambda config, problem: (
                    problem.num_pairs,
                    problem.num_caches,
                    cdiv(problem.page_bytes, chunk(config)),
                ),
                arguments=ARGUMENTS,
            ),
        ),
        space=SPACE,
        restrictions=RESTRICTIONS,
        layouts=("any",),
        dtypes=("any",),
        defaults=default_config,
    )
