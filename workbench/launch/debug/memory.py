"""The memory of a stopped launch: its arrays in their shapes, elements by name, shared memory."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.errors import ArgumentError, UnknownNameError
from workbench.launch.debug.code import KernelCode
from workbench.ptx.launch import MachineLaunch
from workbench.ptx.pointers import is_tensor

_ELEMENT = re.compile(r"^(?P<name>[A-Za-z_]\w*)\s*(?:\[(?P<index>.*)\])?$", re.DOTALL)
_ADDRESS = re.compile(r"^(?P<address>0x[0-9a-fA-F]+)(?::(?P<bytes>\d+))?$")
WRITER = np.dtype([("index", "u8"), ("block", "i8"), ("thread", "i4"), ("pc", "i4")])
"""Record of an element's last writer, as the core returns it; block -1: nobody."""


@dataclass(frozen=True, slots=True)
class MemorySpan:
    """A range of memory that a watch looks at: global addresses, or offsets in a block's shared memory."""

    begin: int
    end: int
    shared: bool = False


class DebugMemory:
    """Arrays of a launch by the names of its arguments, and the addresses of their elements."""

    def __init__(self, launch: MachineLaunch, code: KernelCode):
        self.launch, self.code = launch, code
        names = [*launch.names]
        self.arrays: dict[str, Any] = {}
        for position, value in enumerate(launch.values):
            if is_tensor(value) or isinstance(value, np.ndarray):
                self.arrays[names[position] if position < len(names) else f"argument{position}"] = value
        self.rows = list(launch.memory.rows)

    def address_of(self, host: int) -> int:
        """Return the address at which the kernel sees a byte of this process. Raises LookupError for another's."""
        for address, size, begin, *_ in self.rows:
            if begin <= host < begin + size:
                return address + host - begin
        raise LookupError(host)

    def array(self, name: str) -> Any:
        """Return the array of an argument. Raises UnknownNameError for a name that is none."""
        if name not in self.arrays:
            known = ", ".join(map(repr, self.arrays)) or "none"
            raise UnknownNameError("array", repr(name), known, "Name an argument of the launch that is an array.")
        return self.arrays[name]

    def span(self, text: str) -> MemorySpan:
        """Return the memory that ``out[3, 5]``, ``out``, ``tile``, ``shared[0:64]`` or ``0x1000:4`` means.

        ``shared`` counts bytes of the block's shared memory; ``tile`` is a variable in it. Raises ArgumentError for
        what is none of these.
        """
        text = text.strip()
        if found := _ADDRESS.match(text):
            begin = int(found["address"], 16)
            return MemorySpan(begin, begin + int(found["bytes"] or 1))
        found = _ELEMENT.match(text)
        if not found:
            raise ArgumentError("place", repr(text), "out[3, 5], out, shared[0:64], 0x1000:4", "Write one of these.")
        name, index = found["name"], found["index"]
        if name in self.arrays:
            return self._element(name, index)
        if name == "shared":
            return self._shared(text, index)
        return self._variable(text, name, index)

    def _element(self, name: str, index: str | None) -> MemorySpan:
        array = self.arrays[name]
        part = array if index is None else array[self.index(name, index)]
        host, size = _bytes_of(part)
        if size is None:
            remedy = "Name one element, or a part that is contiguous."
            raise ArgumentError("place", f"{name}[{index}]", "elements that lie side by side", remedy)
        begin = self.address_of(host)
        return MemorySpan(begin, begin + size)

    def index(self, name: str, index: str) -> tuple[Any, ...]:
        """Return an index into an array from its text. Raises ArgumentError for text that is none."""
        shape = tuple(self.arrays[name].shape)
        try:
            tree = ast.parse(f"x[{index}]", mode="eval").body
            assert isinstance(tree, ast.Subscript)
            parts = tuple(tree.slice.elts) if isinstance(tree.slice, ast.Tuple) else (tree.slice,)
            made = tuple(_one_index(part) for part in parts)
            _check(made, shape)
        except (SyntaxError, ValueError, IndexError) as error:
            raise ArgumentError(
                "place", f"{name}[{index}]", f"an index into {shape}", f"Python says: {error}."
            ) from None
        return (*made, Ellipsis)

    def _shared(self, text: str, index: str | None) -> MemorySpan:
        size = self.code.decoded.static_shared + self.launch.shared_bytes
        try:
            tree = ast.parse(f"x[{index}]", mode="eval").body
            one = _one_index(tree.slice) if isinstance(tree, ast.Subscript) else slice(None)
        except (SyntaxError, ValueError):
            one = None
        made = slice(one, one + 1) if isinstance(one, int) else one
        if not isinstance(made, slice) or made.step not in (None, 1):
            raise ArgumentError("place", repr(text), "shared[offset] or shared[begin:end]", "Count bytes from 0.")
        begin, end, _ = made.indices(max(size, 1))
        return MemorySpan(begin, end, shared=True)

    def shared_variables(self) -> dict[str, tuple[int, int]]:
        """Offset and bytes of each variable in shared memory, by name."""
        decoded = self.code.decoded
        return {_plain(name): (at, decoded.shared_sizes.get(at, 0)) for at, name in decoded.shared_variables.items()}

    def _variable(self, text: str, name: str, index: str | None) -> MemorySpan:
        variables = self.shared_variables()
        if name not in variables or index is not None:
            known = ", ".join([*self.arrays, *variables, "shared[0:64]"])
            raise UnknownNameError("place", repr(text), known, "Elements of arrays are written out[3, 5].")
        begin, size = variables[name]
        return MemorySpan(begin, begin + size, shared=True)

    def copy(self, name: str) -> Any:
        """Return a copy of an array as it is now."""
        array = self.array(name)
        return array.copy() if isinstance(array, np.ndarray) else array.detach().clone()

    def elements(self, name: str) -> tuple[MemorySpan, int, tuple[int, ...], tuple[int, ...]]:
        """Return the span of an array with its gaps, bytes of an element, shape, and strides in elements."""
        array = self.array(name)
        size = array.itemsize if isinstance(array, np.ndarray) else array.element_size()
        strides = [one // size for one in array.strides] if isinstance(array, np.ndarray) else [*array.stride()]
        last = sum((extent - 1) * stride for extent, stride in zip(array.shape, strides, strict=True))
        host = array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data_ptr()
        begin = self.address_of(host)
        return MemorySpan(begin, begin + (last + 1) * size), size, tuple(array.shape), tuple(strides)


def _plain(name: str) -> str:
    """Return a variable's name without what the compiler puts around it."""
    found = re.match(r"_ZZ.*E(\d+)(\w+)$", name)
    return found[2][: int(found[1])] if found else name


def _bytes_of(part: Any) -> tuple[int, int | None]:
    if isinstance(part, np.ndarray):
        return part.__array_interface__["data"][0], part.nbytes if part.flags["C_CONTIGUOUS"] else None
    return part.data_ptr(), part.numel() * part.element_size() if part.is_contiguous() else None


def _one_index(node: ast.expr) -> int | slice:
    match node:
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(*(None if one is None else _whole(one) for one in (lower, upper, step)))
        case _:
            return _whole(node)


def _whole(node: ast.expr) -> int:
    value = ast.literal_eval(node)
    if type(value) is not int:
        raise ValueError(f"{value!r} is no whole number")
    return value


def _check(index: tuple[int | slice, ...], shape: tuple[int, ...]) -> None:
    if len(index) > len(shape):
        raise IndexError("too many indices")
    for one, extent in zip(index, shape, strict=False):
        if isinstance(one, int) and not -extent <= one < extent:
            raise IndexError(f"index {one} is out of bounds for an axis of {extent}")
