"""One pass over each window by threads that have a few elements each: ``pool_windows_online.cu``."""

from __future__ import annotations

import math

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.pool_windows.problem import PoolProblem
from workbench.attention.ops.rules import THREADS, rules
from workbench.base.packages import ELEMENT_TYPES, cuda_sources
from workbench.ops import CudaStep, CudaVariant, cdiv


def default_config(problem: PoolProblem) -> dict:
    """Return vectors of eight bytes, where a head has whole ones, on a warp or more."""
    vec = math.gcd(problem.head_size, 8 // problem.itemsize)
    return {"NUM_THREADS": min(128, max(32, problem.head_size // vec // 32 * 32)), "VEC_SIZE": vec}


VARIANT = CudaVariant(
    op="pool_windows",
    name="cuda_online",
    idea="a thread for a few elements of a window: maximum, weights and sum in one pass over its tokens",
    source=cuda_sources() / "pool_windows_online.cu",
    steps=(
        CudaStep(
            kernel="pool_windows",
            grid=lambda config, problem: (
                problem.num_windows,
                cdiv(problem.head_size, config["NUM_THREADS"] * config["VEC_SIZE"]),
            ),
        ),
    ),
    space={"NUM_THREADS": (32, 64, 128, 256), "VEC_SIZE": (1, 2, 4, 8)},
    restrictions=rules(
        THREADS,
        ("whole vectors", "head_size % VEC_SIZE == 0 and VEC_SIZE * itemsize <= 16", "of at most 16 bytes"),
    ),
    layouts=("any",),
    dtypes=tuple(DTYPES),
    defaults=default_config,
    macros=lambda config, problem: {
        "SCALAR": ELEMENT_TYPES[problem.dtype].cpp,
        "HEAD_SIZE": problem.head_size,
        "WINDOW": problem.window,
        **config,
    },
)
