"""A decoded kernel, and the places of its instructions in the source."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.ptx.calls import HEAP_CALLS
from workbench.ptx.chosen import only_chosen
from workbench.ptx.confirmed import confirmed, swapping
from workbench.ptx.extents import KernelExtents
from workbench.ptx.float_bits import uses_of_bits
from workbench.ptx.index_slices import index_steps
from workbench.ptx.parse import Statement
from workbench.ptx.proved import digest_of
from workbench.ptx.sample import dependence
from workbench.ptx.shapes import Dimensions
from workbench.ptx.unused import unused_loads
from workbench.ptx.unwritten import CopySources

if TYPE_CHECKING:
    from workbench.ptx.assemble import Decoded
    from workbench.ptx.parse import Body, Parameter, ParsedModule, PtxEntry


_COLLECTIVE = ("shfl", "vote", "match", "redux", "activemask", "elect")
_COARSE = 8  # so many sizes of a grid share what is known of their bits


def _limits(grid: Dimensions, block: Dimensions) -> tuple[tuple[str, int], ...]:
    """Return the bits that special registers have in a launch."""
    found = [("%laneid", 5)]
    for axis, blocks, threads in zip("xyz", grid, block, strict=True):
        bits = min(-(-blocks.bit_length() // _COARSE) * _COARSE, 31)
        found += [(f"%tid.{axis}", (threads - 1).bit_length()), (f"%ntid.{axis}", threads.bit_length())]
        found += [(f"%ctaid.{axis}", bits), (f"%nctaid.{axis}", bits)]
    return tuple(found)


def _statements(body: Body) -> list[Statement]:
    return [item for item in body if type(item) is Statement]


class DecodedKernel:
    """One entry of a module in the core's form."""

    def __init__(self, module: ParsedModule, entry: PtxEntry, decoded: Decoded, address_of: Callable[[str], int]):
        self.module = module
        self.entry = entry
        self.decoded = decoded
        self._address_of = address_of
        self._following: dict[tuple[tuple[str, int], ...], Any] = {}
        self._exact: dict[int, tuple[Any, Any]] = {}  # with what each was made from, by its id
        self.without_rule: dict[int, str] = {}
        """Reasons why exact comparison cannot go past an instruction, by pc."""
        self.trusted: dict[tuple[Any, ...], Any] = {}
        self._only_chosen: dict[int, bool] = {}
        self._confirmed: dict[int, bool] = {}
        self._unused_loads: dict[tuple[int, int, int], list[tuple[int, list[int]]]] = {}

    @property
    def name(self) -> str:
        """Name of the entry in the PTX."""
        return self.entry.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters of the entry, in order."""
        return self.entry.parameters

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the PTX text."""
        return digest_of(self.module.source)

    @functools.cached_property
    def lets_dependents_start(self) -> bool:
        """True if a launch that depends on it may begin before it ends."""
        return any(step.opcode.name == "griddepcontrol.launch_dependents" for step in self.decoded.code)

    @property
    def shared_bytes(self) -> int:
        """Static shared memory in bytes."""
        return self.decoded.static_shared

    @functools.cached_property
    def uses_heap(self) -> bool:
        """True for a kernel that calls malloc or free."""
        return any(instruction.opcode.name in HEAP_CALLS for instruction in self.decoded.code)

    @functools.cached_property
    def collective(self) -> bool:
        """True for a kernel whose lanes see registers of others."""
        return any(step.opcode.name.split(".")[0] in _COLLECTIVE for step in self.decoded.code)

    @functools.cached_property
    def dependence(self) -> str:
        """Means by which blocks can depend on each other: an instruction, or clusters; "" if there is none."""
        if self.entry.cluster not in (None, (1, 1, 1)):
            return f"clusters of {self.entry.cluster}"
        return dependence([instruction.opcode.name for instruction in self.decoded.code])

    @functools.cached_property
    def extents(self) -> KernelExtents:
        """Extents of its accesses: the one variable or argument that each of them may touch."""
        return KernelExtents(self.module, self.entry, self.decoded, self._address_of)

    @functools.cached_property
    def copy_sources(self) -> CopySources:
        """Memory that its copies read and its other instructions write."""
        return CopySources(self.entry, self.decoded, self.extents)

    def following(self, grid: Dimensions, block: Dimensions) -> Any:
        """Return the core's kernel that follows indexes which wrap; the plain one where none can reach an address."""
        limits = _limits(grid, block)
        if limits not in self._following:
            places = {step.start: pc for pc, step in enumerate(self.decoded.code) if step.start is not None}
            steps = index_steps(self.module.body(self.entry).rows(), dict(limits))
            rows = [(places[one.start], *one[1:]) for one in steps if one.start in places]
            self._following[limits] = self.decoded.core.following(rows) if rows else self.decoded.core
        return self._following[limits]

    def exact(self, code: Any) -> Any:
        """Return the core's kernel in which floats are elements of a ring.

        It ends a launch that reaches an instruction on floats without a rule, or one that reads the bits of a result;
        `without_rule` has the reasons.
        """
        if id(code) not in self._exact:
            statements = [item for item in self.module.body(self.entry) if type(item) is Statement]
            uses = uses_of_bits(statements)
            reasons = {
                pc: uses[step.start]
                for pc, step in enumerate(self.decoded.code)
                if step.start is not None and step.start in uses
            }
            made, without = code.exact([*reasons])
            self._exact[id(code)] = code, made
            names = {pc: self.decoded.code[pc].form.opcode.name for pc in without}
            self.without_rule |= reasons | {pc: f"no rule for {name}" for pc, name in names.items()}
        return self._exact[id(code)][1]

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

    def only_chosen(self, pc: int) -> bool:
        """Return True if selects alone use what a load reads."""
        load = self.decoded.code[pc].statement if 0 <= pc < len(self.decoded.code) else None
        if pc not in self._only_chosen:
            statements = _statements(self.module.body(self.entry))
            self._only_chosen[pc] = load is not None and only_chosen(statements, load)
        return self._only_chosen[pc]

    def confirmed(self, pc: int) -> bool:
        """Return True if an atomic confirms what a plain load reads."""
        if pc not in self._confirmed:
            step = self.decoded.code[pc] if 0 <= pc < len(self.decoded.code) else None
            load = step.statement if step is not None else None
            body = step.body if step is not None else None
            found = load is not None and body is not None and confirmed(_statements(body), load, self._swapping)
            self._confirmed[pc] = found
        return self._confirmed[pc]

    @functools.cached_property
    def _swapping(self) -> dict[str, bool]:
        functions = [one for one in self.module.functions.values() if one.body_start is not None]
        return swapping({one.name: _statements(self.module.body(one)) for one in functions})

    def source_of(self, pc: int, *, in_kernel_file: bool = False) -> tuple[str, int]:
        """Return (file, line) of an instruction; ("", 0) if the compiler left no .loc.

        With ``in_kernel_file``, code inlined from another file has the line of the kernel's own file that uses it.
        """
        if not 0 <= pc < len(self.decoded.code):
            return "", 0
        statement = self.decoded.code[pc].statement
        return self.module.place_of(statement.location if statement else None, in_kernel_file)
