"""Columns of a state in registers, rows shared out over the warps: ``gated_delta_step_columns.cu``."""

from __future__ import annotations

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.gated_delta_step.problem import ARGUMENTS, RESTRICTIONS, GatedDeltaProblem
from workbench.attention.ops.rules import THREADS, rules
from workbench.base.packages import ELEMENT_TYPES, cuda_sources
from workbench.ops import CudaStep, CudaVariant, cdiv


def default_config(problem: GatedDeltaProblem) -> dict:
    """Return a column for each lane, and as many warps as leave each 32 rows or fewer."""
    warps = 1
    while warps < 8 and problem.key_size // warps > 32 and problem.key_size % (2 * warps) == 0:
        warps *= 2
    return {"NUM_THREADS": 32 * warps, "VEC_SIZE": 1}


VARIANT = CudaVariant(
    op="gated_delta_step",
    name="cuda_columns",
    idea="a block per columns of a head's state: read once into registers, corrected, read by the query, written once",
    source=cuda_sources() / "gated_delta_step_columns.cu",
    steps=(
        CudaStep(
            kernel="gated_delta_step",
            grid=lambda config, problem: (
                cdiv(problem.value_size, 32 * config["VEC_SIZE"]),
                problem.num_value_heads,
                problem.num_seqs,
            ),
            arguments=ARGUMENTS,
        ),
    ),
    space={"NUM_THREADS": (32, 64, 128, 256, 512), "VEC_SIZE": (1, 2, 4)},
    restrictions=rules(
        *RESTRICTIONS,
        THREADS,
        ("whole rows", "key_size % (NUM_THREADS // 32) == 0", "every warp has as many"),
        ("whole vectors", "value_size % VEC_SIZE == 0"),
        ("registers", "key_size // (NUM_THREADS // 32) * VEC_SIZE <= 128", "128 elements of the state a thread"),
    ),
    layouts=("any",),
    dtypes=tuple(DTYPES),
    features=("key_decay",),
    defaults=default_config,
    macros=lambda config, problem: {
        "SCALAR": ELEMENT_TYPES[problem.dtype].cpp,
        "KEY_SIZE": problem.key_size,
        "VALUE_SIZE": problem.value_size,
        "GROUP": problem.group,
        "DECAYS": problem.decays,
        **config,
    },
)
