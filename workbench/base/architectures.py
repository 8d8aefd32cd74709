"""Names of architectures: those that the machine stands for, and the letter for code of one architecture alone."""

from __future__ import annotations

MACHINE_ARCHS = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
"""Architectures that kernels are compiled for to run in the PTX machine, the default first.

Triton compiles for ``sm_90a``, ``sm_100a`` and ``sm_120a`` where it is asked for the architecture without the letter.
CUDA C++ is compiled for the letter where a variant needs it (`workbench.ops.values.Restriction.on`) or the name has it.
"""

MACHINE_ARCHS_TEXT = f"{', '.join(MACHINE_ARCHS[:-1])} or {MACHINE_ARCHS[-1]}"
"""The architectures as help texts list them."""


DEVICE_NAMES = ("auto", "sim", "cuda")
"""Names of the devices that kernels run on."""


def plain_arch(arch: str) -> str:
    """Return the name of an architecture without its letter: ``"sm_100a"`` and ``"sm_100f"`` are ``"sm_100"``."""
    return arch.rstrip("af")


def arch_number(arch: str) -> int:
    """Return the compute capability times ten: 100 for ``"sm_100"`` and ``"sm_100a"``."""
    return int(plain_arch(arch).removeprefix("sm_"))
