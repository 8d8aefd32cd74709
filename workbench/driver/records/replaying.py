"""A recorded process repeated in this one: its memory at the same addresses, its copies, operators and launches.

The log (`workbench.driver.records.recording`) need not be trusted: what it touches is memory that the log itself
allocated, and what is no entry raises `BadLog`. Between two logs the caller may write other values into the tensors of
the process.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from workbench.driver.argument_names import give_names
from workbench.driver.library_files import library_path
from workbench.driver.passed_tensors import passing
from workbench.driver.records.recording import FIRST_ADDRESS
from workbench.errors import WorkbenchError

_OWN_ADDRESSES = 0x1400 << 32  # those of the process that repeats it, which has memory of its own
_HEAD = struct.Struct("<IIQ")
_MOST_NUMBERS = 16
_COOPERATIVE, _CLUSTER, _PROGRAMMATIC = 2, 4, 6  # CUlaunchAttributeID
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_BUFFER, _BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE
_u32, _u64 = ctypes.c_uint32, ctypes.c_uint64


class BadLog(WorkbenchError):
    """The log is not one that the driver and torch's operators write."""


class Unrepeatable(WorkbenchError):
    """The process did what a log cannot have; the message names it."""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", _u32), ("pad", _u32), ("value", _u32 * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", _u32 * 3), ("block", _u32 * 3), ("shared", _u32), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)), ("count", _u32),
    )  # fmt: skip


