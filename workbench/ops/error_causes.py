"""Causes of errors that the code of a kernel shows: products in TF32, and sums in 16 bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from workbench.ops.values import Check
from workbench.toolchain.half_sums import half_sum
from workbench.toolchain.tensor_float import rounded_products


def is_float32(tensors: Iterable[object]) -> bool:
    """Return True for a problem whose inputs and results are float32 or wider, so that 16 bits are the kernel's own."""
    found = {one.dtype for one in tensors if isinstance(one, torch.Tensor) and one.is_floating_point()}
    return bool(found) and found <= {torch.float32, torch.float64}


def causes_of(check: Check, ptx: Sequence[str], float32: bool) -> list[str]:
    """Return what explains the error of a wrong result: products in TF32, or sums in 16 bits of a float32 problem."""
    causes = [rounded_products(ptx, check.max_error, check.bound), half_sum(ptx) if float32 else ""]
    return [cause for cause in causes if cause]
