"""Families of launches from launches that were seen: numbers of the launches as formulas of its sizes.

A size is a whole number that the kernel gets. An array, a dimension of an array and the grid follow a formula of sizes
if it fits all launches that were seen. What fits no formula is fixed.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from workbench.analysis.seen_launches import PassedArray, SeenLaunch
from workbench.proof.family import Family
from workbench.proof.launch_formulas import NAME, SizeFormulas, evaluated, renamed, unused
from workbench.proof.tensors import ALIGNMENT, TensorArgument, bytes_of
from workbench.proof.terms import term
from workbench.proof.unknown import Unknown

ALL, ALIKE, WITHIN, LAUNCHED = "all sizes", "sizes like those launched", "sizes up to those launched", "the launch"
"""The scopes of proofs of launches, the most general one first."""
_WORDS = {4: "int32", 2: "int16", 8: "int64", 1: "uint8"}
"""Types for elements of which only the size is known; only the size counts."""
_MOST_COINCIDENCES = 6
_WORDS_OF_FACTS = ("v", "i", "distinct", "and", "or", "not", "min", "max", "cdiv")
_ATTRIBUTE = re.compile(r"\.\w+")
_LLVM_DIVISOR = 16
"""Triton compiles anew for a number that is not a multiple of 16, as those so far were."""


@dataclass(frozen=True)
class Reading:
    """A family of launches of which those that were seen are members.

    Attributes:
        scope: `ALL`, `ALIKE`, `WITHIN` or `LAUNCHED`.
        family: the launches, see `Family`.
        sizes: the symbols with the values that were seen.
        fixed: what is a number, by name.
        refutes: True if a counterexample counts against the kernel: its sizes are between those of launches that
            differ, and the formulas fit all of these.
        contents: what the arrays of a single launch held, by name; None if that is not known of all.
    """

    scope: str
    family: Family
    sizes: Mapping[str, tuple[int, ...]]
    fixed: Mapping[str, str]
    refutes: bool = False
    contents: Mapping[str, bytes] | None = None

    @property
    def arrays(self) -> dict[str, str]:
        """Arrays whose shapes are formulas, by name; ``"= x"`` for the memory of x, ``"= n * m"`` for a number."""
        given = {name: one for name, one in self.family.args.items() if isinstance(one, str)}
        shapes = {name: one for name, one in given.items() if "[" in one}
        others = {name: f"= {one}" for name, one in given.items() if one in shapes or "*" in one}
        return shapes | {name: one for name, one in others.items() if name not in shapes}

    @property
    def text(self) -> str:
        """The sizes, and what is fixed, in words."""
        sizes = ", ".join(f"{name} (launched with {_listed(values)})" for name, values in self.sizes.items())
        arrays = ", ".join(f"{name} {one}" for name, one in self.arrays.items())
        fixed = ", ".join(f"{name} = {value}" for name, value in self.fixed.items())
        dynamic = self.family.shared_bytes
        shared = f"{dynamic} bytes of dynamic shared memory" if dynamic else ""
        return "; ".join(filter(None, [sizes and f"sizes: {sizes}", arrays, shared, fixed and f"fixed: {fixed}"]))


def _listed(values: Iterable[int]) -> str:
    found = [f"{one:,}" for one in dict.fromkeys(values)]
    return ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")


@dataclass
class _Made:
    """A family on its way: formulas of the arrays and the grid, and facts."""

    arrays: dict[str, str] = field(default_factory=dict)
    grid: list[str | int] = field(default_factory=list)
    facts: dict[str, None] = field(default_factory=dict)


class LaunchPattern:
    """Launches of one kernel that have the same block.

    ``facts`` are about the elements of its arrays. Raises Unknown for arguments that overlap without being the same.
    """

    def __init__(self, launches: Sequence[SeenLaunch], facts: Mapping[str, str] | None = None):
        self.launches, self.facts = launches, facts or {}
        self.kernel = launches[0].kernel
        self.parameters = [one for one in self.kernel.parameters if not one.scratch]
        self._at = {one.name: at for at, one in enumerate(self.kernel.parameters)}
        self._check_overlaps()

    @cached_property
    def numbers(self) -> dict[str, tuple[int, ...]]:
        """Whole numbers of the launches, by the name of the parameter."""
        found = {}
        for one in self.parameters:
            values = self._values(one.name)
            if all(isinstance(value, int) for value in values):
                found[one.name] = tuple(value for value in values if isinstance(value, int))
        return found

    @cached_property
    def arrays(self) -> dict[str, tuple[PassedArray, ...]]:
        """Arrays of the launches, by the name of the parameter."""
        found = {}
        for one in self.parameters:
            values = self._values(one.name)
            if all(isinstance(value, PassedArray) for value in values):
                found[one.name] = tuple(value for value in values if isinstance(value, PassedArray))
        return found

    @property
    def confirmed(self) -> bool:
        """True if sizes differ between launches, so that formulas do not fit one set of numbers alone."""
        return any(len(set(values)) > 1 for values in self._sizes.values())

    def readings(self) -> Iterator[Reading]:
        """Yield families of which all launches are members, the most general first."""
        if any(
            len({one.bytes for one in arrays}) > 1 and not self._formulas_of(name)
            for name, arrays in self.arrays.items()
        ):
            return
        general, narrow = self._general(), self._narrow()
        if general is None or narrow is None:
            return
        yield general
        if not _same(general, narrow):
            yield narrow
        within = self._within([one for one in general.sizes if one in self._sizes])
        if within is not None:
            yield replace(within, refutes=self.confirmed)

    def alone(self) -> Iterator[Reading]:
        """Yield each launch as it was."""
        for at, launch in enumerate(self.launches):
            args: dict[str, object] = {one.name: self._fixed(one.name, at) for one in self.parameters}
            fixed = {name: str(values[at]) for name, values in self.numbers.items()}
            known, shared = self._known(args, ()), launch.shared_bytes
            family = Family(self.kernel, launch.grid, launch.block, args, known, shared, aligned=self._aligned)
            fixed |= {name: f"{value[at].bytes:,} bytes" for name, value in self.arrays.items()}
            yield Reading(LAUNCHED, family, {}, {"grid": str(launch.grid)} | fixed, contents=self._contents(at))

    # -- families -----------------------------------------------------------------------------------------------

    def _general(self) -> Reading | None:
        made = _Made()
        for name in self.arrays:
            formulas = self._formulas_of(name)
            if formulas:
                made.arrays[name] = formulas[0]
        self._set_grid(made)
        return self._reading(ALL, made, self._used(made))

    def _narrow(self) -> Reading | None:
        """Return the family in which all that coincides in the launches does so in each: equal sizes, divisors."""
        made = _Made()
        for name in self.arrays:
            formulas = self._formulas_of(name)
            if formulas:
                made.arrays[name] = formulas[0]
                self._equate(made, [one.replace(",", " *") for one in formulas])
        self._set_grid(made, equate=True)
        return self._reading(ALIKE, made, self._used(made), tie=True)

    def _within(self, used: Sequence[str]) -> Reading | None:
        """Return the family with sizes between those of the launches; up to those of a single one, with its arrays."""
        made = _Made()
        if self.confirmed:
            made.arrays = {name: found[0] for name in self.arrays if (found := self._formulas_of(name))}
        self._set_grid(made, equate=True)
        for name in used:
            values = self._sizes[name]
            made.facts[f"{name} <= {max(values)}"] = None
            if self.confirmed and min(values) > 1:
                made.facts[f"{name} >= {min(values)}"] = None
        return self._reading(WITHIN, made, used, tie=True)

    def _reading(self, scope: str, made: _Made, used: Sequence[str], tie: bool = False) -> Reading | None:
        """Return the reading of a family with the sizes that are ``used``; None if there is none."""
        if not used:
            return None
        tied = {name: self._tied(name, used if not tie else []) for name in self._sizes}
        symbols = {tied[name]: self._sizes[tied[name]] for name in used}
        products = SizeFormulas(dict(symbols))
        args: dict[str, object] = {}
        fixed: dict[str, str] = {}
        for one in self.parameters:
            name = one.name
            if name in made.arrays:
                first = self._first_of(name)
                args[name] = first if first != name else self._array(name, renamed(made.arrays[name], tied))
            elif name in tied and tied[name] in symbols:
                args[name] = tied[name]
            elif found := products.monomials(self.numbers.get(name, ())):
                args[name] = found[0]
            elif len(set(self.numbers.get(name, ()))) > 1:  # a number that is no size, such as a step
                args[name] = name
                symbols[name] = values = self.numbers[name]
                made.facts |= {f"{name} >= {min(values)}": None, f"{name} <= {max(values)}": None}
            else:
                args[name] = self._fixed(name, 0)
                if name in self.numbers:
                    fixed[name] = str(args[name])
                elif name in self.arrays:
                    fixed[name] = f"{max(one.bytes for one in self.arrays[name]):,} bytes"
        for name in symbols:
            made.facts |= dict.fromkeys(self._promised(name))
            if tie:
                made.facts |= dict.fromkeys(self._divisors(name, made.grid))
        grid = [one if isinstance(one, int) else renamed(one, tied) for one in made.grid]
        fixed |= {f"grid.{axis}": str(one) for axis, one in zip("xyz", grid, strict=True) if one not in (1, "1") and
                  isinstance(one, int)}  # fmt: skip
        facts = dict.fromkeys(one for one in (renamed(fact, tied) for fact in made.facts) if not _is_same(one))
        launch, shared = self.launches[0], self._shared
        fixed_shared = scope == WITHIN and not self.confirmed
        least = min(one.shared_bytes for one in self.launches)
        dynamic = least if fixed_shared or not isinstance(shared, str) else renamed(shared, tied)
        known = self._known(args, symbols)
        family = Family(self.kernel, tuple(grid), launch.block, args, (*facts, *known), dynamic, aligned=self._aligned)
        return Reading(scope, family, symbols, fixed)

    def _known(self, args: Mapping[str, object], symbols: Iterable[str]) -> list[dict[str, str]]:
        """Return the facts about elements whose words the family has: sizes, and shapes of arrays as they were."""
        ranks = {name: len(one[0].shape) for name, one in self.arrays.items()}
        whole = {
            name for name, one in args.items() if isinstance(one, str) and "[" in one
            and one.count(",") + 1 == ranks.get(name)
        }  # fmt: skip
        words = {*whole, *symbols, *_WORDS_OF_FACTS}
        return [
            {name: text} for name, text in self.facts.items()
            if name in self.arrays and {*NAME.findall(_ATTRIBUTE.sub("", text))} <= words
        ]  # fmt: skip

    def _used(self, made: _Made) -> list[str]:
        """Return the sizes of which the arrays and the grid are formulas, in the order of the parameters."""
        texts = " ".join([*made.arrays.values(), *map(str, made.grid), str(self._shared)])
        words = {*NAME.findall(texts)}
        return [name for name in self._sizes if name in words]

    def _tied(self, name: str, apart: Sequence[str]) -> str:
        """Return the first size that has the same values; those ``apart`` keep their names."""
        if name in apart:
            return name
        return next(one for one in [*apart, *self._sizes] if self._sizes[one] == self._sizes[name])

    def _divisors(self, name: str, grid: Sequence[str | int]) -> Iterator[str]:
        """Yield the largest power of two that divides all values of a size, up to the tiles of the grid, as a fact."""
        common = math.gcd(*self._sizes[name]) if name in self._sizes else 1
        tiles = [int(one) for text in grid for one in re.findall(r"\d+", str(text))]
        power = min(common & -common, max([*tiles, _LLVM_DIVISOR], key=lambda one: one & -one))
        if power > 1:
            yield f"{name} % {power} == 0"

    def _promised(self, name: str) -> Iterator[str]:
        """Yield what Triton's code relies on where its parameters do not say so."""
        if name not in self.numbers:
            return
        one = self.kernel.parameters[self._at[name]]
        divided = all(value % _LLVM_DIVISOR == 0 for value in self.numbers[name])
        if self.kernel.language == "triton" and one.divisibility == 1 and divided:
            yield f"{name} % {_LLVM_DIVISOR} == 0"

    # -- formulas -----------------------------------------------------------------------------------------------

    @cached_property
    def _sizes(self) -> dict[str, tuple[int, ...]]:
        """Numbers that may be sizes: above 1 in a launch, and below 1 in none; and blocks that follow none of these."""
        found = {name: one for name, one in self.numbers.items() if min(one) >= 1 and max(one) > 1}
        given = SizeFormulas(found)
        block = self.launches[0].block
        for axis, letter in enumerate("xyz"):
            values = tuple(one.grid[axis] for one in self.launches)
            name = f"blocks_{letter}"
            if max(values) == 1 or name in self._at or given.of_grid(values, block[axis], block[axis], 0):
                continue
            shapes = (self._formulas_of(one, SizeFormulas(found | {name: values})) for one in self.arrays)
            follow = any(name in NAME.findall(one[0]) for one in shapes if one)
            if follow or not given.of_grid(values, block[axis], math.prod(block)):
                found[name] = values
        return found

    @cached_property
    def _formulas(self) -> SizeFormulas:
        return SizeFormulas(self._sizes)

    def _formulas_of(self, name: str, formulas: SizeFormulas | None = None) -> list[str]:
        """Return the formulas of an array's shape that fit; with sizes of its own for its dimensions first."""
        formulas = formulas or self._formulas
        arrays = self.arrays[name]
        if any(one.bytes == 0 for one in arrays):
            return []
        shapes = {one.shape for one in arrays}
        ranks = {len(one) for one in shapes}
        found = []
        if ranks != {0} and len(ranks) == 1:
            found += formulas.of_dimensions([one.shape for one in arrays])
        element = self._element(name)
        for size in (element,) if element else _WORDS:
            if not any(one.bytes % size for one in arrays):
                counts = [one.bytes // size for one in arrays]
                found += formulas.monomials(counts) or formulas.affine(counts)
            if found:
                break
        return [*dict.fromkeys(found)][:_MOST_COINCIDENCES]

    @cached_property
    def _shared(self) -> str | int | None:
        """Dynamic shared memory: a number, a formula of sizes, or None if it differs and follows none."""
        values = [one.shared_bytes for one in self.launches]
        formulas = self._formulas.of_bytes(values) if max(values) else []
        fixed = values[0] if len(set(values)) == 1 else None
        return fixed if not formulas or (fixed is not None and self.confirmed) else formulas[0]

    def _element(self, name: str) -> int:
        """Return the bytes of an element; 0 if they are not known."""
        dtypes = {one.dtype for one in self.arrays[name]}
        return bytes_of(name, dtypes.pop()) if len(dtypes) == 1 and "" not in dtypes else 0

    def _array(self, name: str, text: str) -> str:
        arrays = self.arrays[name]
        dtype = arrays[0].dtype
        if not dtype:
            count = evaluated(text, {one: values[0] for one, values in self._sizes.items()})
            dtype = _WORDS[arrays[0].bytes // count]
        return f"{dtype}[{text}]"

    def _set_grid(self, made: _Made, equate: bool = False) -> None:
        """Choose a formula for each axis; of equal sizes one that stands first for z, one that stands last for x."""
        block = self.launches[0].block
        for axis in (2, 1, 0):
            values = [one.grid[axis] for one in self.launches]
            if set(values) == {1}:
                made.grid.insert(0, 1)
                continue
            formulas = self._formulas.of_grid(values, block[axis], math.prod(block))[:_MOST_COINCIDENCES]
            chosen = unused(formulas, made.grid)
            if chosen == f"blocks_{'xyz'[axis]}" and chosen not in NAME.findall(" ".join(made.arrays.values())):
                if len(set(values)) > 1:
                    made.facts |= {f"{chosen} >= {min(values)}": None, f"{chosen} <= {max(values)}": None}
                made.grid.insert(0, chosen if len(set(values)) > 1 else values[0])
                continue
            made.grid.insert(0, chosen)
            if equate:
                self._equate(made, formulas)

    def _equate(self, made: _Made, formulas: Sequence[str]) -> None:
        """Add that formulas which all fit are equal, unless they differ by names of equal sizes alone."""
        for other in formulas[1:]:
            made.facts[f"{formulas[0]} == {other}"] = None

    # -- values -------------------------------------------------------------------------------------------------

    def _values(self, name: str) -> list[object]:
        return [launch.values[self._at[name]] for launch in self.launches]

    def _fixed(self, name: str, at: int) -> object:
        """Return the argument of a launch as it was; of an array the largest of all, as bytes of one name."""
        value = self._values(name)[at]
        if not isinstance(value, PassedArray):
            return value
        dtype, first = value.dtype or "uint8", self._first_of(name)
        if first == name and value.shape:
            return f"{dtype}[{', '.join(map(str, value.shape))}]"
        element = bytes_of(name, dtype)
        return TensorArgument(first, dtype, (term(value.bytes // element),), element)

    def _contents(self, at: int) -> dict[str, bytes] | None:
        """Return what the arrays of a launch held, by the first name of each memory; None if one is not known."""
        found: dict[str, bytes] = {}
        for name, values in self.arrays.items():
            content, first = values[at].content, self._first_of(name)
            if content is None:
                return None
            found[first] = max(found.get(first, b""), content, key=len)
        return found

    def _first_of(self, name: str) -> str:
        """Return the first parameter that is the same memory in all launches."""
        addresses = [value.address for value in self.arrays.get(name, ())]
        return next(
            (one for one, values in self.arrays.items() if [value.address for value in values] == addresses), name
        )

    @cached_property
    def _aligned(self) -> dict[str, int]:
        """Return the multiples of bytes at which arrays begin that do not all begin at one of 16."""
        found = {name: math.gcd(ALIGNMENT, *(one.address for one in arrays)) for name, arrays in self.arrays.items()}
        return {name: align for name, align in found.items() if align < ALIGNMENT}

    def _check_overlaps(self) -> None:
        for launch in self.launches:
            arrays = sorted(
                {(one.address, one.bytes) for one in launch.values if isinstance(one, PassedArray) and one.bytes}
            )
            for (begin, size), (other, _) in itertools.pairwise(arrays):
                if other < begin + size:
                    raise Unknown(None, "two of its arguments are parts of one allocation, of which one reaches "
                                  "into the other, as far as the launch shows")  # fmt: skip


def _is_same(fact: str) -> bool:
    left, _, right = fact.partition(" == ")
    return left == right


def _same(one: Reading | None, other: Reading | None) -> bool:
    if one is None or other is None:
        return one is other
    a, b = one.family, other.family
    return (a.grid, a.args, a.facts) == (b.grid, b.args, b.facts)
