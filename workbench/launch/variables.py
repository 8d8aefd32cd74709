"""Variables in device and constant memory of a loaded module, read and written from the host on either device."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.base.demangle import demangle
from workbench.base.element_types import ELEMENT_TYPES
from workbench.errors import ArgumentError, UnknownKeyError
from workbench.ptx.parse import parse
from workbench.toolchain.c_types import DeclaredVariable, declared_variables

if TYPE_CHECKING:
    from workbench.launch.devices import VariableHolder
    from workbench.toolchain import CompiledKernel


@dataclass(frozen=True)
class Variable:
    """One ``__device__`` (``space`` "global") or ``__constant__`` ("constant") variable of ``nbytes`` bytes.

    ``dtype`` and ``shape`` are those of the source's declaration. A bfloat16 appears as the uint16 of its bits. A
    struct, or any other type that is not a plain number, appears as bytes (uint8) in an added last dimension:
    ``get().view(...)`` reads them as another dtype, and `set` takes an array of the declared shape whose elements have
    as many bytes.
    """

    name: str
    space: str
    nbytes: int
    dtype: np.dtype
    shape: tuple[int, ...]
    _owner: Variables
    _opaque: bool = False

    def get(self) -> np.ndarray:
        """Return a copy of the value; for a scalar an array without dimensions, so ``int(variable.get())`` works."""
        content = self._owner.read(self.name)
        return np.frombuffer(content, self.dtype).reshape(self.shape).copy()

    def set(self, value: Any) -> None:
        """Write ``value``: numbers, a list, a NumPy array or a tensor of the variable's shape, or bytes of its size.

        A single number fills the variable. A CUDA tensor of the variable's own dtype is copied on the device, in the
        order of torch's current stream, also under graph capture. Raises ArgumentError for another shape, or for a
        dtype whose values the variable's dtype cannot hold.
        """
        if getattr(value, "is_cuda", False) and self._owner.copy(self, value):
            return
        self._owner.write(self.name, self._bytes(value))

    def _bytes(self, value: Any) -> bytes:
        where = f"variable {self.name!r}"
        if isinstance(value, bytes | bytearray | memoryview):
            content = bytes(value)
            if len(content) != self.nbytes:
                raise ArgumentError(where, f"{len(content)} bytes", f"{self.nbytes} bytes", "The sizes must agree.")
            return content
        value = _array(value)
        if self._opaque and value.shape == self.shape[:-1] and value.dtype.itemsize == self.shape[-1]:
            return value.tobytes()
        return self._from_array(where, value)

    def _from_array(self, where: str, value: np.ndarray) -> bytes:
        if value.dtype != self.dtype and value.dtype.kind != self.dtype.kind and value.dtype.kind not in "biu":
            raise ArgumentError(where, f"{value.dtype}", str(self.dtype), "Convert it.")
        if value.ndim > len(self.shape) and value.size == math.prod(self.shape):
            value = value.reshape(self.shape)  # as C does: one row after the other
        try:
            with np.errstate(over="raise", invalid="raise"):
                full = np.broadcast_to(value, self.shape).astype(self.dtype)
        except (ValueError, FloatingPointError) as error:
            allowed = f"{self.dtype} of shape {self.shape}, or one number"
            raise ArgumentError(where, f"{value.dtype} of shape {value.shape}", allowed, str(error)) from error
        if self.dtype.kind in "iu" and not np.array_equal(full, np.broadcast_to(value, self.shape)):
            raise ArgumentError(where, str(value), f"values that {self.dtype} can hold", "Pass smaller numbers.")
        return full.tobytes()

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"<{self.space} variable {self.name}: {self.dtype} {shape}>"


class Variables(Mapping[str, Variable]):
    """Variables of a module by name; ``module.globals["n"] = 4`` writes one.

    They live as long as the code. Loading a module again from the same source gives the variables their initial values,
    in every other module of that source too. Instances of templates that are compiled on first use
    (``module["f<int>"]``) are programs of their own, to which values written from the host are copied.
    """

    def __init__(self, device: VariableHolder, text: str, macros: Mapping[str, object]):
        self._device = device
        self._declared = declared_variables(text, macros)
        self._carriers: list[CompiledKernel] = []
        self._alive: list[object] = []
        self._symbols: dict[str, tuple[str, Variable]] = {}

    def add(self, kernel: CompiledKernel) -> None:
        """Add the variables of a kernel's program."""
        if any(kernel.ptx == carrier.ptx for carrier in self._carriers):
            return
        found = variables_of(kernel)
        if found:
            self._alive.append(self._device.reset_variables(kernel))
        self._carriers.append(kernel)
        for symbol, space, size in found:
            name = demangle(symbol)
            known = name in self._symbols
            if not known:
                declared = self._declared.get(name.split("::")[-1])
                dtype, shape = _layout(declared, size)
                opaque = declared is None or declared.type is None
                self._symbols[name] = symbol, Variable(name, space, size, dtype, shape, self, opaque)
            elif self._carriers[0] is not kernel:
                self._device.write_variable(kernel, symbol, self.read(name))

    def read(self, name: str) -> bytes:
        """Return the bytes of a variable."""
        symbol = self._symbols[name][0]
        return self._device.read_variable(self._holders(symbol)[0], symbol)

    def write(self, name: str, content: bytes) -> None:
        """Write all bytes of a variable, in every program that has it."""
        symbol = self._symbols[name][0]
        for kernel in self._holders(symbol):
            self._device.write_variable(kernel, symbol, content)

    def copy(self, variable: Variable, value: Any) -> bool:
        """Copy a CUDA tensor into a variable on the device; return False if they differ or the device cannot."""
        dtype = str(value.dtype).removeprefix("torch.")
        alike = dtype == str(variable.dtype) and value.numel() * value.itemsize == variable.nbytes
        alike = alike and value.is_contiguous()
        if not alike or not hasattr(self._device, "copy_variable"):
            return False
        symbol = self._symbols[variable.name][0]
        for kernel in self._holders(symbol):
            self._device.copy_variable(kernel, symbol, value)
        return True

    def _holders(self, symbol: str) -> list[CompiledKernel]:
        return [kernel for kernel in self._carriers if any(symbol == row[0] for row in variables_of(kernel))]

    def __getitem__(self, name: str) -> Variable:
        if name not in self._symbols:
            listing = ", ".join(self._symbols) or "none"
            raise UnknownKeyError("variable", repr(name), listing, "The code uses these in device or constant memory.")
        return self._symbols[name][1]

    def __setitem__(self, name: str, value: Any) -> None:
        self[name].set(value)

    def __contains__(self, name: object) -> bool:
        return name in self._symbols

    def __iter__(self) -> Iterator[str]:
        return iter(self._symbols)

    def __len__(self) -> int:
        return len(self._symbols)

    def __repr__(self) -> str:
        return f"<variables: {', '.join(self._symbols) or 'none'}>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._symbols)


