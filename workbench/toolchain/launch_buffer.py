"""Where a GPU keeps the parameters of a launch, which is where a packed buffer must have them."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.ptx import signature
from workbench.ptx.parse import Parameter

_BASES = ((100, 0x380), (90, 0x210), (0, 0x160))
"""Byte of the constant bank at which the parameters begin, from a compute capability (times ten) on. Source: the
EIATTR_PARAM_CBANK and EIATTR_KPARAM_INFO of machine code by ptxas 12.8 and 13.0; an H100 refused buffers laid out
otherwise."""


def base_of(arch: str) -> int:
    """Return the address that the parameters of a launch on ``arch`` (``"sm_90a"``) are copied to."""
    number = int(arch.removeprefix("sm_").rstrip("af"))
    return next(base for since, base in _BASES if number >= since)


def offsets(parameters: Sequence[Parameter], arch: str) -> tuple[list[int], int]:
    """Return the byte offset of each parameter in the buffer of a launch on ``arch``, and its size.

    A parameter is aligned in the constant bank, which the buffer is copied into at an address that is a multiple of 16
    or 32 alone: a tensor map, aligned to 64 bytes, lies elsewhere than the PTX's order and alignments say.
    """
    return signature.offsets(parameters, base_of(arch))
