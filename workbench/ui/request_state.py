"""One warp request as plain data: the sectors that it moves, or its wavefronts through the banks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.base.memory_counts import SECTOR_BYTES
from workbench.errors import ArgumentError

if TYPE_CHECKING:
    from workbench.ptx.recording import WarpRequest

LINE_BYTES = 128
"""Bytes of one cache line, which has four sectors."""

BANKS = 32
WORD_BYTES = 4

_LANES = 32


@dataclass(frozen=True)
class Run:
    """Consecutive bytes of one sector that the same lanes access; bytes that are moved but not used have no lanes.

    ``start`` and ``end`` (exclusive) are offsets in the sector.
    """

    start: int
    end: int
    lanes: tuple[int, ...]


@dataclass(frozen=True)
class Sector:
    """One 32-byte sector that a request moves: its address, and its bytes as runs from first to last."""

    address: int
    runs: tuple[Run, ...]

    @property
    def used(self) -> int:
        """Number of bytes that a lane accesses."""
        return sum(run.end - run.start for run in self.runs if run.lanes)


def sectors_of(request: WarpRequest) -> tuple[Sector, ...]:
    """Return the sectors of a request to global memory, by address; their number is ``request.sectors``.

    Raises:
        ArgumentError: if the request is to shared memory.
    """
    _require(request, "global")
    owners: dict[int, list[int]] = {}
    for lane, address in enumerate(request.addresses):
        if address is not None:
            for byte in range(address, address + request.bytes_per_lane):
                owners.setdefault(byte, []).append(lane)
    found = []
    for base in sorted({byte // SECTOR_BYTES * SECTOR_BYTES for byte in owners}):
        runs: list[Run] = []
        for at in range(SECTOR_BYTES):
            lanes = tuple(owners.get(base + at, ()))
            if runs and runs[-1].lanes == lanes:
                runs[-1] = Run(runs[-1].start, at + 1, lanes)
            else:
                runs.append(Run(at, at + 1, lanes))
        found.append(Sector(base, tuple(runs)))
    return tuple(found)


@dataclass(frozen=True)
class Wavefront:
    """One pass through the banks.

    Attributes:
        phase: number of the part of the warp that is served. 8-byte requests are served by half warps and 16-byte ones
            by quarters, with twice as many lanes for a load in which neighbours access the same address.
        again: number of earlier passes of the same part; above 0, the banks of this pass are in conflict.
        banks: for each bank, the word that it delivers and the lanes that take it.
    """

    phase: int
    again: int
    banks: Mapping[int, tuple[int, tuple[int, ...]]]


def wavefronts_of(request: WarpRequest) -> tuple[Wavefront, ...]:
    """Return the wavefronts of a request to shared memory, by the rules of the PTX machine.

    Their number is ``request.wavefronts``. Hardware does not define which word a bank delivers first; here it is that
    of the lowest lane.

    Raises:
        ArgumentError: if the request is to global memory.
    """
    _require(request, "shared")
    offsets = {lane: offset for lane, offset in enumerate(request.addresses) if offset is not None}
    found = []
    for phase, lanes in enumerate(_phases(request, offsets)):
        passes: list[dict[int, tuple[int, tuple[int, ...]]]] = []
        kept: dict[int, list[int]] = {}  # the words of each bank, in the order of their passes
        for lane in lanes:
            for step in range(max(1, request.bytes_per_lane // WORD_BYTES)):
                word = offsets[lane] // WORD_BYTES + step
                words = kept.setdefault(word % BANKS, [])
                if word not in words:
                    words.append(word)
                if words.index(word) == len(passes):
                    passes.append({})
                served = passes[words.index(word)]
                served[word % BANKS] = (word, (*served.get(word % BANKS, (word, ()))[1], lane))
        found += [Wavefront(phase, again, dict(sorted(banks.items()))) for again, banks in enumerate(passes)]
    return tuple(found)


def words_of(request: WarpRequest) -> int:
    """Return the number of distinct 4-byte words that a request to shared memory accesses."""
    return len({word for front in wavefronts_of(request) for word, _ in front.banks.values()})


def _phases(request: WarpRequest, offsets: Mapping[int, int]) -> list[list[int]]:
    """Return the active lanes of each part of the warp that is served by itself, as core/memory/access.hpp does."""
    count = max(1, request.bytes_per_lane // WORD_BYTES)
    if (
        count > 1
        and not request.is_store
        and any(all(offsets.get(lane ^ step, offset) == offset for lane, offset in offsets.items()) for step in (1, 2))
    ):
        count //= 2
    width = _LANES // count
    parts = [[lane for lane in offsets if lane // width == part] for part in range(count)]
    return [part for part in parts if part]


def _require(request: WarpRequest, space: str) -> None:
    if request.space != space:
        other = {"global": "bank_map", "shared": "warp_map"}[space]
        raise ArgumentError("request", f"one of {request.space} memory", f"requests of {space} memory", f"See {other}.")


def cache_lines(sectors: Sequence[Sector]) -> list[tuple[int, dict[int, Sector]]]:
    """Return the 128-byte lines of a request by address, each with its moved sectors by place (0 to 3)."""
    rows: dict[int, dict[int, Sector]] = {}
    for sector in sectors:
        base = sector.address // LINE_BYTES * LINE_BYTES
        rows.setdefault(base, {})[(sector.address - base) // SECTOR_BYTES] = sector
    return sorted(rows.items())
