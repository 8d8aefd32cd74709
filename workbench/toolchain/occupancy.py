"""Occupancy: the blocks of a kernel that fit on one multiprocessor, and the resource that limits them.

The arithmetic is that of NVIDIA's occupancy calculator (``cuda_occupancy.h`` in the CUDA runtime headers), the limits
those of the CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability" (``base/gpus.json``).
Registers are allocated per warp in units of 256, warps in multiples of four (one per scheduler), shared memory in units
of 128 bytes, after 1 KiB per block that the system reserves since compute capability 8.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.base.gpus import gpu_figures
from workbench.errors import ArgumentError

_WARP = 32


@dataclass(frozen=True)
class ArchitectureLimits:
    """Limits of one multiprocessor of an architecture; sizes in bytes, registers of 32 bits.

    ``barriers`` is the number of named barriers that all its blocks share, or None before sm_90, where they do not run
    out.
    """

    arch: str
    max_warps: int
    max_blocks: int
    shared_per_multiprocessor: int
    shared_per_block: int
    registers: int = 65536
    registers_per_block: int = 65536
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    register_unit: int = 256
    warp_unit: int = 4
    shared_unit: int = 128
    shared_reserved: int = 1024
    barriers: int | None = None


def _limits(arch: str, figures: Mapping[str, int]) -> ArchitectureLimits:
    return ArchitectureLimits(
        arch,
        figures["warps"],
        figures["blocks"],
        figures["shared_kib"] * 1024,
        figures["shared_kib_per_block"] * 1024,
        **{name: figures[name] for name in ("shared_unit", "shared_reserved", "barriers") if name in figures},
    )


LIMITS = {arch: _limits(arch, figures) for arch, figures in gpu_figures()["multiprocessor_limits"].items()}


@dataclass(frozen=True)
class Occupancy:
    """Occupancy of one multiprocessor: resident blocks and warps, and the warps as a fraction of the most it can hold.

    ``limited_by`` is the resource that runs out first: ``"warps"``, ``"blocks"``, ``"registers"``, ``"shared memory"``
    or ``"barriers"`` (the first in this order if several do). ``blocks_per_sm`` is 0 if not even one block fits.
    ``fits`` is the number of blocks that each of them would allow; barriers are there only if they run out.
    """

    blocks_per_sm: int
    warps_per_sm: int
    fraction: float
    limited_by: str
    fits: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.fraction:.0%} ({self.warps_per_sm} warps, limited by {self.limited_by})"


def limits_of(arch: str) -> ArchitectureLimits:
    """Return the limits of ``arch``, such as ``"sm_90"``; ``"sm_90a"`` counts as ``"sm_90"``.

    Raises ArgumentError for an unknown architecture.
    """
    if arch in LIMITS:
        return LIMITS[arch]
    plain = re.sub(r"^(sm_\d+)[af]$", r"\1", arch)
    if plain not in LIMITS:
        raise ArgumentError("arch", repr(arch), ", ".join(LIMITS), "Name one of these.")
    return LIMITS[plain]


def occupancy(
    arch_or_limits: str | ArchitectureLimits,
    threads_per_block: int,
    registers: int = 0,
    shared_bytes: int = 0,
    barriers: int = 0,
) -> Occupancy:
    """Compute the resident blocks and warps per multiprocessor of a kernel.

    ``registers`` are per thread; ``shared_bytes`` are per block, static and dynamic together; so are ``barriers``, the
    named ones (``bar.sync 1``; ``__syncthreads()`` is one), which limit the blocks from sm_90 on. A kernel that needs
    more registers or shared memory than one block may take has an occupancy of 0. Raises ArgumentError for an unknown
    architecture, a block without threads or with more than it may have, and a negative amount.
    """
    limits = limits_of(arch_or_limits) if isinstance(arch_or_limits, str) else arch_or_limits
    if not 1 <= threads_per_block <= limits.threads_per_block:
        raise ArgumentError(
            "threads_per_block", threads_per_block, f"1 to {limits.threads_per_block}", "Launch smaller blocks."
        )
    for name, amount in (("registers", registers), ("shared_bytes", shared_bytes), ("barriers", barriers)):
        if amount < 0:
            raise ArgumentError(name, amount, "0 or more", "Pass what the compiler reported.")
    warps = _up(threads_per_block, _WARP) // _WARP
    fits = {
        "warps": limits.max_warps // warps,
        "blocks": limits.max_blocks,
        "registers": _blocks_by_registers(limits, warps, registers),
        "shared memory": _blocks_by_shared(limits, shared_bytes),
    }
    if limits.barriers is not None and barriers:
        fits["barriers"] = limits.barriers // barriers
    limited_by = min(fits, key=fits.__getitem__)
    blocks = fits[limited_by]
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.max_warps, limited_by, fits)


def most_registers(limits: ArchitectureLimits, threads_per_block: int, blocks: int) -> int:
    """Return the most registers per thread with which ``blocks`` blocks of this size fit; 0 if none do."""
    warps = _up(threads_per_block, _WARP) // _WARP
    step = limits.register_unit // _WARP  # fewer registers than that change nothing
    counts = [limits.registers_per_thread, *range(limits.registers_per_thread // step * step, 0, -step)]
    return next((count for count in counts if _blocks_by_registers(limits, warps, count) >= blocks), 0)


def most_shared_bytes(limits: ArchitectureLimits, blocks: int) -> int:
    """Return the most bytes of shared memory per block with which ``blocks`` blocks fit; negative if none do."""
    each = limits.shared_per_multiprocessor // max(blocks, 1) // limits.shared_unit * limits.shared_unit
    return min(each - limits.shared_reserved, limits.shared_per_block)


def _blocks_by_registers(limits: ArchitectureLimits, warps: int, registers: int) -> int:
    if registers == 0:
        return limits.max_blocks
    if registers > limits.registers_per_thread:
        return 0
    per_warp = _up(registers * _WARP, limits.register_unit)
    # A block's warps are spread over the schedulers, so its registers count in whole rounds over them.
    if per_warp * _up(warps, limits.warp_unit) > limits.registers_per_block:
        return 0
    warps_per_scheduler = limits.registers // limits.warp_unit // per_warp
    return warps_per_scheduler * limits.warp_unit // warps


def _blocks_by_shared(limits: ArchitectureLimits, shared_bytes: int) -> int:
    if shared_bytes > limits.shared_per_block:
        return 0
    per_block = _up(shared_bytes + limits.shared_reserved, limits.shared_unit)
    return limits.shared_per_multiprocessor // per_block if per_block else limits.max_blocks


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
