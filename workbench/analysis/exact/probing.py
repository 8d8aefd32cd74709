"""Probes of two programs on ring elements: inputs changed here and there, and how one output element follows.

An output is seldom linear in an input, but a known function of it often is: of a softmax 1 / out is linear in the
exponentials, of a norm 1 / out². Where changes of single elements have the same effect in both programs, up to one
factor for all of them, the elements for which they do not are found by halves.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from workbench.analysis.exact import formulas
from workbench.analysis.exact.agreement import Part, Results
from workbench.analysis.exact.elements import MODULUS, P, function, multiply
from workbench.analysis.exact.ring import RingTensor, raw
from workbench.base.busy import OwnDeadline
from workbench.base.processes.deadline import Deadline

Inputs = Mapping[str, torch.Tensor]
"""Tensors of floats by name, or of ring elements that stand for floats."""


class OutOfLaunches(Exception):
    """All launches, or the time, that an explanation may take were used."""


@dataclass
class Programs:
    """Two programs on ring elements, each a function of its inputs, the ``launches`` that are left and the time."""

    kernel: Callable[[Inputs], Results]
    reference: Callable[[Inputs], Results]
    launches: int
    deadline: OwnDeadline | Deadline

    def launched(self, given: Inputs) -> Results:
        """Return the kernel's results. Raises OutOfLaunches."""
        if self.launches == 0 or self.deadline.left <= 0:
            raise OutOfLaunches("none is left")
        self.launches -= 1
        return self.kernel(given)

    def wanted(self, given: Inputs, factors: Mapping[str, int] | None = None) -> Results:
        """Return the reference's results, for inputs times elements. Raises OutOfLaunches."""
        if self.deadline.left <= 0:
            raise OutOfLaunches("no time is left")
        scaled = dict(given)
        for name, factor in (factors or {}).items():
            one = raw(RingTensor.of(given[name]))
            scaled[name] = RingTensor.made(multiply(one, torch.tensor(factor)), given[name].dtype, set())
        return self.reference(scaled)


@dataclass(frozen=True)
class OutputPlace:
    """One element of an output, by its index in row-major order."""

    output: str
    index: int

    def of(self, results: Results) -> int:
        """Return the element there."""
        return int(results[self.output].flatten()[self.index])


@dataclass(frozen=True)
class View:
    """A function of an output element in which the output may be linear; ``words`` say of what it is a sum.

    The square of a root and the exponential of a logarithm are known up to their sign: with ``signless`` each value may
    be its negative.
    """

    words: str
    name: str
    compute: Callable[[torch.Tensor], torch.Tensor]
    signless: bool = False

    @property
    def signs(self) -> tuple[int, ...]:
        """Factors by which a value may be wrong."""
        return (1, -1) if self.signless else (1,)

    def of(self, element: int) -> int | None:
        """Return the value modulo P; None where there is none."""
        found = int(self.compute(torch.tensor(element)))
        return found % P if found < MODULUS else None


def _inverse_square(x: torch.Tensor) -> torch.Tensor:
    inverse = function("inverse", x)
    return torch.where(inverse < MODULUS, inverse * inverse % MODULUS, inverse)


PLAIN = View("{}", "{}", lambda x: x)
INVERSE = View("the sum that divides {}", "1 / {}", lambda x: function("inverse", x))
INVERSE_SQUARE = View("the sum under the root that divides {}", "1 / {}²", _inverse_square, signless=True)
EXPONENTIAL = View("the sum whose logarithm {} is", "exp({})", formulas.exp, signless=True)


def views(part: Part) -> tuple[View, ...]:
    """Return the functions of an output element that are tried, in order."""
    return (EXPONENTIAL,) if part == "logarithm" else (PLAIN, INVERSE, INVERSE_SQUARE)


