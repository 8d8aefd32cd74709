"""A tile in shared memory: how many wavefronts its accesses take, and which padding or swizzle takes the fewest.

A swizzle is CuTe's ``Swizzle<B, M, S>``: in the offset of an element, the B bits from bit M + S on are XORed into the
B bits from bit M on. Groups of 2^M elements stay whole, so that a vector of as many is still one access.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from workbench.base.element_types import ELEMENT_TYPES
from workbench.base.tables import Table, Tabular
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ptx.recording import WarpRequest
from workbench.ui.request_state import BANKS, WORD_BYTES, wavefronts_of

if TYPE_CHECKING:
    from workbench.ui.bank_picture import BankMap

_LANES = 32
_MOST_BYTES = 16
"""Bytes of the widest access of a lane."""

Lanes = Callable[[int, int], "tuple[int, int] | None"]
"""Function from a lane and a step to the row and column of the lane's first element, None for a lane that is off."""


class Swizzle(NamedTuple):
    """CuTe's ``Swizzle<bits, base, shift>`` on offsets of elements."""

    bits: int
    base: int
    shift: int

    def of(self, offset: int) -> int:
        """Return the offset at which an element lies."""
        return offset ^ (offset >> self.shift & ((1 << self.bits) - 1) << self.base)

    def __str__(self) -> str:
        return f"Swizzle<{self.bits}, {self.base}, {self.shift}>"


@dataclass(frozen=True)
class SharedLayout:
    """Layout of a tile of ``shape`` elements: row-major with ``pad`` more elements in each row, then a swizzle.

    ``index`` replaces both: a function from row and column to the offset in elements.
    """

    shape: tuple[int, int]
    itemsize: int
    pad: int = 0
    swizzle: Swizzle | None = None
    index: Callable[[int, int], int] | None = None

    def offset(self, row: int, column: int) -> int:
        """Return the offset of an element, in elements."""
        if self.index is not None:
            return self.index(row, column)
        plain = row * (self.shape[1] + self.pad) + column
        return plain if self.swizzle is None else self.swizzle.of(plain)

    @property
    def bytes(self) -> int:
        """Size of the tile."""
        rows, columns = self.shape
        return (1 + max(self.offset(row, column) for row in range(rows) for column in range(columns))) * self.itemsize

    @property
    def formula(self) -> str:
        """The offset of an element in CUDA C++."""
        if self.index is not None:
            return "index(row, column)"
        plain = f"row * {self.shape[1] + self.pad} + column"
        if self.swizzle is None:
            return plain
        bits, base, shift = self.swizzle
        return f"o = {plain}; o ^ ((o >> {shift}) & {((1 << bits) - 1) << base:#x})"

    @property
    def other_names(self) -> str:
        """The swizzle in CuTe's words, and in Triton's where rows are a power of two; "" without one."""
        if self.swizzle is None:
            return ""
        bits, base, shift = self.swizzle
        columns, row_bit = self.shape[1], int(math.log2(self.shape[1]))
        if 1 << row_bit != columns or base + shift < row_bit or base + bits > row_bit:
            return f"CuTe: {self.swizzle}"
        phase = 1 << base + shift - row_bit
        return f"CuTe: {self.swizzle}; Triton: vec={1 << base}, per_phase={phase}, max_phase={1 << bits}"


@dataclass(frozen=True)
class SharedAccess:
    """One instruction that a warp executes in several steps.

    Attributes:
        lanes: function of lane and step; see `Lanes`.
        steps: number of steps, each one request.
        vec: consecutive elements of a row that a lane accesses at once. A row of ``ldmatrix`` is 16 bytes.
        store: True for a store.
    """

    lanes: Lanes
    steps: int = 1
    vec: int = 1
    store: bool = False

    def addresses(self, layout: SharedLayout) -> Iterator[tuple[int | None, ...]]:
        """Yield the byte offset of each lane, for each step."""
        for step in range(self.steps):
            places = [self.lanes(lane, step) for lane in range(_LANES)]
            yield tuple(None if at is None else layout.offset(*at) * layout.itemsize for at in places)


class Remedy(NamedTuple):
    """Another layout of the same tile, with the wavefronts of each access as the PTX machine counts them."""

    layout: SharedLayout
    wavefronts: Mapping[str, int]

    @property
    def name(self) -> str:
        """The change, such as "pad rows by 1" or "Swizzle<5, 0, 5>"."""
        return str(self.layout.swizzle) if self.layout.swizzle else f"pad rows by {self.layout.pad}"


