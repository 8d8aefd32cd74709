"""Butterflies in registers and between lanes: ``rotate_heads_butterflies.cu``."""

from __future__ import annotations

import math

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.rotate_heads.problem import ARGUMENTS, RotationProblem
from workbench.attention.ops.rules import THREADS, rules
from workbench.base.packages import ELEMENT_TYPES, cuda_sources
from workbench.ops import CudaStep, CudaVariant, cdiv


def default_config(problem: RotationProblem) -> dict:
    """Return vectors of 16 bytes, or of what a block has, or of what makes a block fit a warp."""
    own = math.gcd(problem.block, 16 // problem.itemsize)
    return {"NUM_THREADS": 128, "VEC_SIZE": max(own, problem.block // 32)}


VARIANT = CudaVariant(
    op="rotate_heads",
    name="cuda_butterflies",
    idea="a few lanes for a block: butterflies among a thread's own elements, then between lanes by shuffles",
    source=cuda_sources() / "rotate_heads_butterflies.cu",
    steps=(
        CudaStep(
            kernel="rotate_heads",
            grid=lambda config, problem: (cdiv(problem.num_elements, config["NUM_THREADS"] * config["VEC_SIZE"]),),
            arguments=ARGUMENTS,
        ),
    ),
    space={"NUM_THREADS": (32, 64, 128, 256), "VEC_SIZE": (1, 2, 4, 8, 16)},
    restrictions=rules(
        THREADS,
        ("a block in a warp", "block % VEC_SIZE == 0 and block <= 32 * VEC_SIZE", "whole vectors of at most 32 lanes"),
    ),
    layouts=("any",),
    dtypes=tuple(DTYPES),
    defaults=default_config,
    macros=lambda config, problem: {
        "SCALAR": ELEMENT_TYPES[problem.dtype].cpp,
        "WIDTH": problem.num_heads * problem.head_size,
        "BLOCK": problem.block,
        "SCALE": f"{problem.block**-0.5!r}f",
        **config,
    },
)
