"""Addresses that are stored in memory: finds the tensors and arrays of this process at these addresses.

A table of ``data_ptr()`` values, or a struct of pointers by value, leads to memory that is not an argument itself. Such
words are looked up among the live tensors and arrays, each of which is an allocation with bounds of its own.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import inspect
import sys
import weakref
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

# np.unique imports it when it is called first. A process that forks meanwhile has a child in which that import never
# ends: a launch imports nothing.
import numpy.ma

_LOWEST, _HIGHEST = 0x5000_0000_0000, 1 << 47  # range in which Linux puts the mappings of a 64-bit process
_MOST_RAW_BYTES = 1 << 20  # largest array of plain bytes that is searched for addresses


class Allocation(NamedTuple):
    """Memory [``start``, ``end``) of this process. ``owner`` is a tensor or array over it, which ``text`` describes."""

    start: int
    end: int
    owner: Any
    text: str


def is_tensor(value: Any) -> bool:
    """Return True if ``value`` is a torch tensor."""
    return hasattr(value, "data_ptr") and hasattr(value, "untyped_storage")


def storage_of(value: Any) -> tuple[int, int]:
    """Return start and end of a tensor's or array's memory; for a view, those of the whole."""
    if is_tensor(value):
        storage = value.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    low, high = np.lib.array_utils.byte_bounds(value) if value.size else (value.ctypes.data, value.ctypes.data)
    base = value
    while isinstance(base.base, np.ndarray):
        base = base.base
    bounds = np.lib.array_utils.byte_bounds(base) if base.size else (low, high)
    return min(low, bounds[0]), max(high, bounds[1])


def may_hold_addresses(value: Any, size: int) -> bool:
    """Return True for a tensor or array of 64-bit integers, of structs, or of plain bytes if ``size`` is small."""
    kind = str(value.dtype).removeprefix("torch.")
    if isinstance(value, np.ndarray) and value.dtype.kind == "V":
        return not value.dtype.hasobject
    return kind in ("int64", "uint64") or (kind in ("uint8", "int8") and size <= _MOST_RAW_BYTES)


def words_at(address: int, size: int) -> np.ndarray:
    """Return the aligned 64-bit words within ``size`` bytes of this process' memory."""
    skipped = -address % 8
    count = max(size - skipped, 0) // 8
    content = (ctypes.c_char * (8 * count)).from_address(address + skipped)
    return np.frombuffer(memoryview(content), np.uint64)


def may_be_address(word: int) -> bool:
    """Return True if a number may be an address of this process."""
    return _LOWEST <= word < _HIGHEST or _heap_start() <= word < _LOWEST


def candidates(words: np.ndarray) -> list[tuple[int, int]]:
    """Return (position, address) of the words that may be addresses of this process, each address once."""
    low, high = _heap()
    if not words.size or int(words.max()) < min(low, _LOWEST):
        return []
    found = np.flatnonzero(((words >= _LOWEST) & (words < _HIGHEST)) | ((words >= low) & (words < high)))
    addresses, first = np.unique(words[found], return_index=True)
    return sorted((int(found[at]), int(address)) for address, at in zip(addresses, first, strict=True))


