"""How the CUDA C++ kernels name the element types."""

from __future__ import annotations

import torch

from workbench.ops.paged_attention.problem import DTYPES, Problem

CPP_NAMES = {
    torch.float32: "float",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float8_e4m3fn: "__nv_fp8_e4m3",
    torch.float8_e5m2: "__nv_fp8_e5m2",
    torch.int8: "signed char",
}


def type_macros(problem: Problem) -> dict[str, str | int]:
    """The macros that describe a cache's elements and scales to an attention kernel."""
    return {
        "SCALAR": CPP_NAMES[DTYPES[problem.dtype]],
        "CACHE": CPP_NAMES[problem.cache_dtype],
        **({"QUANTIZED": 1} if problem.quantized else {}),
        "TOKEN_SCALES": int("token_scales" in problem.features),
    }
