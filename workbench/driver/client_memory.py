"""Memory of the driver's clients: its names in findings, and reads by the host of memory that was never written."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from workbench.analysis.places import HostPlace, source_text
from workbench.driver.argument_names import SCRATCH, names_of
from workbench.driver.host_places import native_place, python_place, return_addresses
from workbench.errors import HostCallFault
from workbench.ptx.buffers import Buffer, Row
from workbench.ptx.decode import readable
from workbench.ptx.report import Finding
from workbench.ptx.tensor_map import TENSOR_MAP_BYTES

if TYPE_CHECKING:
    from workbench.ptx import LaunchReport, PtxKernel
    from workbench.ptx.device_heap import DeviceHeap
    from workbench.ptx.extents import Extent

HOST_READ = "uninitialised read by the host"
_Value = TypeVar("_Value")
_u32, _u64 = ctypes.c_uint32, ctypes.c_uint64
_WORD = 8
_MOST_NOTES = 4096
# Bytes that nothing writes between the members of structs: shorter runs than this, one in so many bytes or more.
_LONGEST_PADDING, _STRUCT = 16, 256


class HookMemory(ctypes.Structure):
    """Memory that a client allocated, with numbers for its origin and for launches that took and wrote it."""

    _fields_ = (
        ("address", _u64), ("bytes", _u64), ("made", _u64), ("used", _u64), ("wrote", _u64), ("freed", _u32),
        ("copied", _u32), ("unwritten", _u64), ("first", _u64), ("runs", _u64), ("longest", _u64),
    )  # fmt: skip


class HookRead(ctypes.Structure):
    """A read by the host of memory that was never written, in elements of ``element`` bytes."""

    _fields_ = (
        ("reader", ctypes.c_char_p), ("element", _u32), ("address", _u64), ("total", _u64), ("unwritten", _u64),
        ("runs", _u64), ("longest", _u64), ("frames", ctypes.c_void_p), ("frame_count", _u32),
    )  # fmt: skip


class _Origin(NamedTuple):
    """The dtype and shape that torch allocated, if it was torch, and the line of Python or the calls that did."""

    tensor: str
    element: int
    place: HostPlace | tuple[int, ...]

    def __str__(self) -> str:
        place = self.place if isinstance(self.place, HostPlace) else native_place(self.place)
        return ", ".join([*([self.tensor] if self.tensor else []), *([f"allocated at {place}"] if place else [])])


class _Use(NamedTuple):
    """A launch that has memory as an argument."""

    kernel: str
    argument: str
    place: HostPlace | None

    def __str__(self) -> str:
        return self.kernel + (f", launched at {self.place}," if self.place else "")


class _Numbers(list[_Value]):
    """Values by their numbers, each kept once."""

    def __init__(self, first: _Value):
        super().__init__([first])
        self._numbers = {first: 0}

    def number(self, value: _Value) -> int:
        """Return the number of a value."""
        found = self._numbers.setdefault(value, len(self))
        if found == len(self):
            self.append(value)
        return found


_NO_ORIGIN, _NO_USE = _Origin("", 1, ()), _Use("", "", None)


@dataclass
class LaunchMemory:
    """Allocations that a launch of a ``kernel`` with these packed ``parameters`` may touch."""

    rows: list[Row]
    heap: DeviceHeap | None
    kernel: PtxKernel
    parameters: bytes
    records: MemoryRecords
    extents: Mapping[int, Extent]
    """Extents of the arguments that are views, by position."""
    of_host: Sequence[tuple[int, int]]
    has_variables: bool = True

    def named(self) -> list[Buffer]:
        """Return the allocations as buffers, named by the arguments that lead to them."""
        return [
            Buffer(
                "/".join(self.arguments[at]) if at in self.arguments else f"the allocation at {hex(row[0])}",
                *row[:4],
                made=partial(self.records.made, row[0]),
            )
            for at, row in enumerate(self.rows)
        ]

    @cached_property
    def arguments(self) -> dict[int, list[str]]:
        """Names of the arguments that hold an address, by the index of the row that it lies in."""
        found: dict[int, list[str]] = {}
        begins = [row[0] for row in self.rows]
        for name, address in self._addresses():
            at = bisect_right(begins, address) - 1
            if at >= 0 and address < self.rows[at][0] + self.rows[at][1] and name not in found.setdefault(at, []):
                found[at].append(name)
        return {at: names for at, names in found.items() if names}

    def _addresses(self) -> Iterator[tuple[str, int]]:
        """Yield (name, word) for each word of the parameters; a struct's words are named by their bytes."""
        for name, parameter in zip(names_of(self.kernel), self.kernel.parameters, strict=True):
            content = self.parameters[parameter.offset : parameter.offset + parameter.size // _WORD * _WORD]
            whole = parameter.size in (_WORD, TENSOR_MAP_BYTES)
            for number, word in enumerate(np.frombuffer(content, np.uint64).tolist()):
                yield name if whole else f"{name} at byte {_WORD * number}", word


class MemoryRecords:
    """Origins of memory, and the launches that had it as an argument, by the numbers that the library keeps.

    ``notes`` are on reads by the host that may be intended.
    """

    def __init__(self, library: ctypes.CDLL):
        self._library = library
        library.workbench_driver_memory.argtypes = [_u64, ctypes.POINTER(HookMemory)]
        for function in (library.workbench_driver_used, library.workbench_driver_wrote):
            function.restype = None
        library.workbench_driver_used.argtypes, library.workbench_driver_wrote.argtypes = [_u64, _u64], [_u64]
        library.workbench_driver_partly_written.restype = _u64
        library.workbench_driver_partly_written.argtypes = [ctypes.POINTER(HookMemory), _u64]
        self._origins, self._uses = _Numbers(_NO_ORIGIN), _Numbers(_NO_USE)
        self.notes: dict[str, None] = {}

    def origin(self, tensor: bytes | None, element: int, frames: Any, count: int, number: Any) -> None:
        """Write the number of the current place, at which memory is allocated."""
        place = python_place() or tuple(return_addresses(frames, count))
        number[0] = self._origins.number(_Origin((tensor or b"").decode(), element, place))

    def use(self, memory: LaunchMemory, place: HostPlace | None) -> None:
        """Record that a launch at a line of the host has its arguments' memory."""
        kernel = readable(memory.kernel.name)
        for at, names in memory.arguments.items():
            number = self._uses.number(_Use(kernel, "/".join(names), place))
            self._library.workbench_driver_used(memory.rows[at][0], number)

    def wrote(self, report: LaunchReport) -> None:
        """Record the memory that the latest launch wrote and that was unwritten before."""
        for address in report.first_written:
            self._library.workbench_driver_wrote(address)

    def made(self, address: int) -> str:
        """Return the kind of memory allocated at an address, and the place; "" if unknown."""
        memory = self._memory(address)
        return str(self._origin_of(memory)) if memory is not None else ""

    def host_read(self, told: HookRead) -> HostCallFault | None:
        """Return the finding on a read by the host of unwritten memory; None if it may be intended."""
        memory = self._memory(told.address)
        if memory is None:
            return None
        origin, use = self._origin_of(memory), self._uses[memory.used]
        element = told.element if told.element > 1 else origin.element
        frames = tuple(return_addresses(told.frames, told.frame_count))
        place = python_place() or native_place(frames)
        scale = element // told.element
        count, total = -(-told.unwritten // scale), told.total // scale
        name = f"a copy of {use.argument}" if memory.copied else use.argument or "an allocation"
        text = f"{told.reader.decode()} reads {_amount(count, element, origin)} of {name} that nothing has written"
        text += (
            f", of {total:,} that it reads, the first of them {_index(told.address - memory.address, element, origin)}"
        )
        if use.argument:
            text += f"; {use} had {use.argument} as an argument and left them unwritten"
        if made := str(origin):
            text += f"; {name}: {made}"
        padding = not origin.tensor and 0 < told.longest < _LONGEST_PADDING and told.total // told.runs <= _STRUCT
        if not use.argument or padding:
            text += ". Perhaps it is the padding of structs" if padding else ""
            self._note(f"{place}: {text}" if place else text)
            return None
        message = f"{HOST_READ}: {text}"
        file, line = ("", None) if place is None else (place.file, place.line)
        finding = Finding(
            HOST_READ, message, use.kernel, block=(0, 0, 0), thread=(0, 0, 0), address=told.address, buffer=name,
            line=line, source=file, other_line=None, other_source="", ptx_line=0, other_ptx_line=None, count=1,
        )  # fmt: skip
        if place is None:
            return HostCallFault(message, finding)
        shown = source_text(place.file, place.line, nowhere="").strip()
        return HostCallFault(f"{place}: {message}" + (f"\n      {place}  {shown}" if shown else ""), finding)

    def partly_written(self) -> list[str]:
        """Return a note for each argument that launches wrote in part and that was not completed since."""
        found = (HookMemory * _MOST_NOTES)()
        for memory in found[: self._library.workbench_driver_partly_written(found, _MOST_NOTES)]:
            origin, use = self._origin_of(memory), self._uses[memory.wrote]
            padding = not origin.tensor and memory.longest < _LONGEST_PADDING
            if use.argument == SCRATCH or (padding and memory.bytes // memory.runs <= _STRUCT):
                continue
            made = f"; {use.argument}: {origin}" if str(origin) else ""
            self._note(
                f"{use} leaves {_amount(-(-memory.unwritten // origin.element), origin.element, origin)} of "
                f"{use.argument} unwritten, of {memory.bytes // origin.element:,}, the first of them "
                f"{_index(memory.first, origin.element, origin)}{made}"
            )
        return list(self.notes)

    def _note(self, text: str) -> None:
        if len(self.notes) < _MOST_NOTES:
            self.notes[text] = None

    def _memory(self, address: int) -> HookMemory | None:
        memory = HookMemory()
        return memory if self._library.workbench_driver_memory(address, memory) else None

    def _origin_of(self, memory: HookMemory) -> _Origin:
        return self._origins[memory.made]


def _amount(count: int, element: int, origin: _Origin) -> str:
    unit = "element" if element > 1 or origin.tensor else "byte"
    return f"{count:,} {unit}{'s' * (count != 1)}"


def _index(offset: int, element: int, origin: _Origin) -> str:
    return f"{'element' if element > 1 or origin.tensor else 'byte'} {offset // element:,}"
