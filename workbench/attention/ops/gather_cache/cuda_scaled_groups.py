"""A thread per group of 16 elements with its scale: reads of NVFP4.

The kernel is ``cuda_src/gather_cache_scaled_groups.cu``.
"""

from __future__ import annotations

from workbench.attention.cache_formats.nvfp4 import GROUP, LAYOUTS
from workbench.attention.ops.cache_problem import STRIDES
from workbench.attention.ops.gather_cache.problem import GRID
from workbench.attention.ops.rules import THREADS, rules
from workbench.attention.ops.scaled_groups import GROUP_STRIDES, WHOLE_GROUPS
from workbench.base.packages import ELEMENT_TYPES, cuda_sources
from workbench.ops import CudaStep, CudaVariant, cdiv

VARIANT = CudaVariant(
    op="gather_cache",
    name="cuda_scaled_groups",
    idea="nvfp4: a thread per group of 16 elements, dequantized in its registers",
    source=cuda_sources() / "gather_cache_scaled_groups.cu",
    steps=(
        CudaStep(
            kernel="gather_cache_scaled_groups",
            grid=lambda config, problem: (
                cdiv(problem.max_seq_len * problem.num_kv_heads * problem.head_size // GROUP, config["NUM_THREADS"]),
                problem.num_seqs,
            ),
            arguments=STRIDES | GROUP_STRIDES,
        ),
    ),
    space={"NUM_THREADS": (32, 64, 128, 256)},
    restrictions=rules(WHOLE_GROUPS, THREADS, GRID),
    layouts=LAYOUTS,
    dtypes=("float32", "float16", "bfloat16"),
    needs=("nvfp4",),
    defaults=lambda problem: {"NUM_THREADS": 128},
    macros=lambda config, problem: {
        "SCALAR": ELEMENT_TYPES[problem.dtype].cpp,
        "HEAD_SIZE": problem.head_size,
        "BLOCK_SIZE": problem.block_size,
        **config,
    },
    own_instructions_from=100,
)
