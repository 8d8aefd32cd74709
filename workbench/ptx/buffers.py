"""Memory to which the arguments of a launch lead, and the addresses by which a kernel reaches it.

A buffer's virtual address is aligned to 512 bytes, like those of cudaMalloc, and is the same in every run, so that
sectors do not depend on the array's address in the host. Arrays that share storage keep their true distances. Memory
behind stored addresses, in a table or a struct, keeps its address in this process, because the stored words name it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from workbench.errors import ArgumentError
from workbench.ptx.extents import Extent
from workbench.ptx.pointers import (
    Allocation,
    candidates,
    is_tensor,
    lookup,
    may_be_address,
    may_hold_addresses,
    storage_of,
    words_at,
)
from workbench.ptx.signature import ArrayArgument, KernelSignature
from workbench.ptx.tensor_map import TensorMap
from workbench.ptx.tensors import address_of, refuse_without_elements

_BASE, _END = 0x1000_0000_0000, 0x5000_0000_0000  # a range in which a process has no memory of its own
_ALIGNMENT = 512
_SPACE = 1 << 38  # for each allocation, so that a wrong address computed from one lies near it
_NEAR = 1 << 12  # reach, in bytes, of memory that keeps its host address


@dataclass(slots=True)
class Buffer:
    """A range of memory that the kernel may touch.

    Addresses less than ``reach`` away that belong to no buffer were computed from this one. ``made`` returns the kind
    and place of the allocation, as far as they are known. ``element`` is the size of an element if the range is one
    contiguous array, else 0.
    """

    name: str
    address: int
    size: int
    host: int
    writable: bool
    reach: int = _SPACE // 2
    made: Callable[[], str] | None = None
    element: int = 0


Row = tuple[int, int, int, bool, int]
"""(address, bytes, address in this process, writable, address of the marks of its written bytes or 0)."""


@dataclass(slots=True)
class ArrayMemory:
    """Buffers of a launch's arrays by ascending address, and the objects that keep them alive."""

    buffers: Sequence[Buffer]
    rows: list[Row]
    """The buffers in the core's form."""
    owners: Sequence[Any]
    placed: Sequence[tuple[int, int, _View]] = ()
    """(position, address, array) of each argument that is an array."""
    has_variables: bool = False
    of_host: Sequence[tuple[int, int]] = ()
    heap: None = None

    @property
    def extents(self) -> Mapping[int, Extent]:
        """Extents of arguments that share their storage with others, or have gaps between elements, by position."""
        found = {}
        spans = [view.span for _, _, view in self.placed]
        for position, address, view in self.placed:
            span, array = view.span, view.owner
            filled = span_of(array)[2] if is_tensor(array) and not array.is_contiguous() else (0, 0)
            if filled[0] or any(_shares(span, other) for other in spans):
                low = address + span.low - span.pointer
                found[position] = Extent(span.name, low, span.high - span.low, text=described(array), filled=filled)
        return found

    def named(self) -> Sequence[Buffer]:
        """Return the buffers, which have their names already."""
        return self.buffers


class _Span(NamedTuple):
    """Memory of one array in this process, and of the storage that it is a view of."""

    name: str
    pointer: int  # the address passed to the kernel
    low: int  # first byte that may be touched
    high: int
    storage: tuple[int, int]
    writable: bool
    element: int = 0  # its size, in a contiguous array


def _shares(span: _Span, other: _Span) -> bool:
    """Return True for another part of the same storage."""
    overlap = other.storage[0] < span.storage[1] and span.storage[0] < other.storage[1]
    return overlap and (other.low, other.high) != (span.low, span.high)


@dataclass(slots=True)
class _View:
    """An array with its span."""

    span: _Span
    owner: Any


def _view(name: str, array: Any) -> _View:
    if isinstance(array, np.ndarray):
        pointer, size, base = array.__array_interface__["data"][0], array.nbytes, array.base
        writable = array.flags.writeable
        if not size or not array.flags.c_contiguous:
            low, high = np.lib.array_utils.byte_bounds(array) if size else (pointer, pointer)
            return _View(_Span(name, pointer, low, high, storage_of(array), writable), array)
        storage = (pointer, pointer + size) if base is None else storage_of(array)
        return _View(_Span(name, pointer, pointer, pointer + size, storage, writable, array.itemsize), array)
    if not is_tensor(array):
        raise ArgumentError(name, type(array).__name__, "a torch tensor or a NumPy array", "Convert it to one.")
    if array.device.type != "cpu":
        remedy = 'Use .cpu(), or device="cuda".'
        raise ArgumentError(name, f"a tensor on {array.device}", "tensors on the cpu, in host memory", remedy)
    pointer, size, count = address_of(name, array), array.element_size(), array.numel()
    apart = bool(count) and not array.is_contiguous()
    if apart:
        count = 1 + sum((n - 1) * step for n, step in zip(array.shape, array.stride(), strict=True))
    storage = storage_of(array)
    if pointer + count * size > storage[1] and count:
        refuse_without_elements(name, array)
    return _View(_Span(name, pointer, pointer, pointer + count * size, storage, True, 0 if apart else size), array)