@dataclass(frozen=True)
class SharedLayoutReport(Tabular):
    """Wavefronts of the accesses to a tile, and of the same accesses to other layouts of it.

    Attributes:
        layout: the layout as it was given.
        accesses: the accesses by name.
        wavefronts: for each access, the wavefronts of all steps as the PTX machine counts them.
        ideal: for each access, the fewest that its requests can take.
        remedies: layouts that take fewer, the ones with the fewest wavefronts.
    """

    layout: SharedLayout
    accesses: Mapping[str, SharedAccess]
    wavefronts: Mapping[str, int]
    ideal: Mapping[str, int]
    remedies: tuple[Remedy, ...]

    @property
    def ok(self) -> bool:
        """True if no access has a bank conflict."""
        return dict(self.wavefronts) == dict(self.ideal)

    def bank_map(self, access: str, step: int | None = None, layout: SharedLayout | None = None) -> BankMap:
        """Return the picture of lanes over banks for a step of an access; default: the step with most wavefronts.

        Args:
            access: its name.
            step: number of the step.
            layout: one of the ``remedies``' layouts; default: the layout as it was given.

        Raises:
            UnknownNameError: there is no such access.
        """
        from workbench.ui.bank_picture import bank_map

        if access not in self.accesses:
            raise UnknownNameError("access", repr(access), ", ".join(self.accesses), "Name one of the accesses.")
        requests = list(requests_of(self.layout if layout is None else layout, self.accesses[access], access))
        return bank_map(max(requests, key=lambda one: one.wavefronts) if step is None else requests[step])

    def tables(self) -> list[Table]:
        """Return the wavefronts of each access under the layout as given and under each remedy."""
        rows, columns = self.layout.shape
        names = list(self.accesses)
        head = ("layout", *names, "bytes", "offset of an element")
        given = ("as given", self.wavefronts, self.layout)
        lines = [given, *((one.name, one.wavefronts, one.layout) for one in self.remedies)]
        cells = [
            (name, *(f"{counts[access]}/{self.ideal[access]}" for access in names), f"{layout.bytes:,}", layout.formula)
            for name, counts, layout in lines
        ]
        title = f"{rows} x {columns} elements of {self.layout.itemsize} bytes in shared memory"
        notes = ["Wavefronts of all steps as counted/ideal."]
        if not self.ok and not self.remedies:
            notes.append("No padding and no swizzle takes fewer: change which lane accesses which element.")
        notes += [one.layout.other_names for one in self.remedies if one.layout.other_names]
        return [Table(head, cells, "l" + "r" * (len(names) + 1) + "l", title=title, note="\n".join(notes))]


def shared_layout(
    shape: tuple[int, int],
    dtype: str,
    accesses: Mapping[str, SharedAccess],
    *,
    pad: int = 0,
    swizzle: tuple[int, int, int] | None = None,
    index: Callable[[int, int], int] | None = None,
) -> SharedLayoutReport:
    """Count the wavefronts of accesses to a tile in shared memory, and search for a layout without bank conflicts.

    ::

        report = shared_layout((32, 32), "float32", {
            "store": SharedAccess(lambda lane, step: (step, lane), steps=32, store=True),
            "load": SharedAccess(lambda lane, step: (lane, step), steps=32),
        })
        print(report)              # 32 wavefronts for each load; pad rows by 1, or Swizzle<5, 0, 5>
        report.bank_map("load")    # lanes over banks

    The search tries paddings of up to 128 bytes that keep vectors aligned, and every swizzle within the tile. Every
    count in the report is that of a warp that runs in the PTX machine.

    Args:
        shape: rows and columns of the tile.
        dtype: its elements, such as "float16".
        accesses: the accesses by name.
        pad: elements after each row.
        swizzle: (B, M, S) of CuTe's ``Swizzle<B, M, S>``, on offsets of elements.
        index: function from row and column to the offset in elements, for any other layout.

    Raises:
        UnknownNameError: an unknown dtype.
        ArgumentError: no access; a size, pad, swizzle or vec that cannot be; an access outside the tile.
    """
    if dtype not in ELEMENT_TYPES:
        raise UnknownNameError("dtype", repr(dtype), ", ".join(ELEMENT_TYPES), "Name the elements of the tile.")
    layout = SharedLayout(shape, ELEMENT_TYPES[dtype].bytes, pad, None if swizzle is None else Swizzle(*swizzle), index)
    _check(layout, accesses)
    ideal = {
        name: sum(one.ideal_wavefronts for one in requests_of(layout, access, name))
        for name, access in accesses.items()
    }
    counted = _counted(layout, accesses)
    remedies = () if counted == ideal else tuple(_remedies(layout, accesses, counted, sum(ideal.values())))
    return SharedLayoutReport(layout, dict(accesses), counted, ideal, remedies)


def requests_of(layout: SharedLayout, access: SharedAccess, name: str) -> Iterator[WarpRequest]:
    """Yield the request of each step, with its wavefronts by the rules of the PTX machine."""
    width = access.vec * layout.itemsize
    for step, addresses in enumerate(access.addresses(layout)):
        text = f"{name}, step {step}"
        one = WarpRequest(
            step, 0, 0, 0, text, text, 0, text, 0, "shared", not access.store, access.store, width, addresses,
            None, 0, 0, 0,
        )  # fmt: skip
        fronts = wavefronts_of(one)
        yield replace(one, wavefronts=len(fronts), ideal_wavefronts=len({front.phase for front in fronts}))