class Replay:
    """The device of a recorded process. One lives in a process at a time, on torch's simulated device 0.

    A log may be run again: what it allocated and loaded is there already.
    ``operators`` counts torch's operators that computed since it was last cleared; ``call`` computes one.
    """

    def __init__(self) -> None:
        self._driver = library = ctypes.CDLL(str(library_path()))
        library.workbench_driver_latest_error.restype = ctypes.c_char_p
        library.workbench_driver_range.argtypes, library.workbench_driver_range.restype = [_u64, _u64], _u64
        library.workbench_driver_place.argtypes = [_u64, _u64]
        library.workbench_driver_block.argtypes = [_u64, _u64, ctypes.c_int]
        library.workbench_driver_prescribe.argtypes = [_u64]
        library.workbench_driver_begin_addresses.argtypes = [_u64]
        library.workbench_driver_begin_addresses(_OWN_ADDRESSES)
        torch.empty(1, device="cuda")  # makes the context current
        self.operators: Counter[str] = Counter()
        self.call: Callable[[Any, tuple, Mapping[str, Any]], Any] = called
        self._placed: dict[int, int] = {}  # bytes of the allocations, by address
        self._reserved: set[int] = set()
        self._modules: dict[int, tuple[ctypes.c_void_p, dict[bytes, ctypes.c_void_p]]] = {}
        self._names: dict[str, list[str]] = {}
        self._passed: list[tuple[str, torch.Tensor]] = []
        self._poison = 0xFF

    def run(self, log: bytes, poison: int = 0xFF) -> None:
        """Repeat what a log has; each byte of memory that it hands out is ``poison`` until something writes there.

        Raises BadLog, Unrepeatable, and torch's and the driver's errors. Findings go to the watch of the process.
        """
        self._poison = poison
        entries = list(_entries(log))
        for at, (kind, numbers, content) in enumerate(entries):
            if kind in "ML":
                self._prescribe(entries[at + 1 :])
            step = self._STEPS.get(kind)
            if step is None:
                raise BadLog(f"an entry of kind {kind!r}")
            if len(numbers) != step[1]:
                raise BadLog(f"an entry {kind} of {len(numbers)} numbers")
            step[0](self, numbers, content)

    def _prescribe(self, following: Sequence[tuple[str, Sequence[int], bytes]]) -> None:
        """Give the addresses that the loading of a module, or a first launch, took for its variables or heap."""
        for kind, numbers, _ in following:
            if kind != "R":
                return
            if (address := _number(numbers, 0)) not in self._reserved:
                self._reserved.add(address)
                self._driver.workbench_driver_prescribe(address)

    def tensor(self, row: Mapping[str, Any]) -> torch.Tensor:
        """Return the tensor on the device that a row describes. Raises BadLog if the process has no memory there."""
        dtype, sizes, strides, address, high = self._place(row)
        if not high:
            return torch.empty_strided(sizes, strides, dtype=dtype, device="cuda")
        storage = torch._C._construct_storage_from_data_pointer(address, torch.device("cuda", 0), high)
        made = torch.empty(0, dtype=dtype, device="cuda").set_(storage, 0, sizes, strides)
        if row.get("conj"):
            made = made.conj()
        return torch._neg_view(made) if row.get("neg") else made

    def content(self, row: Mapping[str, Any]) -> torch.Tensor:
        """Return a copy on the host of a tensor of the process, whatever wrote it. Raises BadLog."""
        dtype, sizes, strides, address, high = self._place(row)
        if not high:
            return torch.empty(sizes, dtype=dtype)
        view = (ctypes.c_uint8 * high).from_address(self._host(address, high))
        return torch.frombuffer(view, dtype=dtype, count=high // dtype.itemsize).as_strided(sizes, strides).clone()

    # -- entries ------------------------------------------------------------------------------------------------------

    def _allocated(self, numbers: Sequence[int], _: bytes) -> None:
        address, size = numbers
        if not FIRST_ADDRESS <= address < _OWN_ADDRESSES - size:
            raise BadLog(f"an allocation at {address:#x}")
        if self._placed.get(address) != size:  # else a log that is repeated again
            self._call("workbench_driver_place", address, size)
            self._placed[address] = size
        ctypes.memset(self._host(address, size), self._poison, size)

    def _freed(self, numbers: Sequence[int], _: bytes) -> None:
        if self._placed.pop(numbers[0], None) is not None:
            self._call("cuMemFree_v2", _u64(numbers[0]))

    def _block(self, numbers: Sequence[int], _: bytes) -> None:
        address, size, live = numbers
        if live:
            ctypes.memset(self._host(address, size), self._poison, size)
        self._driver.workbench_driver_block(address, size, live)

    def _module(self, numbers: Sequence[int], ptx: bytes) -> None:
        if numbers[0] in self._modules:
            return
        for kernel, names in self._names.items():
            give_names(ptx.decode(errors="replace"), kernel, names)
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx))
        self._modules[numbers[0]] = module, {}

    def _launch(self, numbers: Sequence[int], content: bytes) -> None:
        name, _, parameters = content.partition(b"\0")
        if numbers[0] not in self._modules:
            raise BadLog("a launch of a module that was not loaded")
        module, functions = self._modules[numbers[0]]
        if name not in functions:
            functions[name] = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(functions[name]), module, ctypes.c_char_p(name))
        function, shared, flags = functions[name], numbers[7], numbers[11]
        if shared > 48 << 10:
            self._call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared)
        given: dict[int, Sequence[int]] = {
            _COOPERATIVE: (flags & 1,), _PROGRAMMATIC: (flags >> 1 & 1,), _CLUSTER: numbers[8:11],
        }  # fmt: skip
        asked = {number: value for number, value in given.items() if any(value)}
        attributes = (_Attribute * len(asked))(*[_Attribute(id, 0, (_u32 * 16)(*value)) for id, value in asked.items()])
        stream = torch.cuda.current_stream().cuda_stream
        config = _Config(
            (_u32 * 3)(*numbers[1:4]), (_u32 * 3)(*numbers[4:7]), shared, stream, attributes, len(asked)
        )  # fmt: skip
        buffer, size = ctypes.create_string_buffer(parameters, max(len(parameters), 1)), _u64(len(parameters))
        extra = (ctypes.c_void_p * 5)(
            _BUFFER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), None
        )  # fmt: skip
        passed, self._passed = self._passed, []
        with passing(passed) if passed else nullcontext():
            self._call("cuLaunchKernelEx", ctypes.byref(config), function, None, extra)

    def _written(self, numbers: Sequence[int], content: bytes) -> None:
        self._host(numbers[0], len(content))
        self._call("cuMemcpyHtoD_v2", _u64(numbers[0]), ctypes.c_char_p(content), _u64(len(content)))

    def _copied(self, numbers: Sequence[int], _: bytes) -> None:
        to, source, size = numbers
        self._host(to, size), self._host(source, size)
        self._call("cuMemcpyDtoD_v2", _u64(to), _u64(source), _u64(size))

    def _read(self, numbers: Sequence[int], _: bytes) -> None:
        address, size = numbers
        self._host(address, size)
        self._call("cuMemcpyDtoH_v2", ctypes.create_string_buffer(size), _u64(address), _u64(size))

    def _filled(self, numbers: Sequence[int], _: bytes) -> None:
        to, row, value, element, count, height = numbers
        name = {1: "cuMemsetD2D8_v2", 2: "cuMemsetD2D16_v2", 4: "cuMemsetD2D32_v2"}.get(element)
        if name is None:
            raise BadLog(f"a fill by elements of {element} bytes")
        self._host(to, 1)
        self._call(name, _u64(to), _u64(row), _u32(value), _u64(count), _u64(height))

    def _operation(self, numbers: Sequence[int], content: bytes) -> None:
        call, host = _json(content[: numbers[0]], dict), content[numbers[0] :]
        overload = _operator(str(call.get("name")), str(call.get("overload")))
        given, declared = call.get("arguments", []), overload._schema.arguments
        if len(given) != len(declared):
            raise BadLog(f"{len(given)} arguments of {overload}")
        values = [self._value(one, host) for one in given]
        named = {one.name: value for one, value in zip(declared, values, strict=True) if one.kwarg_only}
        with torch.no_grad():
            returned = self.call(overload, (*values[: len(values) - len(named)],), named)
        wanted = call.get("results", [])
        made = list(_tensors(returned))
        if len(made) != len(wanted):
            raise BadLog(f"{call['name']} returns {len(made)} tensors, not {len(wanted)}")
        for one, row in zip(made, wanted, strict=True):
            if one.numel() and one.data_ptr() != row.get("address"):
                self.tensor(row).copy_(one)
        self.operators[str(call["name"]).partition("::")[2]] += 1

    def _pass(self, _: Sequence[int], content: bytes) -> None:
        self._passed = [(str(row.get("name")), self.tensor(row)) for row in _json(content, list)]

    def _name(self, _: Sequence[int], content: bytes) -> None:
        row = _json(content, dict)
        self._names[str(row.get("kernel"))] = [str(one) for one in row.get("names", ())]

    def _beyond(self, _: Sequence[int], content: bytes) -> None:
        raise Unrepeatable(content.decode(errors="replace")[:200])

    def _nothing(self, _: Sequence[int], content: bytes) -> None:
        pass

    _STEPS: Mapping[str, tuple[Callable[[Replay, Sequence[int], bytes], None], int]] = {
        "A": (_allocated, 2), "F": (_freed, 1), "R": (_nothing, 1), "B": (_block, 3), "M": (_module, 1),
        "L": (_launch, 12), "W": (_written, 1), "D": (_copied, 3), "G": (_read, 2), "S": (_filled, 6),
        "O": (_operation, 1), "P": (_pass, 0), "N": (_name, 0), "X": (_beyond, 0),
    }  # fmt: skip
    """The method for an entry, and the number of its numbers."""

    # -- values -------------------------------------------------------------------------------------------------------

    def _call(self, name: str, *arguments: Any) -> None:
        if getattr(self._driver, name)(*arguments):
            raise WorkbenchError(self._driver.workbench_driver_latest_error().decode(errors="replace"))

    def _host(self, address: int, size: int) -> int:
        """Return the address in this process of the memory of the log. Raises BadLog if it does not have all of it."""
        found = self._driver.workbench_driver_range(address, size) if 0 <= address < _OWN_ADDRESSES else 0
        if not found:
            raise BadLog(f"{size:,} bytes at {address:#x}, where nothing was allocated")
        return found

    def _place(self, row: Mapping[str, Any]) -> tuple[torch.dtype, list[int], list[int], int, int]:
        """Return the dtype, sizes, strides and address of a tensor, and the bytes that it spans; 0 without elements."""
        dtype: Any = getattr(torch, str(row.get("type")), None)
        sizes: Any = row.get("sizes")
        strides: Any = row.get("strides")
        address: Any = row.get("address")
        good = isinstance(dtype, torch.dtype) and isinstance(address, int) and isinstance(sizes, list)
        good = good and isinstance(strides, list) and len(sizes) == len(strides)
        if not good or not all(isinstance(one, int) and 0 <= one < 1 << 48 for one in (*sizes, *strides)):
            raise BadLog(f"a tensor of {row!s:.200}")
        if not all(sizes):
            return dtype, sizes, strides, 0, 0
        last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        high = (last + 1) * dtype.itemsize
        self._host(address, high)
        return dtype, sizes, strides, address, high

    def _value(self, given: Any, host: bytes) -> Any:
        if isinstance(given, list):
            return [self._value(one, host) for one in given]
        if not isinstance(given, dict):
            return given
        if "device" in given:
            return torch.device("cuda", 0)
        if "complex" in given:
            return complex(*given["complex"])
        if "host" not in given:
            return self.tensor(given)
        dtype, sizes, begin = getattr(torch, str(given.get("type")), None), given.get("sizes"), given["host"]
        if not isinstance(dtype, torch.dtype) or not isinstance(sizes, list) or not isinstance(begin, int):
            raise BadLog(f"a tensor of {given!s:.200}")
        count = torch.Size(sizes).numel()
        if begin < 0 or count * dtype.itemsize > len(host) - begin:
            raise BadLog("a tensor of the host without its bytes")
        return torch.frombuffer(bytearray(host), dtype=dtype, count=count, offset=begin).reshape(sizes)