def changed(given: Inputs, name: str, positions: torch.Tensor, version: int = 0) -> dict[str, torch.Tensor]:
    """Return inputs of which one has other numbers at some positions of its row-major order."""
    one = given[name]
    mask = torch.zeros(one.numel(), dtype=torch.bool)
    mask[positions] = True
    wide = one.double()
    other = wide * (1.5, 1.25, 0.75)[version] + (0.25, 0.75, 1.25)[version]
    return {**given, name: torch.where(mask.view(one.shape), other, wide).to(one.dtype)}


@dataclass(frozen=True)
class Effect:
    """Elements at one place after a change, of the kernel and of the reference."""

    found: int
    wanted: int


class Probing:
    """Two programs on one draw of inputs, looked at in one place."""

    def __init__(self, programs: Programs, given: Inputs, place: OutputPlace, part: Part):
        self.programs, self.given, self.place = programs, given, place
        self.views = views(part)
        self.before = Effect(place.of(programs.launched(given)), place.of(programs.wanted(given)))

    def wanted(self, name: str, positions: torch.Tensor, version: int = 0) -> int:
        """Return the reference's element after a change."""
        return self.place.of(self.programs.wanted(changed(self.given, name, positions, version)))

    def found(self, name: str, positions: torch.Tensor, version: int = 0) -> int:
        """Return the kernel's element after a change. Raises OutOfLaunches."""
        return self.place.of(self.programs.launched(changed(self.given, name, positions, version)))

    def effect(self, name: str, positions: torch.Tensor, version: int = 0) -> Effect:
        """Return both elements after a change; another one where something is undefined. Raises OutOfLaunches."""
        effect = Effect(self.found(name, positions, version), self.wanted(name, positions, version))
        if version == 0 and max(effect.found, effect.wanted) >= MODULUS:
            return self.effect(name, positions, 1)
        return effect

    def kept(self, before: int, after: Callable[[int], int]) -> bool:
        """Return True if an element stays as it was ``before`` two changes.

        Roots and exponentials have 179 values: one change leaves them as they are by chance too often.
        """
        count = 0
        for version in range(3):
            element = after(version)
            if element < MODULUS:
                if self.views[0].of(element) != self.views[0].of(before):
                    return False
                count += 1
            if count == 2:
                break
        return True

    def without(self, name: str, positions: torch.Tensor) -> bool:
        """Return True if the reference does not depend on some elements."""
        return self.kept(self.before.wanted, functools.partial(self.wanted, name, positions))

    def missing(self, name: str, positions: torch.Tensor) -> bool:
        """Return True if the reference depends on some elements, and the kernel does not."""
        found = functools.partial(self.found, name, positions)
        return self.kept(self.before.found, found) and not self.without(name, positions)

    def moves(self, effect: Effect, view: View) -> set[tuple[int, int]]:
        """Return by how much a change may move the kernel's value and the reference's in a view, if defined."""
        values = [view.of(one) for one in (effect.found, self.before.found, effect.wanted, self.before.wanted)]
        if any(one is None for one in values):
            return set()
        found, before_found, wanted, before_wanted = (int(one) for one in values if one is not None)
        return {
            ((one * found - before_found) % P, (other * wanted - before_wanted) % P)
            for one in view.signs
            for other in view.signs
        }

    # ---- what the reference depends on

    def box(self, name: str) -> torch.Tensor:
        """Return the positions of the smallest block of an input that holds all that the reference depends on."""
        shape = self.given[name].shape
        ranges = [(0, size) for size in shape]
        every = _positions(shape, ranges)
        if every.numel() == 0 or self.without(name, every):
            return every[:0]
        for axis in range(len(shape)):
            ranges[axis] = self._narrowed(name, ranges, axis)
        return _positions(shape, ranges)

    def _narrowed(self, name: str, ranges: list[tuple[int, int]], axis: int) -> tuple[int, int]:
        """Return the part of a block's range along an axis without which the reference's element changes."""
        low, high = ranges[axis]

        def kept(part: tuple[int, int]) -> bool:
            block = [*ranges[:axis], part, *ranges[axis + 1 :]]
            return self.without(name, _positions(self.given[name].shape, block))

        first, last = low, high - 1  # the least first index that matters
        while first < last:
            middle = (first + last + 1) // 2
            first, last = (middle, last) if kept((low, middle)) else (first, middle - 1)
        low = first
        first, last = low, high - 1  # the greatest one
        while first < last:
            middle = (first + last) // 2
            first, last = (first, middle) if kept((middle + 1, high)) else (middle + 1, last)
        return low, first + 1

    # ---- what both do

    def factor(self, name: str, positions: torch.Tensor) -> tuple[View, int] | None:
        """Return the view in which single elements have the same effect in both, up to one factor, and the factor."""
        effects = [self.effect(name, positions[one : one + 1]) for one in _spread(len(positions))]
        best: tuple[int, bool, View, int] | None = None
        for view in self.views:
            counts = Counter(value for effect in effects for value in _ratios(self.moves(effect, view)))
            for value, count in counts.items():
                usual = value == 1 or (view.signless and value == P - 1)
                enough = value and count >= min(2 + view.signless, len(positions))
                if enough and (best is None or (count, usual) > best[:2]):
                    best = count, usual, view, value
        return best and best[2:]

    def others(self, name: str, positions: torch.Tensor, view: View, factor: int) -> Iterator[tuple[torch.Tensor, int]]:
        """Yield positions where the effect is not the reference's times a factor, and the ratio there, 0 for none.

        Raises OutOfLaunches.
        """
        effect = self.effect(name, positions)
        moves = self.moves(effect, view)
        if _in_ratio(moves, factor):
            again = self.moves(self.effect(name, positions, 1), view) if view.signless else set()
            if not again or _in_ratio(again, factor):  # of four pairs of signs one fits by chance in 1 of 90
                return
        if self._stays(effect.found) and self.missing(name, positions):
            yield positions, 0
        elif len(positions) > 1:
            half = len(positions) // 2
            yield from self.others(name, positions[:half], view, factor)
            yield from self.others(name, positions[half:], view, factor)
        else:
            again = self.moves(self.effect(name, positions, 1), view)
            same = _ratios(moves) & _ratios(again)
            if len(same) == 1:
                yield positions, same.pop()

    def extra(self, name: str, positions: torch.Tensor) -> torch.Tensor:
        """Return a position outside the reference's that the kernel depends on, empty without one."""
        if not len(positions) or self._stays(self.found(name, positions)):
            return positions[:0]
        while len(positions) > 1:
            half = len(positions) // 2
            first = not self._stays(self.found(name, positions[:half]))
            positions = positions[:half] if first else positions[half:]
        sure = not self.kept(self.before.found, functools.partial(self.found, name, positions))
        return positions if sure and self.without(name, positions) else positions[:0]

    def _stays(self, found: int) -> bool:
        """Return True if the kernel's element is as it was, which may be chance."""
        return self.views[0].of(found) == self.views[0].of(self.before.found)


def _in_ratio(moves: set[tuple[int, int]], factor: int) -> bool:
    return any(found == factor * wanted % P for found, wanted in moves)


def _ratios(moves: set[tuple[int, int]]) -> set[int]:
    return {ratio(*one) for one in moves if one[1]}


def ratio(found: int, wanted: int) -> int:
    """Return a quotient modulo P."""
    return found * pow(wanted, -1, P) % P


def _positions(shape: Sequence[int], ranges: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Return the positions of a block in row-major order."""
    numbers = torch.arange(torch.Size(shape).numel()).view(tuple(shape))
    return numbers[tuple(slice(*one) for one in ranges)].flatten()


def _spread(count: int) -> list[int]:
    """Return up to seven places among so many: at both ends and in the middle, also side by side."""
    wanted = (0, 1, 2, count // 2, count // 2 + 1, count - 2, count - 1)
    return sorted({one for one in wanted if 0 <= one < count})
