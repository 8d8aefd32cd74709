"""A thread per group of 16 elements, which finds the group's scale in its registers: writes of NVFP4.

The kernel is ``cuda_src/reshape_and_cache_scaled_groups.cu``.
"""

from __future__ import annotations

import math

from workbench.attention.cache_formats.nvfp4 import GROUP, LAYOUTS
from workbench.attention.ops.reshape_and_cache.problem import ARGUMENTS, ReshapeAndCacheProblem
from workbench.attention.ops.rules import THREADS, rules
from workbench.attention.ops.scaled_groups import GROUP_STRIDES, WHOLE_GROUPS
from workbench.base.packages import ELEMENT_TYPES, cuda_sources
from workbench.ops import CudaStep, CudaVariant, cdiv

RESTRICTIONS = rules(
    WHOLE_GROUPS,
    ("whole vectors", "VEC_SIZE in (1, 2, 4, 8, 16)", "of a group"),
    ("aligned vectors", "VEC_SIZE * itemsize <= alignment", "the alignment of rows of key and value"),
    THREADS,
)


def default_config(problem: ReshapeAndCacheProblem) -> dict:
    """Return the widest loads that the alignment allows."""
    return {"NUM_THREADS": 128, "VEC_SIZE": math.gcd(GROUP, max(problem.alignment // problem.itemsize, 1))}


VARIANT = CudaVariant(
    op="reshape_and_cache",
    name="cuda_scaled_groups",
    idea="nvfp4: a thread per group of 16 elements, which finds the group's scale in its registers",
    source=cuda_sources() / "reshape_and_cache_scaled_groups.cu",
    steps=(
        CudaStep(
            kernel="reshape_and_cache_scaled_groups",
            grid=lambda config, problem: (
                cdiv(problem.num_tokens * problem.num_kv_heads * problem.head_size // GROUP, config["NUM_THREADS"]),
            ),
            arguments=ARGUMENTS | GROUP_STRIDES,
        ),
    ),
    space={"NUM_THREADS": (32, 64, 128, 256), "VEC_SIZE": (1, 2, 4, 8)},
    restrictions=RESTRICTIONS,
    layouts=LAYOUTS,
    dtypes=("float32", "float16", "bfloat16"),
    needs=("nvfp4",),
    defaults=default_config,
    macros=lambda config, problem: {
        "SCALAR": ELEMENT_TYPES[problem.dtype].cpp,
        "HEAD_SIZE": problem.head_size,
        "BLOCK_SIZE": problem.block_size,
        **config,
    },
    own_instructions_from=100,
)
