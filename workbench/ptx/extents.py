"""Extents of accesses: the one variable or argument that an access may touch.

Its address is computed from nothing else (provenance.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from workbench.ptx.decode import short_name
from workbench.ptx.provenance import Access, origins

if TYPE_CHECKING:
    from workbench.ptx.assemble import Decoded
    from workbench.ptx.parse import ParsedModule, PtxEntry

SHARED_END = 1 << 24  # beyond offsets in shared memory and below addresses in global memory
_GLOBAL = ("global", "const")


class Extent(NamedTuple):
    """Memory of a variable or argument, from ``low`` on (an offset if ``in_shared``).

    ``text`` describes an argument: ", a view of shape (4, 8)".
    """

    name: str
    low: int
    size: int
    in_shared: bool = False
    text: str = ""
    filled: tuple[int, int] = (0, 0)
    """(n, m) if m bytes of every n belong to it; (0, 0) if all do."""

    @property
    def row(self) -> tuple[int, int, int, int]:
        """Extent in the core's form: where it begins and ends, and the bytes of each period that belong to it."""
        return self.low, self.low + self.size, *self.filled

    def place(self, address: int, width: int) -> str:
        """Return the place of an address as an element of ``width`` bytes, or as a byte if the width does not fit."""
        offset = address - self.low
        if width and not offset % width and not self.size % width:
            return f"element {offset // width:,} of {self.name}, which has {self.size // width:,}{self.text}"
        return f"byte {offset:,} of {self.name}, which has {self.size:,} bytes{self.text}"


class KernelExtents:
    """Extents of a kernel's accesses, by the pointer parameters of which a launch knows the extent."""

    def __init__(self, module: ParsedModule, entry: PtxEntry, decoded: Decoded, address_of: Callable[[str], int]):
        self._module, self._entry, self._decoded, self._address_of = module, entry, decoded, address_of
        self._variables: dict[str, Extent] = {}
        for begin, name in decoded.shared_variables.items():
            if decoded.shared_sizes[begin]:
                self._variables[name] = Extent(short_name(name), begin, decoded.shared_sizes[begin], in_shared=True)
        shared = len(self._variables)
        for name, one in module.variables.items():
            if one.space in _GLOBAL and one.size and not one.external:
                self._variables[name] = Extent(short_name(name), address_of(name), one.size)
        dynamic = sum(one.space == "shared" and one.external for one in module.variables.values())
        self._have_neighbours = (shared > 0 and shared + dynamic > 1) or len(self._variables) - shared > 1
        self._found: dict[frozenset[int], Sequence[tuple[int, Access]]] = {}

    def of_launch(self, arguments: Mapping[int, Extent]) -> list[tuple[int, Extent]]:
        """Return (pc, extent) of each access that has one, given those of arguments by their positions."""
        if not arguments and not self._have_neighbours:
            return []
        kept: dict[tuple[int, bool], Extent] = {}  # of a copy, its first address in each memory: the data's
        for pc, one in self.accesses(frozenset(arguments)):
            extent = self._variables.get(one.origin) if isinstance(one.origin, str) else arguments.get(one.origin)
            if extent is not None:
                kept.setdefault((pc, extent.in_shared), extent)
        return [(pc, extent) for (pc, _), extent in kept.items()]

    def variable(self, pc: int) -> Extent | None:
        """Return the variable that the first access at ``pc`` may touch; None if no one variable is known."""
        found = (one.origin for at, one in self.accesses(frozenset()) if at == pc)
        return self._variables.get(str(next(found, "")))

    def global_address(self, name: str) -> int | None:
        """Return the address of a variable in global memory; None for one in shared memory."""
        variable = self._module.variables.get(name)
        return None if variable is None or variable.space == "shared" else self._address_of(name)

    def accesses(self, pointers: frozenset[int]) -> Sequence[tuple[int, Access]]:
        """Return (pc, access) of each access whose address has one origin, of which the pointer parameters may be."""
        if pointers not in self._found:
            names = {one.name: at for at, one in enumerate(self._entry.parameters) if at in pointers}
            rows = self._module.body(self._entry).rows()
            found = origins(rows, [*self._module.variables, *self._variables], names)
            places = {step.start: pc for pc, step in enumerate(self._decoded.code) if step.start is not None}
            self._found[pointers] = [(places[one.start], one) for one in found if one.start in places]
        return self._found[pointers]
