"""Counts of instructions and memory accesses, and the ratios that follow from them; only this module computes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter

SECTOR_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class MemoryCounts:
    """Counts of a PTX instruction, a source line, a launch or a stored trial, summed over all warps.

    Counts add up with ``+``. A request is one warp instruction, a sector 32 bytes. Ratios are None if nothing was
    counted.
    """

    instructions: int = 0
    """Warp instructions."""
    lanes: int = 0
    """Active lanes, summed over the warp instructions."""
    global_load_requests: int = 0
    """Requests that load from global memory; atomics are neither loads nor stores."""
    global_load_sectors: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_requests: int = 0
    """Requests to global memory: loads, stores and atomics."""
    global_sectors: int = 0
    """Sectors that the requests touch; a sector counts once for each request."""
    global_ideal_sectors: int = 0
    """Fewest sectors that could hold the bytes that each request uses."""
    bytes_requested: int = 0
    """Bytes of global memory that the lanes asked for; a byte counts once for each lane."""
    bytes_used: int = 0
    """Bytes of global memory that the lanes asked for; a byte counts once for each request."""
    shared_requests: int = 0
    """Requests to shared memory."""
    shared_wavefronts: int = 0
    """Passes through the 32 banks that requests to shared memory, and operands of wgmma and tcgen05.mma, take."""
    shared_ideal_wavefronts: int = 0
    """Passes through the 32 banks that they would take without bank conflicts."""
    operand_wavefronts: int = 0
    """Passes among these that bring operands of products; no load or store unit takes part in them."""
    landed_bytes: int = 0
    """Bytes that bulk copies (TMA) bring to shared memory, in all blocks."""
    filled_bytes: int = 0
    """Bytes of ``landed_bytes`` that lie outside the tensor and are filled in."""
    copied_bytes: int = 0
    """Bytes that these copies read in global memory; a byte read once may land in several blocks."""
    barrier_waits: int = 0
    """Warp instructions for which warps waited at barriers, by the logical clock of a recording."""
    slow_paths: int = 0
    """Divisions and roots, in warp instructions, with rare operands that need the compiler's subroutine."""
    products: int = 0
    """Multiply-adds of tcgen05.mma."""
    scale_bytes: int = 0
    """Bytes of scale factors that tcgen05.mma reads from tensor memory."""

    def __add__(self, other: MemoryCounts) -> MemoryCounts:
        return total((self, other))

    @property
    def active_lanes(self) -> float:
        """Active lanes per warp instruction, at most 32; 0 without instructions."""
        return self.lanes / self.instructions if self.instructions else 0.0

    @property
    def sectors_per_request(self) -> float | None:
        """32-byte sectors per request to global memory."""
        return self.global_sectors / self.global_requests if self.global_requests else None

    @property
    def ideal_sectors_per_request(self) -> float | None:
        """Sectors per request to global memory if the bytes of each request lay together."""
        return self.global_ideal_sectors / self.global_requests if self.global_requests else None

    @property
    def bytes_moved(self) -> int:
        """Bytes moved: 32 for each sector of each request, which the L1 cache and those behind it have to answer."""
        return SECTOR_BYTES * self.global_sectors

    @property
    def used_fraction(self) -> float | None:
        """Fraction of the bytes moved that lanes use."""
        return self.bytes_used / self.bytes_moved if self.global_sectors else None

    @property
    def multicast_bytes(self) -> int:
        """Bytes that bulk copies bring and that were read for another block of the cluster."""
        return self.landed_bytes - self.filled_bytes - self.copied_bytes

    @property
    def shared_conflicts(self) -> int:
        """Wavefronts beyond the ideal."""
        return self.shared_wavefronts - self.shared_ideal_wavefronts


_NAMES = tuple(one.name for one in fields(MemoryCounts))
_numbers = attrgetter(*_NAMES)


def total(counts: Iterable[MemoryCounts]) -> MemoryCounts:
    """Return the sum of the counts."""
    sums = map(sum, zip(*map(_numbers, counts), strict=True))
    return MemoryCounts(**dict(zip(_NAMES, sums, strict=False)))  # without counts there are no sums
