"""Arguments of a launch: parameter bytes, and the buffers that pointers lead to.

A buffer's virtual address is aligned to 512 bytes, as cudaMalloc's are, and is the same in every run, so that sectors
do not depend on where the host put the array. Arrays that share storage keep their true distances.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.errors import ArgumentError
from workbench.ptx.parse import Parameter

_BASE = 0x7F00_0000_0000
_ALIGNMENT = 512
_GAP = 1 << 20  # between allocations: an index that runs away does not land in the next array


@dataclass(frozen=True, slots=True)
class Record:
    """A struct by value that holds addresses: its bytes, and what lies at the addresses, by their offsets in it."""

    content: bytes
    arrays: Mapping[int, Any]


@dataclass(slots=True)
class Buffer:
    """A range that the kernel may touch: ``address`` virtual, ``host`` the pointer on this machine, sizes in bytes."""

    name: str
    address: int
    size: int
    host: int
    writable: bool


@dataclass(slots=True)
class _View:
    name: str
    pointer: int  # what the kernel is given
    low: int  # first byte that may be touched
    high: int
    storage: tuple[int, int]
    writable: bool


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "untyped_storage")


def _is_array(value: Any) -> bool:
    return _is_tensor(value) or isinstance(value, np.ndarray)


def _tensor_view(name: str, tensor: Any) -> _View:
    if tensor.device.type != "cpu":
        raise ArgumentError(name, f"a tensor on {tensor.device}", "tensors in host memory", "Move it with .cpu().")
    size, pointer = tensor.element_size(), tensor.data_ptr()
    extent = sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else -1
    storage = tensor.untyped_storage()
    start = storage.data_ptr()
    return _View(name, pointer, pointer, pointer + (extent + 1) * size, (start, start + storage.nbytes()), True)


def _array_view(name: str, array: np.ndarray) -> _View:
    low, high = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    bounds = np.lib.array_utils.byte_bounds(base) if base.size else (low, high)
    return _View(name, array.ctypes.data, low, high, (min(low, bounds[0]), max(high, bounds[1])), array.flags.writeable)


def _place(views: list[_View]) -> dict[int, int]:
    """Virtual minus host address for every storage, by the host address of its start; storages that overlap are one."""
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
    for low, high, _ in sorted(merged, key=lambda region: region[2]):
        # Host allocations are aligned to 16 bytes or more; what is left of a vector's alignment must survive.
        for view in views:
            if low <= view.storage[0] < max(high, low + 1):
                offsets[view.storage[0]] = address - low
        address += (high - low + _GAP + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
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
            buffers.append(Buffer(view.name, address, size, view.low, view.writable))
    return buffers


def pack(kernel: str, parameters: tuple[Parameter, ...], args: Any) -> tuple[bytes, list[Buffer]]:
    """The parameter space of a launch and its buffers, sorted by address.

    ``args``: torch tensors and NumPy arrays become pointers, None a null pointer, numbers are converted to the
    parameter's type, bytes and a `Record` fill a by-value struct. Raises ArgumentError naming the parameter.
    """
    if len(args) != len(parameters):
        names = ", ".join(f"{p.name} (.{p.type})" for p in parameters)
        raise ArgumentError(
            "args", f"{len(args)} arguments", f"{len(parameters)}: {names}", f"Pass one for each parameter of {kernel}."
        )
    views: list[tuple[int, _View]] = []  # with the place of its address in the parameter space
    for i, (value, parameter) in enumerate(zip(args, parameters, strict=True)):
        name = f"argument {i}"
        arrays = value.arrays if isinstance(value, Record) else {0: value} if _is_array(value) else {}
        for offset, array in arrays.items():
            view = _tensor_view(name, array) if _is_tensor(array) else _array_view(name, array)
            views.append((parameter.offset + offset, view))
        if _is_array(value) and parameter.size != 8:
            raise ArgumentError(name, "an array", f"a .{parameter.type} value", "Only 64-bit parameters take pointers.")
    placed = [view for _, view in views]
    offsets = _place(placed)
    raw = bytearray(
        max(sum(p.size for p in parameters), *(p.offset + p.size for p in parameters), 0) if parameters else 0
    )
    for i, (value, parameter) in enumerate(zip(args, parameters, strict=True)):
        if not _is_array(value):
            content = value.content if isinstance(value, Record) else value
            raw[parameter.offset : parameter.offset + parameter.size] = _scalar(f"argument {i}", content, parameter)
    for place, view in views:
        raw[place : place + 8] = struct.pack("<Q", view.pointer + offsets[view.storage[0]])
    return bytes(raw), _merge(placed, offsets)


def _scalar(name: str, value: Any, parameter: Parameter) -> bytes:
    size, kind = parameter.size, parameter.type
    if value is None:
        if size != 8:
            raise ArgumentError(name, "None", f"a .{kind} value", "None is a null pointer.")
        return bytes(8)
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
