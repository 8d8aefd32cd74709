"""Poison: what outputs are filled with, so that elements that a kernel does not write are noticed."""

from __future__ import annotations

import torch

from workbench.base.element_types import ELEMENT_TYPES

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by the size of an element in bytes."""


def poison(out: torch.Tensor) -> None:
    """Fill an output with NaN, or the largest integer, so that elements that a kernel does not write are noticed."""
    kind = ELEMENT_TYPES.get(str(out.dtype).removeprefix("torch."))
    if kind is not None and kind.poison:
        parts = torch.view_as_real(out) if out.is_complex() else out
        parts.view(BITS[parts.itemsize]).fill_(kind.poison[0])
    elif out.is_floating_point():
        out.view(torch.uint8).fill_(0x7F)  # one of the other types of 8 bits
    else:
        out.fill_(torch.iinfo(out.dtype).max)
