"""Two programs as the sides of an exact comparison, neither of which has to be a reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from workbench.analysis.exact.agreement import (
    LOGARITHMS,
    ExactAnswer,
    Part,
    Results,
    agreement,
    part_of,
    roundings_of,
    unseen_by,
)
from workbench.analysis.exact.ring import NoExactRule
from workbench.errors import WorkbenchError
from workbench.ptx.findings import WITHOUT_RULE

APART = 7919
"""Distance of the seeds of two draws of the inputs."""

DIFFERS_NOTE = "exact: a difference fails nothing by itself; it asks for a look"
"""Note below answers of which one is that something differs."""

_INSIDE = {"tanh.": "tanh", "ex2.": "exp2", "lg2.": "log2"}
"""Operators of torch that an instruction, by the beginning of its name, computes as well."""


@dataclass
class Side:
    """One side: a program whose results on elements are computed once for each draw of the inputs.

    Attributes:
        compute: number of a draw -> elements of each output by name; adds to ``operators`` and to ``opcodes``.
        operators: names of torch's operators that have computed.
        opcodes: names of the machine's instructions in the kernels that have run.
        doubt: why a difference says nothing about this program, if so.
    """

    compute: Callable[[int, Side], Results]
    operators: set[str] = field(default_factory=set)
    opcodes: set[str] = field(default_factory=set)
    doubt: str = ""
    _draws: dict[int, Results] = field(default_factory=dict, repr=False)

    def draw(self, number: int) -> Results:
        """Return the results on a draw. Raises WorkbenchError where the program has none on elements."""
        if number not in self._draws:
            try:
                self._draws[number] = self.compute(number, self)
            except WorkbenchError:
                raise
            except Exception as error:  # what a program in torch does with elements is not foreseen
                raise NoExactRule(f"it fails on elements: {type(error).__name__}: {error}") from error
        return self._draws[number]

    @property
    def functions(self) -> set[str]:
        """Names of torch's operators that have computed, or that an instruction stands for."""
        return self.operators | {_INSIDE[begin] for begin in _INSIDE for one in self.opcodes if one.startswith(begin)}


class Beside(NamedTuple):
    """Answer for one of several programs, beside the ``first`` one that has results on elements.

    The answer of that program itself is None.
    """

    first: str
    answer: ExactAnswer | None

    @property
    def same(self) -> bool | None:
        """True for the same computation, False for another one, None for no answer."""
        return None if self.answer is None else self.answer.same

    @property
    def brief(self) -> str:
        """The answer in a cell of a table."""
        if self.answer is None:
            return "the others are compared with this"
        return {True: "the same computation", False: "differs", None: "no answer"}[self.answer.same]

    def __str__(self) -> str:
        if self.answer is None:
            return self.brief
        return f"{self.answer}" if self.answer.same is None else f"beside {self.first}: {self.answer}"


def beside_the_first(sides: Iterable[tuple[str, Side]]) -> Iterator[Beside]:
    """Yield the answer for each of several programs, which come with their names.

    Those before the first that has results on elements have no answer.
    """
    base: tuple[str, Side] | None = None
    for name, side in sides:
        if base is not None:
            yield Beside(base[0], compared(base[1], side))
            continue
        try:
            side.draw(0)
        except WorkbenchError as error:
            yield Beside("", ExactAnswer.without(cause_of(error)))
        else:
            base = name, side
            yield Beside(name, None)


def exact_notes(names: Iterable[str], answers: Iterable[Beside | None]) -> list[str]:
    """Return notes for below a table: each answer in full, and what a difference means where there is one."""
    found = [(name, one) for name, one in zip(names, answers, strict=False) if one is not None and one.answer]
    differs = any(one.answer.same is False for _, one in found if one.answer)
    return [*(f"{name}: exact: {one}" for name, one in found), *[DIFFERS_NOTE] * differs]


def compared(first: Side, other: Side) -> ExactAnswer:
    """Return whether two programs are the same computation."""
    try:
        return _compared(first, other)
    except WorkbenchError as error:
        return ExactAnswer.without(cause_of(error))


def cause_of(error: WorkbenchError) -> str:
    """Return in one line why a program has no results on elements."""
    return cause_in(next(iter(str(error).splitlines()), ""))


def cause_in(message: str) -> str:
    """Return what a message says behind the words of the machine for code without a rule; else all of it."""
    _, found, cause = message.partition(f"{WITHOUT_RULE}: ")
    return cause if found else message


def _compared(first: Side, other: Side) -> ExactAnswer:
    wanted, found = first.draw(0), other.draw(0)
    names = wanted.keys() ^ found.keys()
    if names:
        return ExactAnswer.without(f"only one of the two has an output {sorted(names)[0]}")
    for name, one in wanted.items():
        if one.numel() != found[name].numel():
            return ExactAnswer.without(f"{name} has {one.numel():,} elements, and {found[name].numel():,} in the other")
    if not wanted:
        return ExactAnswer.without("the outputs are no floats")
    draws = ((other.draw(number), first.draw(number)) for number in range(3))
    answer = agreement(draws, _part(first, other), roundings_of(first.opcodes | other.opcodes))
    doubt = first.doubt or other.doubt
    if answer.same is False and doubt:
        return ExactAnswer.without(f"results differ, and {doubt}")
    return replace(answer, unseen=unseen_by(first.functions | other.functions))


def _part(first: Side, other: Side) -> Part:
    """Return the part to compare; logarithms live in the other part, where both sides take one."""
    if first.functions & LOGARITHMS and other.functions & LOGARITHMS:
        return "logarithm"
    part = part_of(first.opcodes | other.opcodes, first.operators | other.operators)
    return "P" if part == "logarithm" else part
