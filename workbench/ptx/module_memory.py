"""Memory that a loaded PTX module keeps between launches: its device variables, and the heap of its kernels."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from workbench.base.element_types import PTX_BYTES
from workbench.ptx import parse
from workbench.ptx.parse import ParsedModule

if TYPE_CHECKING:
    from workbench.ptx.device_heap import DeviceHeap

_GLOBALS_BASE = 0x6000_0000_0000
_FUNCTIONS_BASE = 0x5000_0000_0000
_HEAP_BASE = 0x0E00_0000_0000
_ALIGNMENT = 512
_FORMATS = {"f32": "<f", "f64": "<d"}


class ModuleMemory:
    """Variables of a module by name, as bytes, and their addresses; ``place`` is that of `workbench.ptx.Program`."""

    def __init__(self, module: ParsedModule, place: Callable[[int], int] | None = None):
        self.module = module
        self.variables: dict[str, np.ndarray] = {}
        self._addresses = {name: _FUNCTIONS_BASE + 16 * i for i, name in enumerate(module.functions)}
        self._place_variables(place)

    @functools.cached_property
    def heap(self) -> DeviceHeap:
        """Heap for malloc in the program's kernels, which lives as long as the program."""
        from workbench.ptx.device_heap import DeviceHeap

        return DeviceHeap(_HEAP_BASE)

    def forget_heap(self) -> None:
        """Give up the memory that kernels took by malloc; the next launch begins with an empty heap."""
        vars(self).pop("heap", None)

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


def _initialise(memory: ModuleMemory, variable: parse.PtxVariable, values: str) -> None:
    storage, size = memory.variables[variable.name], PTX_BYTES[variable.type]
    position = 0
    for token in values.replace("{", " ").replace("}", " ").split(","):
        token = token.strip()
        if not token:
            continue
        value = parse.parse_number(token)
        if value is None:
            name = token.removeprefix("generic(").rstrip(")").split("+")[0].strip()
            if name not in memory._addresses:
                raise parse.PtxSyntaxError(f"variable {variable.name}: cannot read the initial value {token!r}")
            value = memory._addresses[name] + (int(token.split("+")[1].rstrip(") ")) if "+" in token else 0)
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
