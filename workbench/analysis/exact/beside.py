"""Several programs, each compared with the first one that has results on elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from workbench.analysis.exact.agreement import DIFFERS_NOTE, ExactAnswer
from workbench.analysis.exact.sides import SECONDS, Side, cause_of, compared
from workbench.errors import WorkbenchError


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
    def difference(self) -> tuple[str, ...]:
        """The words for a difference, a line each."""
        return self.answer.difference if self.answer else ()

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

    Those before the first that has results on elements have no answer. The words for each further difference may take
    half of the time of the one before.
    """
    base: tuple[str, Side] | None = None
    seconds = SECONDS
    for name, side in sides:
        if base is not None:
            answer = compared(base[1], side, seconds)
            seconds /= 1 + (answer.same is False)
            yield Beside(base[0], answer)
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
    notes = []
    found = [(name, one) for name, one in zip(names, answers, strict=False) if one is not None and one.answer]
    for name, one in found:
        notes += [f"{name}: exact: {one}", *(f"    {line}" for line in one.difference)]
    return [*notes, *[DIFFERS_NOTE] * any(one.same is False for _, one in found)]
