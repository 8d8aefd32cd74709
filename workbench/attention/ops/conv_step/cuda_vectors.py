"""A thread for a few channels: ``conv_step_vectors.cu``."""

from __future__ import annotations

import math

from workbench.attention.ops.conv_step.problem import ARGUMENTS, RESTRICTIONS, ConvProblem
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.rules import THREADS, rules
from workbench.base.packages import ELEMENT_TYPES, cuda_sources
from workbench.ops import CudaStep, CudaVariant, cdiv


def default_config(problem: ConvProblem) -> dict:
    """Return vectors of eight bytes, where there are whole ones."""
    return {"NUM_THREADS": 128, "VEC_SIZE": math.gcd(problem.channels, 8 // problem.itemsize)}


VARIANT = CudaVariant(
    op="conv_step",
    name="cuda_vectors",
    idea="a thread for a few channels: their inputs loaded once, summed, and stored one place earlier",
    source=cuda_sources() / "conv_step_vectors.cu",
    steps=(
        CudaStep(
            kernel="conv_step",
            grid=lambda config, problem: (
                cdiv(problem.channels, config["NUM_THREADS"] * config["VEC_SIZE"]),
                problem.num_seqs,
            ),
            arguments=ARGUMENTS,
        ),
    ),
    space={"NUM_THREADS": (32, 64, 128, 256), "VEC_SIZE": (1, 2, 4, 8)},
    restrictions=rules(
        *RESTRICTIONS,
        THREADS,
        ("whole vectors", "channels % VEC_SIZE == 0 and VEC_SIZE * itemsize <= 16", "of at most 16 bytes"),
    ),
    layouts=("any",),
    dtypes=tuple(DTYPES),
    defaults=default_config,
    macros=lambda config, problem: {
        "SCALAR": ELEMENT_TYPES[problem.dtype].cpp,
        "CHANNELS": problem.channels,
        "WIDTH": problem.width,
        **config,
    },
)
