"""Checks and packs what a launch passes to a kernel, by the parameters that its PTX declares; for both devices."""

from __future__ import annotations

import ctypes
import math
import struct
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.errors import ArgumentError
from workbench.ptx.tensor_map import TENSOR_MAP_BYTES, TensorMap
from workbench.toolchain import launch_buffer
from workbench.toolchain.occupancy import limits_of

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel, Parameter

Dimensions = tuple[int, int, int]

_GRID_LIMIT = (2**31 - 1, 65535, 65535)
_BLOCK_LIMIT = (1024, 1024, 64)
_STATIC_SHARED_LIMIT = 48 * 1024
_FLOAT_FORMATS = {"f32": "<f", "f64": "<d", "f16": "<e"}
_OTHER_FORMATS = frozenset((*_FLOAT_FORMATS, "b8"))
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
_NUMBERS = frozenset((int, float))


def is_array(value: object) -> bool:
    """Whether ``value`` is passed by address: a torch tensor or a NumPy array."""
    return isinstance(value, np.ndarray) or hasattr(value, "data_ptr")


def address(value: Any) -> int:
    """The address of a torch tensor's or NumPy array's first element."""
    return value.data_ptr() if hasattr(value, "data_ptr") else value.ctypes.data


def dimensions(name: str, value: int | Sequence[int]) -> Dimensions:
    """``value`` as three numbers, checked against what CUDA allows. Raises ArgumentError naming ``name``."""
    limit = _GRID_LIMIT if name == "grid" else _BLOCK_LIMIT
    if type(value) is tuple and 0 < len(value) <= 3 and all(map(_in_range, value, limit)):
        return value + (1,) * (3 - len(value))
    given = tuple(value) if isinstance(value, Sequence) else (value,)
    rule = f"1 to 3 whole numbers, from 1 to {limit}"
    whole = all(isinstance(number, int | np.integer) and not isinstance(number, bool) for number in given)
    if not whole or not 1 <= len(given) <= 3:
        raise ArgumentError(name, value, rule, "Pass an int or a tuple.")
    full = x, y, z = (*map(int, given), 1, 1)[:3]
    if any(not 1 <= number <= most for number, most in zip(full, limit, strict=True)):
        remedy = "Leave out a launch of nothing." if 0 in full else "Spread the work over the other dimensions."
        raise ArgumentError(name, value, rule, remedy)
    return x, y, z


def _in_range(number: object, most: int) -> bool:
    return type(number) is int and 1 <= number <= most


def check_launch(
    kernel: CompiledKernel, grid: int | Sequence[int], block: int | Sequence[int], shared_bytes: int, arch: str
) -> tuple[Dimensions, Dimensions, int]:
    """The grid, block and dynamic shared memory (bytes) of a launch on a device of ``arch``.

    Raises ArgumentError for what a GPU of that architecture would refuse.
    """
    grid, block = dimensions("grid", grid), dimensions("block", block)
    threads = block[0] * block[1] * block[2]
    limits = limits_of(arch)
    most = limits.threads_per_block
    if kernel.thread_bound is not None:
        bound, exact = kernel.thread_bound
        most = min(most, bound)
        if exact and threads != bound:
            raise ArgumentError("block", block, f"{bound} threads", f"{kernel.label} was compiled for exactly these.")
    if threads > most:
        raise ArgumentError("block", f"{threads} threads", f"at most {most}", f"{kernel.label} cannot run with more.")
    if isinstance(shared_bytes, bool) or not isinstance(shared_bytes, int | np.integer) or shared_bytes < 0:
        raise ArgumentError("shared_bytes", shared_bytes, "0 or more bytes", "Pass a whole number.")
    if kernel.static_shared_bytes > _STATIC_SHARED_LIMIT:
        # The assembler refuses it; the simulator runs code that no assembler has seen.
        raise ArgumentError(
            f"static shared memory of {kernel.label}",
            f"{kernel.static_shared_bytes} bytes",
            f"at most {_STATIC_SHARED_LIMIT}",
            "Declare it extern, which is dynamic shared memory, and pass shared_bytes=.",
        )
    if kernel.language == "triton":
        shared_bytes = max(int(shared_bytes), kernel.dynamic_shared_bytes)
    else:
        # What was named when compiling stands in for a launch that names nothing.
        shared_bytes = int(shared_bytes) or kernel.dynamic_shared_bytes
    room = limits.shared_per_block - kernel.static_shared_bytes
    if shared_bytes > room:
        raise ArgumentError(
            "shared_bytes",
            shared_bytes,
            f"at most {room} beside the kernel's own {kernel.static_shared_bytes} on {arch}",
            "Use smaller tiles.",
        )
    return grid, block, shared_bytes


