"""Layout of a launch's parameters in a GPU's constant bank, which a packed buffer has to follow."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.base.architectures import arch_number
from workbench.ptx import signature
from workbench.ptx.parse import Parameter

_BASES = ((100, 0x380), (90, 0x210), (0, 0x160))
"""Byte of the constant bank at which the parameters begin, from a compute capability (times ten) on.

Source: the EIATTR_PARAM_CBANK and EIATTR_KPARAM_INFO of machine code by ptxas 12.8 and 13.0; an H100 refused buffers
with another layout.
"""


def base_of(arch: str) -> int:
    """Return the address that the parameters of a launch on ``arch`` (``"sm_90a"``) are copied to."""
    number = arch_number(arch)
    return next(base for since, base in _BASES if number >= since)


def offsets(parameters: Sequence[Parameter], arch: str) -> tuple[list[int], int]:
    """Return the byte offset of each parameter in the buffer of a launch on ``arch``, and its size.

    Parameters are aligned in the constant bank, into which the buffer is copied at an address that is only a multiple
    of 16 or 32. So the offset of a tensor map, which is aligned to 64 bytes, differs from the one that order and
    alignments in the PTX suggest.
    """
    return signature.offsets(parameters, base_of(arch))
