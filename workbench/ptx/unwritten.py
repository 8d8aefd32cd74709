"""Copies whose source a launch does not write: checks need not watch what those read until they are over."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.ptx.assemble import Decoded
    from workbench.ptx.buffers import Row
    from workbench.ptx.extents import KernelExtents
    from workbench.ptx.parse import PtxEntry

_COPY = "cp.async"
_NOWHERE = -1  # to what a null pointer points
_WRITERS = (
    "st.global.", "st.generic.", "st.bulk.generic.", "atom.global.", "atom.generic.", "wmma.store.global.",
    "wmma.store.generic.", "tensormap.", "cp.async.bulk.global.", "cp.async.bulk.tensor.global.",
)  # fmt: skip


class CopySources:
    """Memory that the copies of a kernel read and its other instructions write, as arguments and variables tell."""

    def __init__(self, entry: PtxEntry, decoded: Decoded, extents: KernelExtents):
        names = [step.opcode.name for step in decoded.code]
        self._extents = extents
        self._pointers = [(at, one.offset) for at, one in enumerate(entry.parameters) if one.size == 8]
        self._copies = [pc for pc, name in enumerate(names) if name == _COPY]
        self._writers = {pc: ".generic." in name for pc, name in enumerate(names) if name.startswith(_WRITERS)}
        self._known: dict[tuple[tuple[int, int], ...], list[int]] = {}

    def unwritten(self, parameters: bytes, rows: Sequence[Row]) -> list[int]:
        """Return the pc of each cp.async that reads a buffer which no instruction of the launch writes.

        Both are known of addresses that are computed from one argument or variable (provenance.py). Where that is not
        known of every write, or where buffers overlap, there are none.
        """
        if not self._copies:
            return []
        buffers = _Buffers(rows)
        if buffers.overlap:
            return []
        values = [(at, int.from_bytes(parameters[offset : offset + 8], "little")) for at, offset in self._pointers]
        places = [(at, buffers.at(value)) for at, value in values]
        key = tuple((at, place) for at, place in places if place is not None)
        nulls = tuple((at, _NOWHERE) for at, value in values if not value)  # pointers, or numbers
        if key + nulls not in self._known:
            self._known[key + nulls] = self._found(dict(key + nulls), buffers) or self._found(dict(key), buffers)
        return self._known[key + nulls]

    def _found(self, arguments: Mapping[int, int], buffers: _Buffers) -> list[int]:
        places: dict[int, int] = {}  # the buffer of each access that has one
        shared: set[int] = set()  # accesses with an address in shared memory
        for pc, one in self._extents.accesses(frozenset(arguments)):
            if isinstance(one.origin, int):
                places[pc] = arguments[one.origin]
            elif (address := self._extents.global_address(one.origin)) is None:
                shared.add(pc)
            elif (buffer := buffers.at(address)) is not None:
                places[pc] = buffer
        written = set()
        for pc, is_generic in self._writers.items():
            if pc in places:
                written.add(places[pc])
            elif not (is_generic and pc in shared):
                return []
        return [pc for pc in self._copies if pc in places and places[pc] not in written]


class _Buffers:
    """The buffers of a launch by address; ``overlap`` if memory of the host belongs to two."""

    def __init__(self, rows: Sequence[Row]):
        self._ranges = sorted((row[0], row[1]) for row in rows)
        hosts = sorted((row[2], row[2] + row[1]) for row in rows)
        self.overlap = any(hosts[at][0] < hosts[at - 1][1] for at in range(1, len(hosts)))

    def at(self, address: int) -> int | None:
        """Return the number of the buffer at an address."""
        number = bisect(self._ranges, (address, 1 << 64)) - 1
        return number if number >= 0 and address - self._ranges[number][0] < self._ranges[number][1] else None