def _check(layout: SharedLayout, accesses: Mapping[str, SharedAccess]) -> None:
    rows, columns = layout.shape
    if min(rows, columns) < 1:
        raise ArgumentError("shape", layout.shape, "1 row and column or more", "Give the tile's sizes.")
    if layout.pad < 0:
        raise ArgumentError("pad", layout.pad, "0 or more elements", "Leave it out for rows without padding.")
    if layout.swizzle and (min(layout.swizzle) < 0 or layout.swizzle.bits > layout.swizzle.shift):
        raise ArgumentError("swizzle", layout.swizzle, "(B, M, S) with S >= B", "As CuTe's Swizzle<B, M, S>.")
    if not accesses:
        raise ArgumentError("accesses", "none", "one access or more", "Name each instruction that accesses the tile.")
    for name, access in accesses.items():
        width = access.vec * layout.itemsize
        if access.vec < 1 or width > _MOST_BYTES or width & (width - 1):
            allowed = "1, 2, 4, 8 or 16 bytes"
            raise ArgumentError("vec", f"{access.vec} of {name!r}, {width} bytes", allowed, "Make it a power of two.")
        for step in range(access.steps):
            for lane in range(_LANES):
                at = access.lanes(lane, step)
                if at is not None and not (0 <= at[0] < rows and 0 <= at[1] <= columns - access.vec):
                    got = f"row {at[0]}, column {at[1]} in lane {lane}, step {step} of {name!r}"
                    raise ArgumentError("accesses", got, f"places in {rows} x {columns}", "Change lanes or steps.")
        _check_alignment(layout, name, access)


def _check_alignment(layout: SharedLayout, name: str, access: SharedAccess) -> None:
    width = access.vec * layout.itemsize
    for step, addresses in enumerate(access.addresses(layout)):
        for lane, address in enumerate(addresses):
            if address is not None and address % width:
                got = f"byte {address} in lane {lane}, step {step} of {name!r}"
                raise ArgumentError("vec", got, f"multiples of {width} bytes", "Pad by whole vectors, or access less.")


def _remedies(
    layout: SharedLayout, accesses: Mapping[str, SharedAccess], counted: Mapping[str, int], fewest: int
) -> Iterator[Remedy]:
    """Yield the padding and the swizzle with the fewest wavefronts, where these are fewer than today's."""
    plain = replace(layout, pad=0, swizzle=None, index=None)
    for candidates in (_paddings(plain, accesses), _swizzles(plain, accesses)):
        best, least = None, sum(counted.values())
        for one in candidates:
            if (total := _total(one, accesses, least)) < least:
                best, least = one, total
            if least == fewest:
                break
        if best is not None:
            yield Remedy(best, _counted(best, accesses))


def _paddings(plain: SharedLayout, accesses: Mapping[str, SharedAccess]) -> Iterator[SharedLayout]:
    step = max(access.vec for access in accesses.values())
    if all(plain.shape[1] % access.vec == 0 for access in accesses.values()):
        for pad in range(step, BANKS * WORD_BYTES // plain.itemsize + 1, step):
            yield replace(plain, pad=pad)


def _swizzles(plain: SharedLayout, accesses: Mapping[str, SharedAccess]) -> Iterator[SharedLayout]:
    """Yield swizzles of few bits first, that keep vectors whole and every element within the tile."""
    size = plain.shape[0] * plain.shape[1]
    base = max(access.vec for access in accesses.values()).bit_length() - 1
    for bits in range(1, size.bit_length()):
        for first in range(base, size.bit_length()):
            for shift in range(bits, size.bit_length() - first):
                top = 1 << first + shift + bits
                if top <= size and size % (1 << first + bits) == 0:
                    yield replace(plain, swizzle=Swizzle(bits, first, shift))


def _total(layout: SharedLayout, accesses: Mapping[str, SharedAccess], enough: int) -> int:
    """Return the wavefronts of all accesses, or some number from ``enough`` on if they reach that."""
    total = 0
    for name, access in accesses.items():
        for one in requests_of(layout, access, name):
            total += one.wavefronts
            if total >= enough:
                return total
    return total


def _counted(layout: SharedLayout, accesses: Mapping[str, SharedAccess]) -> dict[str, int]:
    from workbench.ui.tile_layout_run import wavefronts_in_the_machine

    size = layout.bytes
    return {
        name: wavefronts_in_the_machine([*access.addresses(layout)], access.vec * layout.itemsize, access.store, size)
        for name, access in accesses.items()
    }
