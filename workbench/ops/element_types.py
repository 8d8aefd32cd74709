"""The element types of tensors: their names, also in CUDA C++ and Triton, and for each a value to recognise."""

from __future__ import annotations

import math

import torch

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""Dtypes of queries, keys, values and outputs of the ops on caches."""

CPP_NAMES = {"float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__nv_bfloat16", "bool": "bool"}
CPP_NAMES |= {"float8_e4m3fn": "__nv_fp8_e4m3", "float8_e5m2": "__nv_fp8_e5m2", "uint8": "unsigned char"}
CPP_NAMES |= {"complex64": "float2", "complex128": "double2"}
CPP_NAMES |= {"int8": "signed char", "int16": "short", "int32": "int", "int64": "long long"}

TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "bool": "i1"}
TRITON_NAMES |= {"float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "uint8": "u8", "uint16": "u16", "uint32": "u32"}
TRITON_NAMES |= {f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)}


def poison(out: torch.Tensor) -> None:
    """Fill an output with NaN, or the largest integer, so that elements that a kernel does not write are noticed."""
    if out.dtype == torch.bool:
        out.view(torch.uint8).fill_(0xFF)
    elif out.is_complex():
        torch.view_as_real(out).fill_(math.nan)
    elif out.is_floating_point() and out.itemsize > 1:
        out.fill_(math.nan)
    elif out.is_floating_point():
        out.view(torch.uint8).fill_(0x7F)  # NaN in float8_e4m3fn and float8_e5m2
    else:
        out.fill_(torch.iinfo(out.dtype).max)
