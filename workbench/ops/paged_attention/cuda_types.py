"""How the CUDA C++ kernels name the element types."""

from __future__ import annotations

import torch

CPP_NAMES = {
    torch.float32: "float",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float8_e4m3fn: "__nv_fp8_e4m3",
    torch.float8_e5m2: "__nv_fp8_e5m2",
    torch.int8: "signed char",
}
