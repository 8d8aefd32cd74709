"""PTX modules ready to launch: kernels are decoded on first use, device variables keep their values."""

from __future__ import annotations

import contextlib
import functools
import gc
import struct
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from workbench.errors import UnknownNameError
from workbench.ptx import parse
from workbench.ptx.assemble import Decoded
from workbench.ptx.parse import TYPE_SIZES, Parameter, ParsedModule

if TYPE_CHECKING:
    from workbench.ptx.device_heap import DeviceHeap
    from workbench.ptx.launch import PtxKernel

_GLOBALS_BASE = 0x6000_0000_0000
_FUNCTIONS_BASE = 0x5000_0000_0000
_HEAP_BASE = 0x0E00_0000_0000
_ALIGNMENT = 512
_FORMATS = {"f32": "<f", "f64": "<d"}


class Program(Mapping[str, "PtxKernel"]):
    """A PTX module. ``program.kernels`` maps names to kernels; device variables live as long as the program.

    ``place(bytes)`` returns the address, a multiple of 512, at which the variables begin; without it they begin at the
    same address in every program.
    """

    def __init__(self, text: str, place: Callable[[int], int] | None = None):
        self.module: ParsedModule = parse.parse(text)
        self.variables: dict[str, np.ndarray] = {}
        self._addresses = {name: _FUNCTIONS_BASE + 16 * i for i, name in enumerate(self.module.functions)}
        self._kernels: dict[tuple[str, bool], PtxKernel] = {}
        self._place_variables(place)

    @staticmethod
    def from_text(text: str) -> Program:
        """Return the program of a PTX text; the process keeps one for each text.

        A kernel is decoded on first use, the only kernel of a text at once. Raises UnsupportedInstructionError if that
        one cannot run; for another kernel its first use raises it.
        """
        return _program(text)

    @property
    def kernels(self) -> Mapping[str, PtxKernel]:
        """Kernels by name: the program itself."""
        return self

    def __getitem__(self, name: str) -> PtxKernel:
        return self.kernel(name)

    def kernel(self, name: str, fmad: bool = True) -> PtxKernel:
        """Return a kernel; without ``fmad`` the one that keeps the rounding of each product and sum."""
        if name not in self.module.entries:
            names = ", ".join(self.module.entries) or "none"
            raise UnknownNameError("kernel", repr(name), names, "Use one of the names in program.kernels.")
        key = name, fmad and self.module.contracts
        if key not in self._kernels:
            from workbench.ptx.launch import PtxKernel

            entry = self.module.entries[name]
            with _no_collection():
                decoded = Decoded(self.module, entry, self.global_address, key[1])
            self._kernels[key] = PtxKernel(self, entry, decoded)
        return self._kernels[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.module.entries)

    def __len__(self) -> int:
        return len(self.module.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.module.entries

    def __repr__(self) -> str:
        return f"Program({', '.join(self.module.entries)})"

    @functools.cached_property
    def heap(self) -> DeviceHeap:
        """Heap for malloc in the program's kernels, which lives as long as the program."""
        from workbench.ptx.device_heap import DeviceHeap

        return DeviceHeap(_HEAP_BASE)

    def forget_heap(self) -> None:
        """Give up the memory that kernels took by malloc; the next launch begins with an empty heap."""
        vars(self).pop("heap", None)

    def parameters(self, name: str) -> tuple[Parameter, ...]:
        """Return the parameters of a kernel, in the order of a launch's arguments."""
        return self.module.entries[name].parameters

    def global_address(self, name: str) -> int:
        """Return a device variable's address in kernels, or the number that stands for a function's address.

        Raises KeyError for an unknown name.
        """
        return self._addresses[name]

    def variable_buffers(self) -> list[tuple[str, int, np.ndarray]]:
        """Return (name, address, storage) of every device variable."""
        return [(name, self._addresses[name], storage) for name, storage in self.variables.items()]

    def reset_variables(self) -> None:
        """Give every device variable its initial value again."""
        for variable in self.module.variables.values():
            if variable.name in self.variables:
                self.variables[variable.name][:] = 0
                if variable.initial:
                    _initialise(self, variable, variable.initial)

    def _place_variables(self, place: Callable[[int], int] | None) -> None:
        placed = [v for v in self.module.variables.values() if v.space in ("global", "const")]
        spans = [(v.size + 2 * _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT for v in placed]
        address = place(sum(spans)) if place is not None and placed else _GLOBALS_BASE
        for variable, span in zip(placed, spans, strict=True):
            self._addresses[variable.name] = address
            self.variables[variable.name] = np.zeros(max(variable.size, 1), np.uint8)
            address += span
        for variable in placed:
            if variable.initial:
                _initialise(self, variable, variable.initial)


def _initialise(program: Program, variable: parse.PtxVariable, values: str) -> None:
    storage, size = program.variables[variable.name], TYPE_SIZES[variable.type]
    position = 0
    for token in values.replace("{", " ").replace("}", " ").split(","):
        token = token.strip()
        if not token:
            continue
        value = parse.parse_number(token)
        if value is None:
            name = token.removeprefix("generic(").rstrip(")").split("+")[0].strip()
            if name not in program._addresses:
                raise parse.PtxSyntaxError(f"variable {variable.name}: cannot read the initial value {token!r}")
            value = program._addresses[name] + (int(token.split("+")[1].rstrip(") ")) if "+" in token else 0)
        if variable.type in _FORMATS:
            raw = struct.pack(_FORMATS[variable.type], value)
        else:
            raw = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        if position + size > variable.size:
            raise parse.PtxSyntaxError(
                f"variable {variable.name}: more initial values than its {variable.size} bytes hold"
            )
        storage[position : position + size] = np.frombuffer(raw, np.uint8)
        position += size


# Programs that somebody still holds: their variables keep their values even when the cache has dropped the program.
_IN_USE: weakref.WeakValueDictionary[str, Program] = weakref.WeakValueDictionary()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disable the garbage collector within the block.

    Decoding makes thousands of objects and no cycles, and the collector would walk them again and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@functools.lru_cache(maxsize=64)
def _program(text: str) -> Program:
    program = _IN_USE.get(text)
    if program is not None:
        return program
    program = _IN_USE[text] = Program(text)
    if len(program.module.entries) == 1:
        program[next(iter(program.module.entries))]
    return program
