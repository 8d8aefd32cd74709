"""A difference of two programs in words: where it is, which terms differ and how, and a small input that shows it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from workbench.analysis.exact.agreement import Part, Results, differing
from workbench.analysis.exact.elements import MODULUS, UNDEFINED, Numbers, P, element_of
from workbench.analysis.exact.naming import SHOWN, ExactNames, number_text
from workbench.analysis.exact.places import differences, places
from workbench.analysis.exact.probing import (
    PLAIN,
    Inputs,
    OutOfLaunches,
    OutputPlace,
    Probing,
    Programs,
    View,
    ratio,
    views,
)
from workbench.errors import WorkbenchError

_ROUNDING = 2.0**-22
"""Largest relative error of a constant in float32 that compilers compute, such as the square root of 2 / pi."""


@dataclass(frozen=True)
class Explanation:
    """A difference in words, a line each: where it is, the terms that differ, an input that shows it.

    ``rounded`` is not empty where the programs are the same but for the rounding of a number in the kernel.
    """

    lines: Sequence[str] = ()
    rounded: str = ""


def explained(
    programs: Programs, results: tuple[Results, Results], draws: Sequence[Inputs], part: Part, names: ExactNames
) -> Explanation:
    """Explain a difference.

    ``draws`` are two draws of the inputs, on the first of which the programs have the ``results``. The launches that
    are left decide how much is found.
    """
    masks = differences(results, part)
    lines = places(masks, names)
    if not masks:
        return Explanation()
    search = _Search(programs, results, masks, draws, part, names)
    try:
        search.find_numbers()
        for step in (search.terms, search.smallest):
            lines += step()
    except OutOfLaunches:
        lines += search.noted
        lines.append("the launches that an explanation may take were used up here")
    return Explanation(lines, search.rounded)


class _Search:
    def __init__(
        self,
        programs: Programs,
        results: tuple[Results, Results],
        masks: Mapping[str, torch.Tensor],
        draws: Sequence[Inputs],
        part: Part,
        names: ExactNames,
    ):
        self.programs, self.draws, self.part, self.names = programs, draws, part, names
        self.results, self.masks = results, masks
        self.replaceable: Sequence[float] = ()
        self.noted: list[str] = []
        """Lines of the present step so far."""
        self.rounded = ""

    def find_numbers(self) -> None:
        """Find the numbers that a reference in torch computes with, in whose place it can compute with others."""
        with Numbers() as numbers:
            self.programs.wanted(self.given)
        self.replaceable = sorted(numbers.used - {0, 1, 2, -1})
        self.names = replace(self.names, numbers=[*self.names.numbers, *self.replaceable])

    @property
    def given(self) -> Inputs:
        return self.draws[0]

    def _named(self, name: str, positions: torch.Tensor) -> str:
        return self.names.place(name, positions, self.given[name].shape)

    def _called(self, place: OutputPlace) -> str:
        return self.names.place(place.output, torch.tensor([place.index]), self.results[1][place.output].shape)

    # ---- terms

    def terms(self) -> list[str]:
        """Return how the results differ, or in which terms."""
        if not self.masks:
            return []
        for found in (self._overall, self._other_number, self._constant):
            if lines := found():
                return lines
        for place in self._places():
            self._add_terms(place)
        if not self.noted:
            self.noted += self._scaled_input()
        return self.noted or ["no single term, factor or number was found that explains it"]

    def _places(self) -> list[OutputPlace]:
        """Return the first element that differs, and the last."""
        name, mask = next(iter(self.masks.items()))
        positions = mask.flatten().nonzero().flatten()
        wanted = self.results[1][name].flatten()[positions]
        known = positions[wanted % P != 0] if bool((wanted % P != 0).any()) else positions
        return [OutputPlace(name, int(one)) for one in dict.fromkeys((int(known[0]), int(known[-1])))]

    def _overall(self) -> list[str]:
        """Return one factor or one term in which all elements of an output differ from the reference's."""
        if self.part == "logarithm":
            return []
        others = self.second, self.programs.wanted(self.draws[1])
        found = []
        for name in self.masks:
            pairs = [[one[name].flatten() for one in results] for results in (self.results, others)]
            factor = _agreed(_common_factor(*one) for one in pairs)
            term = _agreed(_common_term(*one) for one in pairs)
            if factor is not None:
                text = self.names.factor([factor], self._sizes) or "a number"
                found.append(f"every element of {name} is {text} times {self._theirs}")
            elif term is not None:
                text = self.names.term_too_much(term) or "a number more"
                found.append(f"every element of {name} is {text} than {self._theirs}")
        return found

    @property
    def _theirs(self) -> str:
        return f"{self.names.reference}'s"

    @property
    def _sizes(self) -> list[int]:
        return [size for one in self.given.values() for size in one.shape]

    def _add_terms(self, place: OutputPlace) -> None:
        """Note the terms of each input in which one output element differs."""
        probing = Probing(self.programs, self.given, place, self.part)
        out = self._called(place)
        for name, one in self.given.items():
            box = probing.box(name)
            outside = torch.ones(one.numel(), dtype=torch.bool)
            outside[box] = False
            extra = probing.extra(name, outside.nonzero().flatten())
            if len(extra):
                self.noted.append(f"{out} depends on {self._named(name, extra)}, and {self._theirs} does not")
            if not len(box):
                continue
            if probing.missing(name, box):
                self.noted.append(f"{self._named(name, box)} is missing from {out}")
                continue
            if view := probing.factor(name, box):
                self._add_terms_of(probing, name, box, *view)

    def _add_terms_of(self, probing: Probing, name: str, box: torch.Tensor, view: View, factor: int) -> None:
        out = self._called(probing.place)
        by_ratio: dict[int, list[torch.Tensor]] = {}
        try:
            for part in box.chunk(8):
                for positions, value in probing.others(name, part, view, factor):
                    by_ratio.setdefault(value, []).append(positions)
                if sum(map(len, by_ratio.values())) > 4 * SHOWN and 0 not in by_ratio:
                    return  # not linear in this view
        except OutOfLaunches:
            self._note(name, by_ratio, out, view, factor)
            raise
        if factor not in [sign % P for sign in view.signs] and 0 not in by_ratio:
            self._note_factor(probing, name, box, view, factor)
        self._note(name, by_ratio, out, view, factor)

    def _note(self, name: str, by_ratio: Mapping[int, list[torch.Tensor]], out: str, view: View, factor: int) -> None:
        """Note terms that are missing, doubled or scaled by a known number; other ones where there are none."""
        words = view.words.format(out)
        unknown = []
        for value, groups in by_ratio.items():
            term = self._named(name, torch.cat(groups))
            text = self.names.factor([ratio(value, factor)], self._sizes)
            if value == 0:
                self.noted.append(f"{term} is missing from {words}")
            elif text == "2":
                self.noted.append(f"{words} has {term} twice")
            elif text is not None:
                self.noted.append(f"{words} has {term} times {text}")
            else:
                unknown.append(f"{words} has {term} times another number than {self.names.reference}")
        if not self.noted:
            self.noted += unknown[:SHOWN]

    def _note_factor(self, probing: Probing, name: str, box: torch.Tensor, view: View, factor: int) -> None:
        """Note the factor of all terms of an input, which is the reference's in no other way."""
        other = Probing(self.programs, self.draws[1], probing.place, self.part)
        again = other.factor(name, box)
        words = view.words.format(self._called(probing.place))
        term = self._named(name, box)
        either = [sign * factor % P for sign in view.signs]
        if again is not None and again[0] is view and again[1] in either:
            text = self.names.factor(either, self._sizes)
            each = "each term of " if len(box) > 1 else ""
            self.noted.append(f"{words} has {each}{term} times {text or 'a number'}")

    # ---- what is no term of an input

    def _other_number(self) -> list[str]:
        """Return the number of the reference in whose place the kernel has another one, or none."""
        for number in self.replaceable:
            for other in (0.0, *self.names.constants):
                if (other and not 0.5 < other / number < 2) or element_of(other) == element_of(number):
                    continue
                with Numbers({number: other}):
                    same = self._agrees(self.results[0], self.given) and self._agrees(self.second, self.draws[1])
                if same:
                    if other and abs(other / number - 1) < _ROUNDING:
                        self.rounded = f"its {other:.10g} is {self._theirs} {number:.10g}, rounded"
                        return [self.rounded]
                    if not other:
                        return [f"the kernel lacks {self._theirs} {number_text(number)}"]
                    has = f"where {self.names.reference} has {number_text(number)}"
                    return [f"the kernel has {number_text(other)} {has}"]
        return []

    @functools.cached_property
    def second(self) -> Results:
        """The kernel's results of the second draw."""
        return self.programs.launched(self.draws[1])

    def _constant(self) -> list[str]:
        """Return the small number that a sum has too much or lacks, on two kinds of even inputs.

        Where a softmax takes no maximum from its inputs, those that begin with 0 show the number alone.
        """
        seen: set[tuple[str, str]] = set()
        for pattern in ((0,), (1,), (-1,), (1, -1), (-1, 1), (0, 1)):
            given = self._filled(pattern)
            found, wanted = self.programs.launched(given), self.programs.wanted(given)
            named = set(self._small_terms(found, wanted))
            for subject, text in sorted(named & seen):
                return [f"where {self._inputs_are} {_said(pattern)}, {subject} is {text} than {self._theirs}"]
            seen |= named
        return []

    def _small_terms(self, found: Results, wanted: Results) -> Iterator[tuple[str, str]]:
        """Yield functions of the first element that differs, and the small number by which they do."""
        for name in self.masks:
            mask = differing(found[name], wanted[name], self.part).flatten()
            for index in mask.nonzero().flatten()[:1].tolist():
                place = OutputPlace(name, index)
                for view in views(self.part):
                    one, other = view.of(place.of(found)), view.of(place.of(wanted))
                    if view is PLAIN or one is None or other is None:
                        continue  # a term of an input looks like a number in the element itself
                    for sign, other_sign in itertools.product(view.signs, view.signs):
                        if text := self.names.term_too_much((sign * one - other_sign * other) % P):
                            number, _, word = text.partition(" ")
                            word = "more or less" if view.signless else word
                            yield view.name.format(self._called(place)), f"{number} {word}"

    def _filled(self, pattern: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return inputs that repeat a few numbers."""
        return {
            name: torch.tensor(pattern)
            .repeat(-(-one.numel() // len(pattern)))[: one.numel()]
            .view(one.shape)
            .to(one.dtype)
            for name, one in self.given.items()
        }

    def _scaled_input(self) -> list[str]:
        """Return the input and the known factor for which the reference gives the kernel's results."""
        for name in self.given:
            for text, factor in self.names.scales(self._sizes):
                scaled = {name: factor}
                with suppress(WorkbenchError):  # a kernel's input of eight bits holds no element
                    if self._agrees(self.results[0], self.given, scaled) and self._agrees(
                        self.second, self.draws[1], scaled
                    ):
                        return [f"it is what {self.names.reference} gives for {name} times {text}"]
        return []

    def _agrees(self, found: Results, given: Inputs, factors: Mapping[str, int] | None = None) -> bool:
        """Return True if the reference gives these results, and most of them are defined."""
        wanted = self.programs.wanted(given, factors)
        if any(bool(differing(found[key], one, self.part).any()) for key, one in wanted.items()):
            return False
        return all(2 * int((one < UNDEFINED).sum()) > one.numel() for one in wanted.values())

    # ---- the smallest input

    def smallest(self) -> list[str]:
        """Return an input of few numbers that are not 0 on which the programs differ."""
        for pattern in ((0,), (1,)):
            if self._differ(self._filled(pattern)):
                return [f"it shows where {self._inputs_are} {_said(pattern)}"]
        given = dict(self.given)
        for name, one in given.items():
            kept = torch.arange(one.numel())
            given[name] = torch.zeros_like(one)
            if self._differ(given):
                continue
            given[name] = one
            shape = one.shape
            for axis in range(len(shape)):
                kept = self._halved(given, name, kept, axis)
        words = [self._left(name, one) for name, one in given.items()]
        return [f"it shows where {self._inputs_are} 0 but for {' and '.join(filter(None, words))}"]

    @property
    def _inputs_are(self) -> str:
        """The inputs that are changed and their verb: all, or those that both programs take."""
        known = self.names.changed
        return f"{' and '.join(known)} {'are' if len(known) > 1 else 'is'}" if known else "the inputs are"

    def _left(self, name: str, one: torch.Tensor) -> str:
        positions = one.double().flatten().nonzero().flatten()
        return self._named(name, positions) if len(positions) else ""

    def _halved(self, given: dict[str, torch.Tensor], name: str, kept: torch.Tensor, axis: int) -> torch.Tensor:
        """Set one half after the other of an input's block along an axis to 0 while the difference stays."""
        shape = self.given[name].shape
        while True:
            index = torch.unravel_index(kept, tuple(shape))[axis]
            low, high = int(index.min()), int(index.max()) + 1
            if high - low <= 1:
                return kept
            middle = (low + high) // 2
            for mask in (index < middle, index >= middle):
                one = self.given[name].flatten()
                wide = torch.zeros_like(one, dtype=torch.float64)
                wide[kept[mask]] = one.double()[kept[mask]]
                trial = {**given, name: wide.to(one.dtype).view(shape)}
                if self._differ(trial):
                    given[name], kept = trial[name], kept[mask]
                    break
            else:
                return kept

    def _differ(self, given: Inputs) -> bool:
        found, wanted = self.programs.launched(given), self.programs.wanted(given)
        return any(bool(differing(found[name], wanted[name], self.part).any()) for name in wanted)


def _said(pattern: Sequence[int]) -> str:
    return f"all {pattern[0]}" if len(pattern) == 1 else f"{', '.join(map(str, pattern))}, ..."


def _agreed(values: Iterable[int | None]) -> int | None:
    """Return the value that all are; None where they differ."""
    found = {*values}
    return found.pop() if len(found) == 1 else None


def _common_factor(found: torch.Tensor, wanted: torch.Tensor) -> int | None:
    """Return the factor, other than 1, between all elements of two results modulo P; None without one."""
    known = (found < MODULUS) & (wanted < MODULUS)
    values = (wanted[known] % P).tolist()
    first = next((place for place, value in enumerate(values) if value), None)
    if first is None or len(set(values)) < 3:
        return None
    factor = ratio(int(found[known][first]), values[first])
    same = (found[known] - factor * wanted[known]) % P == 0
    return factor if factor not in (0, 1) and bool(same.all()) else None


def _common_term(found: torch.Tensor, wanted: torch.Tensor) -> int | None:
    """Return the difference, other than 0, between all elements of two results modulo P; None without one."""
    known = (found < MODULUS) & (wanted < MODULUS)
    if len((wanted[known] % P).unique()) < 3:
        return None
    terms = ((found[known] - wanted[known]) % P).unique()
    return int(terms) if len(terms) == 1 and int(terms) else None
