"""Values of terms and conditions where those of some atoms are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbench.proof.conditions import Predicate
from workbench.proof.terms import Atom, Term

if TYPE_CHECKING:
    from workbench.proof.solver import Place


class Values:
    """The values that atoms of the grid have in a counterexample; an atom without a value has its least one."""

    def __init__(self, known: Mapping[Place, int], tag: str = ""):
        self._known = {atom: value for (atom, its), value in known.items() if its in (tag, "")}

    def of(self, value: Term) -> int:
        """Return the value of a term."""
        return sum(factor * math.prod(map(self._atom, key)) for key, factor in value.parts.items())

    def _atom(self, atom: Atom) -> int:
        if atom not in self._known:
            self._known[atom] = self._compute(atom)
        return self._known[atom]

    def _compute(self, atom: Atom) -> int:
        if atom.kind == "quotient":
            return self.of(atom.args[0]) // atom.args[1]
        if atom.kind == "ratio":
            dividend, divisor = self.of(atom.args[0]), self.of(atom.args[1])
            return dividend // divisor if divisor >= 1 and dividend >= 0 else 0
        if atom.kind == "choice":
            return self.of(atom.args[1] if self.holds(atom.args[0]) else atom.args[2])
        if atom.kind == "flag":
            return int(self.holds(atom.args[0]))
        if atom.kind == "bit":
            return self.of(atom.args[0]) >> atom.args[1] & 1
        return max(atom.low or 0, 0)

    def holds(self, condition: Predicate) -> bool:
        """Return whether a condition holds."""
        parts = condition.parts
        if condition.kind in ("less", "zero"):
            value = self.of(parts[0])
            return value < 0 if condition.kind == "less" else value == 0
        if condition.kind == "not":
            return not self.holds(parts[0])
        if condition.kind in ("and", "or"):
            return (all if condition.kind == "and" else any)(map(self.holds, parts))
        return condition.kind == "true"