def check_arguments(kernel: CompiledKernel, args: Sequence[object]) -> list[object]:
    """One value for every parameter of ``kernel``: arrays as they are, numbers within range, structs as bytes.

    Scratch parameters, which Triton appends, get None (see `give_scratch`). Raises ArgumentError naming the parameter
    for a wrong count, a wrong kind of value, a number that does not fit, or an address that is not aligned as the code
    relies on.
    """
    parameters = kernel.parameters
    expected = len(parameters) - kernel.scratch_parameters
    if len(args) != expected:
        listing = ", ".join(f"{one.name} ({one.kind})" for one in parameters[:expected]) or "none"
        raise ArgumentError(
            f"arguments of {kernel.label}", f"{len(args)} values", f"{expected}: {listing}", "Pass one for each."
        )
    return [
        _checked(f"{kernel.label}(): argument {index} {parameter.name!r}", parameter, value)
        for index, (parameter, value) in enumerate(zip(parameters, args, strict=False))
    ] + [None] * kernel.scratch_parameters


def give_scratch(kernel: CompiledKernel, values: list[object], grid: Dimensions, room: Callable[[int], Any]) -> Any:
    """Put the memory that a kernel's programs build tensor descriptors in among the ``values`` of a launch, and return
    it; None for a kernel that takes none. ``room(size)`` is an array of ``size`` bytes."""
    if not kernel.scratch_bytes:
        return None
    values[-kernel.scratch_parameters] = scratch = room(kernel.scratch_bytes * math.prod(grid))
    return scratch


def for_the_machine(
    kernel: CompiledKernel,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[object],
    shared_bytes: int,
) -> tuple[Dimensions, Dimensions, int, list[object]]:
    """Grid, block, dynamic shared memory (bytes) and arguments, with scratch memory, of a launch on the PTX machine.

    A kernel for a newer architecture is measured by that one's limits. Raises ArgumentError as `check_launch` and
    `check_arguments`.
    """
    values = check_arguments(kernel, args)
    grid, block, shared_bytes = check_launch(kernel, grid, block, shared_bytes, kernel.arch)
    # Zeros, because what looks like an address in an argument is taken for one.
    give_scratch(kernel, values, grid, lambda size: np.zeros(size, np.uint8))
    return grid, block, shared_bytes, values


def _checked(where: str, parameter: Parameter, value: Any) -> object:
    if value is None and _is_word(parameter):
        return None
    if is_array(value):
        return _checked_array(where, parameter, value)
    if parameter.type == "b8":
        return _struct_bytes(where, parameter, value)
    if isinstance(value, np.generic) and value.dtype.itemsize != parameter.size and value.dtype != np.bool_:
        raise ArgumentError(where, f"{value.dtype} of {value.dtype.itemsize} bytes", _allowed(parameter), "Convert it.")
    if isinstance(value, np.generic):
        value = value.item()
    if parameter.type in _FLOAT_FORMATS:
        return _checked_float(where, parameter, value)
    if not isinstance(value, int):
        raise ArgumentError(where, type(value).__name__, _allowed(parameter), "Pass a value of that type.")
    bits = 8 * parameter.size
    if not -(2 ** (bits - 1)) <= value < 2**bits:
        raise ArgumentError(where, value, f"what {bits} bits hold", "Pass a smaller number.")
    if value % parameter.divisibility:
        raise ArgumentError(where, value, f"multiples of {parameter.divisibility}", _PROMISE)
    return int(value)


_PROMISE = "The kernel was compiled on that promise; compile it with other attributes."


def _checked_float(where: str, parameter: Parameter, value: Any) -> float:
    if not isinstance(value, int | float):
        raise ArgumentError(where, type(value).__name__, _allowed(parameter), "Pass a number.")
    try:
        struct.pack(_FLOAT_FORMATS[parameter.type], float(value))
    except OverflowError as error:
        raise ArgumentError(where, value, f"what {parameter.type} holds", "Pass a smaller number.") from error
    return float(value)


def _checked_array(where: str, parameter: Parameter, value: Any) -> object:
    if parameter.type == "b8" and isinstance(value, np.ndarray) and value.dtype.names and value.size == 1:
        return _struct_bytes(where, parameter, value.reshape(())[()])
    if parameter.size != 8 or parameter.type in _FLOAT_FORMATS:  # a struct of one pointer takes it
        raise ArgumentError(where, type(value).__name__, _allowed(parameter), "Pass a number, not an array.")
    # A tensor's strides are the kernel's business; a NumPy array may be copied to a GPU, which keeps only its elements.
    if isinstance(value, np.ndarray) and (not value.flags.c_contiguous or value.dtype.hasobject):
        got = "objects" if value.dtype.hasobject else f"an array with strides {value.strides}"
        raise ArgumentError(where, got, "contiguous arrays of numbers", "Use np.ascontiguousarray.")
    if address(value) % parameter.divisibility:
        raise ArgumentError(
            where,
            f"an address of {hex(address(value))}",
            f"addresses that are multiples of {parameter.divisibility}",
            _PROMISE,
        )
    return value


