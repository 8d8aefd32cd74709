"""Changes of a launch that raise its occupancy: fewer registers, less shared memory, another size of its blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from workbench.toolchain.occupancy import (
    ArchitectureLimits,
    Occupancy,
    most_registers,
    most_shared_bytes,
    occupancy,
)

_FEWEST_REGISTERS = 16
"""The least that nvcc's ``--maxrregcount`` and ``__launch_bounds__`` are worth: below it the ABI leaves no kernel."""
_WARP = 32
_FIXED = ("warps", "blocks", "barriers")
"""Resources of which a block of one size always takes as many."""


@dataclass(frozen=True)
class LaunchFigures:
    """Figures of a launch that its occupancy follows from.

    Threads, shared bytes and named barriers are per block, registers per thread.
    """

    block: int
    registers: int
    shared_bytes: int
    barriers: int = 0

    def on(self, limits: ArchitectureLimits) -> Occupancy:
        """Return the occupancy of a multiprocessor with these limits."""
        return occupancy(limits, self.block, self.registers, self.shared_bytes, self.barriers)

    def changed_from(self, other: LaunchFigures) -> str:
        """Return in words what differs from other figures: ``"40 registers instead of 42"``."""
        words = []
        if self.block != other.block:
            words.append(f"blocks of {self.block} threads instead of {other.block}")
        if self.registers != other.registers:
            words.append(f"{self.registers} registers instead of {other.registers}")
        if self.shared_bytes != other.shared_bytes:
            words.append(f"{self.shared_bytes:,} shared bytes instead of {other.shared_bytes:,}")
        return " and ".join(words)


@dataclass(frozen=True)
class OccupancyStep:
    """A change of a launch's figures that raises its occupancy: the words for it, the new figures, and their result."""

    change: str
    figures: LaunchFigures
    occupancy: Occupancy


def steps_from(figures: LaunchFigures, limits: ArchitectureLimits) -> Iterator[OccupancyStep]:
    """Yield the changes that raise the occupancy of a launch: the nearest step first, then the one that gains most.

    First those of a block of the same size, by fewer registers or less shared memory; then those of blocks of another
    size, in whole warps, that keep both.
    """
    now = figures.on(limits)
    for found in (_same_size(figures, limits, now), _other_sizes(figures, limits, now)):
        if found:
            best = max(found, key=lambda step: step.occupancy.warps_per_sm)  # the nearest of the equal ones
            yield from (found[0], best) if best is not found[0] else (best,)


def room_of(figures: LaunchFigures, limits: ArchitectureLimits) -> tuple[int, int]:
    """Return the registers per thread and the shared bytes per block that a launch may take at its present occupancy.

    Both are 0 where not even one block fits.
    """
    blocks = figures.on(limits).blocks_per_sm
    if not blocks:
        return 0, 0
    return most_registers(limits, figures.block, blocks), most_shared_bytes(limits, blocks)


def _same_size(figures: LaunchFigures, limits: ArchitectureLimits, now: Occupancy) -> list[OccupancyStep]:
    """Return the steps to each larger number of blocks of the same size, the nearest first."""
    found: list[OccupancyStep] = []
    for blocks in range(now.blocks_per_sm + 1, min(now.fits[name] for name in _FIXED if name in now.fits) + 1):
        registers = min(figures.registers, most_registers(limits, figures.block, blocks))
        shared = min(figures.shared_bytes, most_shared_bytes(limits, blocks))
        if shared < 0 or registers < min(_FEWEST_REGISTERS, figures.registers):
            break
        _add(found, replace(figures, registers=registers, shared_bytes=shared), figures, limits)
    return found


def _other_sizes(figures: LaunchFigures, limits: ArchitectureLimits, now: Occupancy) -> list[OccupancyStep]:
    """Return the steps to blocks of another size, in whole warps, the nearest size first."""
    sizes = range(_WARP, limits.threads_per_block + 1, _WARP)
    found: list[OccupancyStep] = []
    for size in sorted(sizes, key=lambda size: (abs(size - figures.block), size)):
        made = replace(figures, block=size)
        if made.on(limits).warps_per_sm > now.warps_per_sm:
            _add(found, made, figures, limits)
    return found


def _add(found: list[OccupancyStep], made: LaunchFigures, before: LaunchFigures, limits: ArchitectureLimits) -> None:
    found.append(OccupancyStep(made.changed_from(before), made, made.on(limits)))