@functools.lru_cache(maxsize=64)
def _placed(ptx_text: str) -> tuple[tuple[str, str, int], ...]:
    """Return (symbol, space, bytes) of each variable that the code refers to.

    Left out are variables that the compiler adds: ``constexpr`` ones, to which no code refers, tables of virtual
    functions, and its own constants, whose names have a dollar.
    """
    used = Counter(re.findall(r"[\w$]+", ptx_text))
    spaces = {"global": "global", "const": "constant"}
    return tuple(
        (one.name, spaces[one.space], one.size)
        for one in parse(ptx_text).variables.values()
        if one.space in spaces and one.size and used[one.name] > 1 and "$" not in one.name and one.name[:4] != "_ZTV"
    )


def variables_of(kernel: CompiledKernel) -> tuple[tuple[str, str, int], ...]:
    """Return (symbol, space, bytes) of each variable of a kernel's program."""
    return _placed(kernel.ptx)


def _layout(declared: DeclaredVariable | None, size: int) -> tuple[np.dtype, tuple[int, ...]]:
    """Return dtype and shape of a variable; bytes if its declaration is unknown or does not agree with its size."""
    if declared is not None and declared.type is None and declared.shape and not size % math.prod(declared.shape):
        return np.dtype(np.uint8), (*declared.shape, size // math.prod(declared.shape))
    if declared is None or declared.type is None or size % declared.type.itemsize:
        return np.dtype(np.uint8), (size,)
    dtype = np.dtype(ELEMENT_TYPES[declared.type.dtype].numpy)
    flat = (size // dtype.itemsize,)
    if declared.shape is None:
        return dtype, flat
    return dtype, declared.shape if math.prod(declared.shape) == flat[0] else flat


def _array(value: Any) -> np.ndarray:
    """Return a tensor, an array, a list or a number as an array; bfloat16 and float8 as the integers of their bits."""
    if not hasattr(value, "data_ptr"):
        return np.asarray(value)
    import torch

    value = value.detach().cpu()
    kind = ELEMENT_TYPES.get(str(value.dtype).removeprefix("torch."))
    return value.numpy() if kind is None else value.view(getattr(torch, kind.numpy)).numpy()
