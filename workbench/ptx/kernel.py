"""A decoded kernel, and the places of its instructions in the source."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from workbench.ptx.calls import HEAP_CALLS
from workbench.ptx.sample import dependence
from workbench.ptx.unused import unused_loads

if TYPE_CHECKING:
    from workbench.ptx.assemble import Decoded
    from workbench.ptx.parse import Parameter, ParsedModule, PtxEntry


class DecodedKernel:
    """One entry of a module in the core's form."""

    def __init__(self, module: ParsedModule, entry: PtxEntry, decoded: Decoded):
        self.module = module
        self.entry = entry
        self.decoded = decoded
        self._unused_loads: dict[tuple[int, int, int], list[tuple[int, list[int]]]] = {}

    @property
    def name(self) -> str:
        """Name of the entry in the PTX."""
        return self.entry.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters of the entry, in order."""
        return self.entry.parameters

    @property
    def shared_bytes(self) -> int:
        """Static shared memory in bytes."""
        return self.decoded.static_shared

    @functools.cached_property
    def uses_heap(self) -> bool:
        """True for a kernel that calls malloc or free."""
        return any(instruction.opcode.name in HEAP_CALLS for instruction in self.decoded.code)

    @functools.cached_property
    def dependence(self) -> str:
        """Means by which blocks can depend on each other: an instruction, or clusters; "" if there is none."""
        if self.entry.cluster not in (None, (1, 1, 1)):
            return f"clusters of {self.entry.cluster}"
        return dependence([instruction.opcode.name for instruction in self.decoded.code])

    def __repr__(self) -> str:
        types = ", ".join(f".{parameter.type}" for parameter in self.parameters)
        return f"{type(self).__name__}({self.name}({types}), {len(self.decoded.code)} instructions)"

    def unused(self, block: tuple[int, int, int]) -> list[tuple[int, list[int]]]:
        """Return (pc, a mask of lanes per warp) for each load whose value some threads of a block do not use."""
        if block not in self._unused_loads:
            found = unused_loads(self.module.body(self.entry), block)
            self._unused_loads[block] = [
                (pc, found[step.start].tolist()) for pc, step in enumerate(self.decoded.code) if step.start in found
            ]
        return self._unused_loads[block]

    def source_of(self, pc: int, *, in_kernel_file: bool = False) -> tuple[str, int]:
        """Return (file, line) of an instruction; ("", 0) if the compiler left no .loc.

        With ``in_kernel_file``, code inlined from another file has the line of the kernel's own file that uses it.
        """
        if not 0 <= pc < len(self.decoded.code):
            return "", 0
        statement = self.decoded.code[pc].statement
        return self.module.place_of(statement.location if statement else None, in_kernel_file)