def _offsets(spans: Sequence[_Span], pinned: Sequence[tuple[int, int]], base: int) -> dict[int, int]:
    """Return virtual minus host address for every storage, by the host address of its start.

    Storages that overlap count as one; a storage that overlaps with a ``pinned`` one keeps its address.
    """
    merged: list[list[int]] = []
    order: dict[int, int] = {}
    for rank, span in enumerate(spans):
        order.setdefault(span.storage[0], rank)
    for low, high in sorted({span.storage for span in spans}):
        if merged and low < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
            merged[-1][2] = min(merged[-1][2], order[low])
        else:
            merged.append([low, high, order[low]])
    offsets: dict[int, int] = {}
    address = base
    space = min(_SPACE, (_END - _BASE) // max(len(merged), 1) // _ALIGNMENT * _ALIGNMENT)
    for low, high, _ in sorted(merged, key=lambda region: region[2]):
        # Host allocations are aligned to 16 bytes or more; what is left of a vector's alignment must survive.
        stays = any(start < high and low < end for start, end in pinned)
        for span in spans:
            if low <= span.storage[0] < max(high, low + 1):
                offsets[span.storage[0]] = 0 if stays else address - low
        address += max(space, (high - low + space // 2 + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT)
    return offsets


@functools.lru_cache(maxsize=64)
def _laid_out(
    spans: tuple[_Span, ...], pinned: tuple[tuple[int, int], ...], base: int
) -> tuple[tuple[int, ...], list[Buffer], list[Row]]:
    """Return the kernel's address of each span, the buffers, and their rows. The cache serves repeated launches."""
    offsets = _offsets(spans, pinned, base)
    buffers: list[Buffer] = []
    for span in sorted(spans, key=lambda one: (one.low + offsets[one.storage[0]], one.high)):
        address, size = span.low + offsets[span.storage[0]], span.high - span.low
        if buffers and address < buffers[-1].address + buffers[-1].size:
            last = buffers[-1]
            last.size = max(last.size, address + size - last.address)
            last.writable |= span.writable
            last.element = 0
            if span.name not in last.name.split("/"):
                last.name += f"/{span.name}"
        else:
            reach = _SPACE // 2 if offsets[span.storage[0]] else _NEAR
            buffers.append(Buffer(span.name, address, size, span.low, span.writable, reach, element=span.element))
    rows = [(one.address, one.size, one.host, one.writable, 0) for one in buffers]
    return tuple(span.pointer + offsets[span.storage[0]] for span in spans), buffers, rows


def place(
    signature: KernelSignature,
    fields: list[Any],
    arrays: Sequence[ArrayArgument],
    follow_addresses: bool,
    first_address: int | None = None,
) -> ArrayMemory:
    """Write the address of each array, and the bytes of tensor maps, into the ``fields``; return the memory there.

    With ``follow_addresses``, addresses of live tensors and arrays that are stored in numbers, structs, or arrays of
    64-bit integers or structs add that memory too. ``first_address`` is as in `LaunchOptions`. Raises ArgumentError for
    a tensor that is not on the CPU.
    """
    views: list[_View] = []
    may_lead: list[_View] = []
    for rule, value in arrays:
        try:
            views.append(view := _view(f"argument {rule.position}", value))
        except ArgumentError as error:
            raise ArgumentError(rule.where, error.got, error.allowed, error.remedy) from None
        fields[rule.position] = None  # until it is placed
        if may_hold_addresses(value, view.span.high - view.span.low):
            may_lead.append(view)
    pinned: list[Allocation] = []
    values: list[tuple[str, bytes]] = []
    for at in signature.wide:
        value = fields[at]
        if not value:
            continue
        if isinstance(value, TensorMap):
            fields[at] = bytes(value)
            if _has_tensor(value):
                pinned.append(_mapped(f"argument {at}", value, views))
                continue
        content = fields[at]
        if content.__class__ is bytes:
            values.append((f"argument {at}", content))
        elif may_be_address(content):
            values.append((f"argument {at}", content.to_bytes(8, "little")))
    if follow_addresses and (values or may_lead):
        pinned += _stored(views, values)
    spans = tuple([view.span for view in views])
    addresses, buffers, rows = _laid_out(
        spans, tuple([(one.start, one.end) for one in pinned]), _BASE if first_address is None else first_address
    )
    for (rule, _), address in zip(arrays, addresses, strict=False):
        fields[rule.position] = address
    placed = list(zip([rule.position for rule, _ in arrays], addresses, views, strict=False))
    return ArrayMemory(buffers, rows, [view.owner for view in views[len(arrays) :]], placed)


def span_of(tensor: Any) -> tuple[int, int, tuple[int, int]]:
    """Return the begin and end of a tensor's elements, and the part of each period that they fill (`Extent.filled`)."""
    pointer, size = tensor.data_ptr(), tensor.element_size()
    dims = [(n, step) for n, step in zip(tensor.shape, tensor.stride(), strict=True) if n != 1 and step]
    if not tensor.numel():
        return pointer, pointer, (0, 0)
    filled = 1
    for n, step in sorted(dims, key=lambda dim: dim[1]):
        if step > filled and filled > 0:  # the first gap; what lies further out repeats it if it fits
            outer = [further for _, further in dims if further >= step]
            period = (step * size, filled * size) if all(further % step == 0 for further in outer) else (0, 0)
            return pointer, _end(pointer, size, dims), period
        filled += (n - 1) * step
    return pointer, _end(pointer, size, dims), (0, 0)


def _end(pointer: int, size: int, dims: Sequence[tuple[int, int]]) -> int:
    return pointer + size * (1 + sum((n - 1) * step for n, step in dims))


def described(array: Any) -> str:
    """Return the shape of a tensor or array, and its strides where they are not those of a whole one."""
    shape = tuple(map(int, array.shape))
    whole = array.is_contiguous() if is_tensor(array) else array.flags.c_contiguous
    if whole:
        return f", of shape {shape}"
    if is_tensor(array):
        return f", a view of shape {shape} with strides {tuple(map(int, array.stride()))}"
    return f", a view of shape {shape} with strides {array.strides} in bytes"


def _size(view: _View) -> int:
    return view.span.high - view.span.low


def made_of(value: Any) -> str:
    """Return dtype and shape of a tensor or an array, "float32 (2, 3)"; "" for any other value."""
    if not is_tensor(value) and not isinstance(value, np.ndarray):
        return ""
    return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"


def stored(args: Any) -> list[Any]:
    """Return the tensors and arrays to which addresses and tensor maps in ``args`` lead, and which are no arguments."""
    views = [_view("", one) for one in args if is_tensor(one) or isinstance(one, np.ndarray)]
    values = [("", bytes(value)) for value in args if isinstance(value, bytes | bytearray | memoryview)]
    values += [("", int(value).to_bytes(8, "little")) for value in args if isinstance(value, int) and value >> 40 > 0]
    given = len(views)
    for value in args:
        if _has_tensor(value):
            _mapped("", value, views)
    _stored(views, values)
    return [view.owner for view in views[given:]]


def _has_tensor(value: Any) -> bool:
    """Return True for a tensor map that keeps its tensor, so that no search for its memory is needed."""
    return isinstance(value, TensorMap) and (is_tensor(value.owner) or isinstance(value.owner, np.ndarray))


def _mapped(name: str, tensor_map: TensorMap, views: list[_View]) -> Allocation:
    """Return the allocation of a tensor map's tensor; add a view of it to ``views`` if it has none."""
    start, end = storage_of(tensor_map.owner)
    if not any(view.span.low <= tensor_map.address < view.span.high for view in views):
        views.append(_View(_Span(name, start, start, end, (start, end), True), tensor_map.owner))
    return Allocation(start, end, tensor_map.owner, "")


def _stored(views: list[_View], values: list[tuple[str, bytes]]) -> list[Allocation]:
    """Return the allocations that stored addresses lead to; add a view to ``views`` for each that has none."""
    found: dict[int, Allocation] = {}
    waiting: list[tuple[str, str, np.ndarray]] = []
    for name, content in values:
        words = np.frombuffer(content[: len(content) // 8 * 8], np.uint64)
        waiting.append((name, "", words) if len(words) == 1 else (name, "at byte", words))

    def look_into(view: _View) -> None:
        if may_hold_addresses(view.owner, _size(view)):
            raw = view.owner.dtype.itemsize != 8 or getattr(view.owner.dtype, "names", None)
            waiting.append((view.span.name, "at byte" if raw else "[]", words_at(view.span.low, _size(view))))

    for view in views:
        look_into(view)
    while waiting:
        name, kind, words = waiting.pop(0)
        places = candidates(words)
        led = lookup(address for _, address in places) if places else {}
        for position, address in places:
            one = led.get(address)
            if one is None:
                continue
            found[one.start] = one
            if any(view.span.low <= address < view.span.high for view in views):
                continue
            at = {"": "", "[]": f"[{position}]", "at byte": f" at byte {8 * position}"}[kind]
            writable = getattr(getattr(one.owner, "flags", None), "writeable", True)
            span = _Span(name + at, one.start, one.start, one.end, (one.start, one.end), writable)
            views.append(_View(span, one.owner))
            look_into(views[-1])
    return list(found.values())