def _struct_bytes(where: str, parameter: Parameter, value: Any) -> bytes | TensorMap:
    """A struct by value from bytes, a NumPy scalar, a ctypes structure or a tensor map of the same size."""
    if isinstance(value, TensorMap) and parameter.size == TENSOR_MAP_BYTES:
        return value  # each device has its own bytes of it
    if isinstance(value, bytes | bytearray | memoryview | ctypes.Structure | ctypes.Union | ctypes.Array):
        content = bytes(value)
    elif isinstance(value, np.generic) and not value.dtype.hasobject:
        content = value.tobytes()
    else:
        remedy = "Pass bytes, a NumPy scalar or a ctypes structure; a pointer in it is a number, tensor.data_ptr()."
        raise ArgumentError(where, type(value).__name__, _allowed(parameter), remedy)
    if len(content) != parameter.size:
        raise ArgumentError(where, f"{len(content)} bytes", _allowed(parameter), "The sizes must agree.")
    return content


def _allowed(parameter: Parameter) -> str:
    if parameter.type == "b8":
        return f"a {parameter.kind}"
    if parameter.type in _FLOAT_FORMATS:
        return f"a float ({parameter.type})"
    if parameter.size == 8:
        return f"a tensor, None or an integer ({parameter.kind})"
    return f"an integer ({parameter.type})"


def pack(kernel: CompiledKernel, values: Sequence[object], addresses: Sequence[int | None], arch: str) -> bytes:
    """Return the parameter buffer of a launch on ``arch``, each value at its place there.

    ``values`` come from ``check_arguments``; ``addresses`` holds the device address of each array, else None.
    """
    layout = _layout(kernel, arch)
    fields = [
        (value if place is None else place.to_bytes(8, "little"))
        if mask is None
        else (int(value or 0) if place is None else place) & mask  # type: ignore[call-overload]
        for value, place, mask in zip(values, addresses, layout.masks, strict=True)
    ]
    return layout.form.pack(*fields)


def packed_at_once(
    kernel: CompiledKernel, args: Sequence[Any], index_of: Callable[[Any], int | None]
) -> tuple[bytes, int | None] | None:
    """The parameter buffer of a launch and the number of its tensors' device, None without tensors.

    For arguments that are right as they are, as nearly all are, in one pass, since every launch waits for it. Returns
    None for those that need a second look, by `check_arguments` and `pack`: NumPy's arrays and numbers, structs,
    tensors of several devices, and wrong ones. ``index_of`` gives the number of a tensor's CUDA device, None elsewhere.
    """
    layout, device = _layout(kernel, kernel.arch), None  # without structs it is the same on every GPU
    if len(args) != layout.passed:
        return None
    fields = list[int | float]()
    take: Callable[[Any], None] = fields.append
    for value, word in zip(args, layout.words, strict=True):
        if value.__class__ in _NUMBERS:
            take(value)
        elif not word:
            return None
        elif value is None:
            take(0)
        else:
            index = index_of(value) if hasattr(value, "data_ptr") else None
            if index is None or (index != device and device is not None):
                return None
            device = index
            take(value.data_ptr())
    for at, multiple in layout.promised:
        if fields[at] % multiple:
            return None
    try:
        return layout.form.pack(*fields, *layout.scratch), device
    except (struct.error, OverflowError):  # negative numbers among them
        return None


class _Layout(NamedTuple):
    """How a kernel's parameters lie in the buffer of a launch."""

    form: struct.Struct
    masks: tuple[int | None, ...]
    """Of each parameter the bits that a whole number keeps; None for floats and structs."""
    passed: int
    """Parameters that a launch passes; behind them those of ``scratch``."""
    scratch: tuple[int, ...]
    words: tuple[bool, ...]
    """Of each that is passed whether it takes an address."""
    promised: tuple[tuple[int, int], ...]
    """(position, multiple) of those for which not every address or number will do."""


_LAYOUTS: weakref.WeakKeyDictionary[CompiledKernel, dict[str, _Layout]] = weakref.WeakKeyDictionary()
"""Found again for every launch: a kernel's hash is that of a text, its parameters' is long to compute."""


def _layout(kernel: CompiledKernel, arch: str) -> _Layout:
    known = _LAYOUTS.get(kernel)
    found = None if known is None else known.get(arch)
    if found is None:
        parameters, scratch = kernel.parameters, kernel.scratch_parameters
        passed = parameters[: len(parameters) - scratch]
        found = _LAYOUTS.setdefault(kernel, {})[arch] = _Layout(
            form=struct.Struct(_form(parameters, arch)),
            masks=tuple(None if one.type in _OTHER_FORMATS else 2 ** (8 * one.size) - 1 for one in parameters),
            passed=len(passed),
            scratch=(0,) * scratch,
            words=tuple(map(_is_word, passed)),
            promised=tuple((at, one.divisibility) for at, one in enumerate(passed) if one.divisibility > 1),
        )
    return found


def _form(parameters: Sequence[Parameter], arch: str) -> str:
    form, end = "<", 0
    for parameter, offset in zip(parameters, launch_buffer.offsets(parameters, arch)[0], strict=True):
        form += f"{offset - end}x" if offset > end else ""
        end = offset + parameter.size
        if parameter.type == "b8":
            form += f"{parameter.size}s"
        elif parameter.type in _FLOAT_FORMATS:
            form += _FLOAT_FORMATS[parameter.type][1]
        else:
            form += _UNSIGNED[parameter.size]
    return form


def _is_word(parameter: Parameter) -> bool:
    return parameter.size == 8 and parameter.type not in _OTHER_FORMATS
