"""Conditions on a difference, such as ``warp_instructions > 1.02``, that fail a pull request."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from workbench.analysis.difference.figures import Pair, figures_of, may_have, number_text
from workbench.errors import ArgumentError, UnknownNameError

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne}
)
_FORM = re.compile(r"\s*(absolute\s+)?(\w+)\s*(>=|<=|==|!=|>|<)\s*([-+]?[\d.]+(?:e[-+]?\d+)?)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Condition:
    """A figure, a comparison operator and a number.

    The number is compared with the figure's ratio to the one before; after ``absolute`` it is compared with the figure
    itself.
    """

    text: str
    figure: str
    sign: str
    number: float
    absolute: bool = False

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Return the condition that a text states.

        Raises ArgumentError for a text that is none.
        """
        match = _FORM.fullmatch(text)
        try:
            absolute, figure, sign, digits = match.groups() if match else ("", "", "", "")
            number = float(digits)
        except ValueError:
            allowed = "FIGURE > RATIO or absolute FIGURE > NUMBER, with >, >=, <, <=, == or !="
            remedy = "Examples: warp_instructions > 1.02; absolute spill_bytes > 0."
            raise ArgumentError("fail_if", repr(text), allowed, remedy) from None
        return cls(" ".join(text.split()), figure, sign, number, bool(absolute))

    def holds(self, number: float) -> bool:
        """Return True if the condition holds for a figure, or for its ratio."""
        return _OPERATORS[self.sign](number, self.number)


@dataclass(frozen=True)
class ConditionResult:
    """The result of one condition: the subjects that it was checked on, and in words why it fails."""

    condition: Condition
    checked: tuple[str, ...]
    failures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if nothing fails."""
        return not self.failures


def judge(condition: Condition, pairs: Sequence[Pair]) -> ConditionResult:
    """Return the result of a condition.

    It fails where it holds, and also where a variant or figure that was there before is gone, or cannot be compared: a
    check that no longer checks anything must not pass. Raises UnknownNameError if no subject has such a figure.
    """
    sides = [side for pair in pairs for side in (pair.before, pair.now) if side]
    known = dict.fromkeys(name for side in sides for name in side.figures)
    if sides and condition.figure not in known:
        raise _unknown(condition, known)
    checked, failures = [], []
    for pair in pairs:
        said = _said(condition, pair)
        if said is None:
            continue
        checked.append(pair.name)
        if said:
            failures.append(f"{pair.name}: {said}" if pair.name else said)
    if not checked:
        failures.append(f"nothing has {condition.figure}" + ("" if condition.absolute else " before and now"))
    return ConditionResult(condition, tuple(checked), tuple(failures))


def check_figures(conditions: Sequence[Condition], kind: str) -> None:
    """Raise UnknownNameError for a condition on a figure that no result of a kind, "compare" or "trace", has."""
    for condition in conditions:
        if not may_have(kind, condition.figure):
            raise _unknown(condition, figures_of(kind))


def _unknown(condition: Condition, known: Iterable[str]) -> UnknownNameError:
    return UnknownNameError("fail_if", repr(condition.figure), ", ".join(known), "Name one of these figures.")


def _said(condition: Condition, pair: Pair) -> str | None:
    """Return why a condition fails for a pair; empty if it does not; None if it does not apply."""
    name = condition.figure
    before = pair.before.figures.get(name) if pair.before else None
    now = pair.now.figures.get(name) if pair.now else None
    if now is None:
        return None if before is None else f"{name} is gone; it was {number_text(name, before)}"
    shown = number_text(name, now)
    if condition.absolute:
        return f"{name} is {shown}" if condition.holds(now) else ""
    if before is None:
        return None
    change = pair.changes[name]
    if change.ratio is None:
        assert pair.before is not None
        assert pair.now is not None
        return f"{name} cannot be compared: it is {pair.now.times}, and was {pair.before.times}"
    _, was, _, ratio = change.texts
    return f"{name} is {shown}, {ratio} of {was}" if condition.holds(change.ratio) else ""
