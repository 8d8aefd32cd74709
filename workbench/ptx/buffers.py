"""Arguments of a launch: parameter bytes, and the buffers that pointers lead to.

A buffer's virtual address is aligned to 512 bytes, as cudaMalloc's are, and is the same in every run, so that sectors
do not depend on where the host put the array. Arrays that share storage keep their true distances. Memory that stored
addresses lead to, from a table or a struct, keeps its address in this process, which the stored words name.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.errors import ArgumentError
from workbench.ptx.parse import Parameter
from workbench.ptx.pointers import (
    Allocation,
    candidates,
    is_tensor,
    lookup,
    may_hold_addresses,
    storage_of,
    words_at,
)
from workbench.ptx.tensor_map import TensorMap

_BASE, _END = 0x1000_0000_0000, 0x5000_0000_0000  # a range in which a process has no memory of its own
_ALIGNMENT = 512
_SPACE = 1 << 38  # for each allocation, so that a wrong address computed from one lies near it
_NEAR = 1 << 12  # reach, in bytes, of memory that keeps its host address


@dataclass(slots=True)
class Buffer:
    """A range of memory that the kernel may touch.

    ``address`` is virtual, ``host`` the pointer on this machine; sizes are in bytes. Addresses less than ``reach`` away
    that belong to no buffer count as computed from this one. ``owner`` keeps the memory alive.
    """

    name: str
    address: int
    size: int
    host: int
    writable: bool
    reach: int = _SPACE // 2
    owner: Any = None


@dataclass(slots=True)
class _View:
    name: str
    pointer: int  # the address passed to the kernel
    low: int  # first byte that may be touched
    high: int
    storage: tuple[int, int]
    writable: bool
    owner: Any


def _tensor_view(name: str, tensor: Any) -> _View:
    if tensor.device.type != "cpu":
        raise ArgumentError(name, f"a tensor on {tensor.device}", "tensors in host memory", "Move it with .cpu().")
    size, pointer, storage = tensor.element_size(), tensor.data_ptr(), storage_of(tensor)
    extent = sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else -1
    return _View(name, pointer, pointer, pointer + (extent + 1) * size, storage, True, tensor)


def _array_view(name: str, array: np.ndarray) -> _View:
    low, high = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)
    return _View(name, array.ctypes.data, low, high, storage_of(array), array.flags.writeable, array)


def _place(views: list[_View], pinned: list[Allocation]) -> dict[int, int]:
    """Return virtual minus host address for every storage, by the host address of its start.

    Storages that overlap are one; a storage that overlaps with a ``pinned`` one keeps its address.
    """
    merged: list[list[int]] = []
    order: dict[int, int] = {}
    for rank, view in enumerate(views):
        order.setdefault(view.storage[0], rank)
    for low, high in sorted({view.storage for view in views}):
        if merged and low < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
            merged[-1][2] = min(merged[-1][2], order[low])
        else:
            merged.append([low, high, order[low]])
    offsets: dict[int, int] = {}
    address = _BASE
    space = min(_SPACE, (_END - _BASE) // max(len(merged), 1) // _ALIGNMENT * _ALIGNMENT)
    for low, high, _ in sorted(merged, key=lambda region: region[2]):
        # Host allocations are aligned to 16 bytes or more; a view's own offset must keep its alignment for vectors.
        stays = any(one.start < high and low < one.end for one in pinned)
        for view in views:
            if low <= view.storage[0] < max(high, low + 1):
                offsets[view.storage[0]] = 0 if stays else address - low
        address += max(space, (high - low + space // 2 + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT)
    return offsets


def _merge(views: list[_View], offsets: dict[int, int]) -> list[Buffer]:
    buffers: list[Buffer] = []
    for view in sorted(views, key=lambda v: (v.low + offsets[v.storage[0]], v.high)):
        address, size = view.low + offsets[view.storage[0]], view.high - view.low
        if buffers and address < buffers[-1].address + buffers[-1].size:
            last = buffers[-1]
            last.size = max(last.size, address + size - last.address)
            last.writable |= view.writable
            if view.name not in last.name.split("/"):
                last.name += f"/{view.name}"
        else:
            reach = _SPACE // 2 if offsets[view.storage[0]] else _NEAR
            buffers.append(Buffer(view.name, address, size, view.low, view.writable, reach, view.owner))
    return buffers


def pack(
    kernel: str, parameters: tuple[Parameter, ...], args: Any, follow_addresses: bool = True
) -> tuple[bytes, list[Buffer]]:
    """Return the parameter space of a launch and its buffers, sorted by address.

    In ``args``, torch tensors and NumPy arrays become pointers, None a null pointer, numbers are converted to the
    parameter's type, and bytes and record arrays of one element fill a by-value struct. If ``follow_addresses``,
    addresses of live tensors and arrays are looked up in numbers, structs, and arrays of 64-bit integers or structs;
    their memory becomes buffers, too. Raises ArgumentError naming the parameter.
    """
    if len(args) != len(parameters):
        names = ", ".join(f"{p.name} (.{p.type})" for p in parameters)
        raise ArgumentError(
            "args", f"{len(args)} arguments", f"{len(parameters)}: {names}", f"Pass one for each parameter of {kernel}."
        )
    views: list[tuple[int, _View]] = []
    for i, (value, parameter) in enumerate(zip(args, parameters, strict=True)):
        name = f"argument {i}"
        if is_tensor(value):
            views.append((i, _tensor_view(name, value)))
        elif isinstance(value, np.ndarray) and not _is_struct(value, parameter):
            views.append((i, _array_view(name, value)))
        else:
            continue
        if parameter.size != 8:
            raise ArgumentError(name, "an array", f"a .{parameter.type} value", "Only 64-bit parameters take pointers.")
    placed = [view for _, view in views]
    raw = bytearray(
        max(sum(p.size for p in parameters), *(p.offset + p.size for p in parameters), 0) if parameters else 0
    )
    pointers = dict(views)
    pinned: list[Allocation] = []
    values: list[tuple[str, bytes]] = []
    for i, (value, parameter) in enumerate(zip(args, parameters, strict=True)):
        if i in pointers:
            continue
        name, end = f"argument {i}", parameter.offset + parameter.size
        raw[parameter.offset : end] = content = _scalar(name, value, parameter)
        if _has_tensor(value):
            pinned.append(_mapped(name, value, placed))
        elif parameter.size >= 8 and value is not None:
            values.append((name, content))
    if follow_addresses:
        pinned += _stored(placed, values)
    offsets = _place(placed, pinned)
    for i, view in pointers.items():
        offset = parameters[i].offset
        raw[offset : offset + 8] = struct.pack("<Q", view.pointer + offsets[view.storage[0]])
    return bytes(raw), _merge(placed, offsets)


def stored(args: Any) -> list[Any]:
    """Return the tensors and arrays that addresses and tensor maps in ``args`` lead to and that are no arguments."""
    arrays = [value for value in args if is_tensor(value) or isinstance(value, np.ndarray)]
    views = [_tensor_view("", one) if is_tensor(one) else _array_view("", one) for one in arrays]
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
    if not any(view.low <= tensor_map.address < view.high for view in views):
        views.append(_View(name, start, start, end, (start, end), True, tensor_map.owner))
    return Allocation(start, end, tensor_map.owner, "")


def _stored(views: list[_View], values: list[tuple[str, bytes]]) -> list[Allocation]:
    """Return the allocations that stored addresses lead to; add a view to ``views`` for each that has none."""
    found: dict[int, Allocation] = {}
    waiting: list[tuple[str, str, np.ndarray]] = []
    for name, content in values:
        words = np.frombuffer(content[: len(content) // 8 * 8], np.uint64)
        waiting.append((name, "", words) if len(words) == 1 else (name, "at byte", words))

    def look_into(view: _View) -> None:
        if may_hold_addresses(view.owner, view.high - view.low):
            raw = view.owner.dtype.itemsize != 8 or getattr(view.owner.dtype, "names", None)
            waiting.append((view.name, "at byte" if raw else "[]", words_at(view.low, view.high - view.low)))

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
            if any(view.low <= address < view.high for view in views):
                continue
            at = {"": "", "[]": f"[{position}]", "at byte": f" at byte {8 * position}"}[kind]
            writable = getattr(getattr(one.owner, "flags", None), "writeable", True)
            views.append(_View(name + at, one.start, one.start, one.end, (one.start, one.end), writable, one.owner))
            look_into(views[-1])
    return list(found.values())


def _is_struct(value: np.ndarray, parameter: Parameter) -> bool:
    """Return True for a record array of one element that is passed for a struct."""
    return parameter.type == "b8" and value.dtype.names is not None and value.size == 1


def _scalar(name: str, value: Any, parameter: Parameter) -> bytes:
    size, kind = parameter.size, parameter.type
    if value is None:
        if size != 8:
            raise ArgumentError(name, "None", f"a .{kind} value", "None is a null pointer.")
        return bytes(8)
    if isinstance(value, np.ndarray | np.void):
        value = value.tobytes()
    if isinstance(value, TensorMap):
        value = bytes(value)
    if isinstance(value, bytes | bytearray | memoryview):
        if len(value) != size:
            raise ArgumentError(
                name, f"{len(value)} bytes", f"{size} bytes", "Pass the struct as the kernel lays it out."
            )
        return bytes(value)
    if isinstance(value, np.generic) and value.dtype.itemsize == size and kind[0] == "b":
        return value.tobytes()
    is_float = isinstance(value, float | np.floating)
    try:
        if kind in ("f32", "f64"):
            return struct.pack("<f" if size == 4 else "<d", float(value))
        if kind == "f16" or (kind == "b16" and is_float):
            return np.float16(value).tobytes()
        if is_float:
            raise ArgumentError(name, repr(value), f"an integer for .{kind}", "Convert it with int().")
        return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    except (TypeError, ValueError, OverflowError) as problem:
        if isinstance(problem, ArgumentError):
            raise
        allowed = "a number, a NumPy array or a tensor" if size == 8 else "a number"
        raise ArgumentError(
            name, type(value).__name__, f"{allowed} for .{kind}", "See Kernel.launch for what it takes."
        ) from None