def _regions() -> list[tuple[int, int, str]]:
    """Return (start, end, name) of the process' mappings, by ascending address."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    rows = [line.split() for line in lines]
    bounds = [row[0].split("-") for row in rows]
    return [(int(low, 16), int(high, 16), row[-1]) for row, (low, high) in zip(rows, bounds, strict=True)]


def _is_mapped(addresses: list[int]) -> bool:
    """Return True if there is memory at any of the addresses."""
    regions = _regions()
    starts = [region[0] for region in regions]
    places = [bisect_right(starts, address) for address in addresses]
    return any(at and address < regions[at - 1][1] for address, at in zip(addresses, places, strict=True))


@functools.cache
def _heap_start() -> int:
    """Return the start of the heap, far below all else unless the interpreter is position-independent."""
    return min((start for start, _, name in _regions() if name == "[heap]"), default=_LOWEST)


def _heap() -> tuple[int, int]:
    start = _heap_start()
    if start >= _LOWEST:
        return _LOWEST, _LOWEST
    sbrk = ctypes.CDLL(None).sbrk
    sbrk.restype = ctypes.c_uint64
    return start, sbrk(0)


_Seen = tuple[int, int, "weakref.ref[Any]", str]
"""(start, end, owner, description) of an allocation."""


class _Known:
    """Allocations seen so far, by ascending address."""

    def __init__(self) -> None:
        self._rows: list[_Seen] = []

    def find(self, address: int) -> Allocation | None:
        """Return the live allocation that holds an address."""
        row = self._row(address)
        if row is None:
            return None
        start, end, reference, kind = row
        owner = reference()
        return None if owner is None or storage_of(owner) != (start, end) else Allocation(start, end, owner, kind)

    def freed(self, address: int) -> str | None:
        """Describe the freed allocation that held an address, or return None."""
        row = self._row(address)
        return row[3] if row and self.find(address) is None else None

    def scan(self) -> None:
        """Find all live tensors and arrays; keep earlier ones whose memory no new one has taken."""
        found: dict[int, _Seen] = {}
        for owner in _arrays():
            start, end = storage_of(owner)
            if end > start and (start not in found or found[start][1] < end):
                kind = str(owner.dtype).removeprefix("torch.")
                text = f"{kind} {list(owner.shape)}"
                found[start] = (start, end, weakref.ref(owner), text)
        ends = sorted((row[0], row[1]) for row in found.values())
        starts = [start for start, _ in ends]

        def taken(row: _Seen) -> bool:
            at = bisect_right(starts, row[1] - 1)
            return at > 0 and ends[at - 1][1] > row[0]

        gone = [row for row in self._rows if not taken(row)]
        self._rows = sorted([*found.values(), *gone], key=lambda row: row[0])

    def _row(self, address: int) -> _Seen | None:
        at = bisect_right(self._rows, address, key=lambda row: row[0])
        return self._rows[at - 1] if at and address < self._rows[at - 1][1] else None


_KNOWN = _Known()


def lookup(addresses: Iterable[int]) -> dict[int, Allocation]:
    """Return the live allocation of each address that has one.

    The objects of the process are scanned only for an address that is not known yet and that has memory behind it.
    """
    wanted = list(addresses)
    found = {address: _KNOWN.find(address) for address in wanted}
    unknown = [address for address, one in found.items() if one is None]
    if unknown and _is_mapped(unknown):
        _KNOWN.scan()
        found = {address: _KNOWN.find(address) for address in wanted}
    return {address: one for address, one in found.items() if one is not None}


def _arrays() -> list[Any]:
    """Return all live tensors and arrays that have memory of their own on this machine."""
    torch = sys.modules.get("torch")
    bases = (np.ndarray,) if torch is None else (np.ndarray, torch.Tensor)
    strided = getattr(torch, "strided", None)
    tracked = gc.get_objects()
    reached = gc.get_referents(*tracked)  # the collector does not track NumPy arrays, only their holders
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        local = frame.f_locals
        reached += local.values()
        if type(local) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            local.clear()  # a copy of the frame's variables, which would keep them alive
        frame = frame.f_back
    kinds = {kind for kind in {*map(type, reached), *map(type, tracked)} if issubclass(kind, bases)}
    found = []
    for value in {id(value): value for value in (*tracked, *reached) if type(value) in kinds}.values():
        try:
            if isinstance(value, np.ndarray):
                usable = value.dtype.kind != "O"
            else:
                usable = value.device.type == "cpu" and value.layout is strided
            # A fake tensor says that it is on the CPU; its memory begins at 0, and may have a symbol for its end.
            if usable and all(type(place) is int and place for place in storage_of(value)):
                found.append(value)
        except (RuntimeError, NotImplementedError):
            continue  # a tensor without memory: fake, meta, wrapped
    return found


def looks_like(address: int) -> str:
    """Describe the memory at an address that belongs to no argument of the launch."""
    low, high = _heap()
    if not (_LOWEST <= address < _HIGHEST or low <= address < high):
        return "no address of this process"
    found = _KNOWN.find(address)
    if found is not None:
        return f"byte {address - found.start} of a {found.text} in host memory, to which no argument leads"
    if (text := _KNOWN.freed(address)) is not None:
        return f"memory of a {text} that has been freed"
    for low, high, _ in _regions():
        if low <= address < high:
            return "host memory that no live tensor or array owns: it was freed, or never belonged to one"
    return "no memory of this process: a wrongly computed address, or one from an earlier launch"