def _entries(log: bytes) -> Iterator[tuple[str, Sequence[int], bytes]]:
    at = 0
    while at < len(log):
        if len(log) - at < _HEAD.size:
            raise BadLog("it ends within an entry")
        kind, count, size = _HEAD.unpack_from(log, at)
        begin = at + _HEAD.size + 8 * count
        if kind > 0x7F or count > _MOST_NUMBERS or size > len(log) - begin:
            raise BadLog(f"no entry at byte {at}")
        yield chr(kind), struct.unpack_from(f"<{count}Q", log, at + _HEAD.size), log[begin : begin + size]
        at = begin + size


def _operator(name: str, overload: str) -> Any:
    """Return torch's operator of a name. Raises BadLog unless it is one of the device's."""
    whole = f"{name}.{overload}" if overload else name
    space, _, plain = name.partition("::")
    if space != "aten" or not torch._C._dispatch_has_kernel_for_dispatch_key(whole, "CUDA"):
        raise BadLog(f"{whole[:80]} is no operator of the device")
    return getattr(getattr(torch.ops.aten, plain), overload or "default")


def called(operator: Any, args: tuple, named: Mapping[str, Any]) -> Any:
    """Return the result of an operator of torch."""
    return operator(*args, **named)


def _tensors(returned: Any) -> Iterator[torch.Tensor]:
    for one in returned if isinstance(returned, tuple | list) else (returned,):
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, tuple | list):
            yield from _tensors(one)


def _json(content: bytes, kind: type) -> Any:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadLog(f"{content[:60]!r} is not JSON") from error
    if not isinstance(found, kind):
        raise BadLog(f"{content[:60]!r} is not a JSON {kind.__name__}")
    return found


def _number(numbers: Sequence[int], at: int) -> int:
    if at >= len(numbers):
        raise BadLog("an entry without its numbers")
    return numbers[at]
