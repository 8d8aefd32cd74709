"""Questions to Z3 about one or two threads, in linear arithmetic over monomials, with lemmas about products.

Everything is bounded by Z3's resource counter, so that an answer is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import MissingToolError
from workbench.proof.conditions import Predicate
from workbench.proof.facts import DataFact
from workbench.proof.terms import BLOCK, GRID, Atom, Term, term

try:
    import z3
except ImportError:  # the extra `proof`
    z3 = None

Place = tuple[Atom, str]
"""An atom as one thread has it: with that thread's tag, or none if all threads have the same."""
Linear = dict[tuple[Place, ...], int]

QUICK, USUAL, THOROUGH = 400_000, 3_000_000, 8_000_000
"""Resources of one question."""
SMALL = (3, 40)
"""Largest sizes that are tried first for a counterexample."""


def require_solver() -> None:
    """Raise MissingToolError unless Z3 is installed."""
    if z3 is None:
        remedy = 'python -m pip install "kernel-workbench[proof]"  (or: python -m pip install z3-solver)'
        raise MissingToolError(f"Proofs need Z3, which is not installed. Remedy: {remedy}")


class OutOfBudget(Exception):
    """All resources of the proof are used."""


@dataclass
class Effort:
    """Resources left for the questions of one proof, and what was used."""

    left: int
    questions: int = 0

    def __post_init__(self) -> None:
        self.context, self._seen = z3.Context(), 0

    def spend(self, statistics: Any) -> None:
        """Subtract the resources of a question; Z3 counts those of all questions together."""
        total = statistics.get_key_value("rlimit count") if "rlimit count" in statistics.keys() else self._seen  # noqa: SIM118
        self.left -= total - self._seen
        self._seen = total
        self.questions += 1


@dataclass(frozen=True)
class Answer:
    """Z3's answer: ``holds`` if the hypotheses contradict each other, else perhaps a model of them."""

    contradiction: bool
    values: Mapping[Place, int] = field(default_factory=dict)

    @property
    def unknown(self) -> bool:
        """True if Z3 found neither a contradiction nor a model."""
        return not self.contradiction and not self.values


class Question:
    """One question: hypotheses about up to two threads, whose tags are "" (one alone), "1" and "2".

    Atoms of the grid are the same for all threads; those of the block too if ``one_block``.
    """

    def __init__(
        self, budget: Effort, data: Mapping[str, DataFact], facts: Iterable[Predicate] = (), *, one_block: bool = True
    ):
        self._budget, self._data, self._one_block = budget, data, one_block
        self._variables: dict[Place, Any] = {}
        self._products: dict[tuple[Place, ...], Any] = {}
        self._literals: list[Linear] = []
        self._bits: set[Place] = set()
        self.hypotheses: list[Any] = []
        for one in facts:
            self.suppose(one)

    # -- encoding -----------------------------------------------------------------------------------------------

    def suppose(self, condition: Predicate, tag: str = "") -> None:
        """Add a hypothesis about the thread of a tag."""
        self.hypotheses.append(self.condition(condition, tag))

    def place(self, atom: Atom, tag: str) -> Place:
        """Return the atom as the thread of a tag has it."""
        shared = atom.scope == GRID or (atom.scope == BLOCK and self._one_block)
        return (atom, "" if shared else tag)

    def linear(self, value: Term, tag: str, minus: Term | None = None, minus_tag: str = "") -> Linear:
        """Return a term of one thread, less a term of another, by monomials."""
        found: Linear = {}
        for sign, one, of in ((1, value, tag), (-1, minus, minus_tag)):
            for key, factor in (one.parts if one is not None else {}).items():
                places = tuple(sorted((self.place(atom, of) for atom in key), key=_order))
                total = found.pop(places, 0) + sign * factor
                if total:
                    found[places] = total
        return found

    def variable(self, place: Place) -> Any:
        """Return Z3's variable of an atom; its definition becomes a hypothesis."""
        found = self._variables.get(place)
        if found is None:
            atom, tag = place
            found = self._variables[place] = z3.Int(f"{atom.number}{tag and '@'}{tag}", self._budget.context)
            self._define(atom, tag, found)
        return found

    def value(self, linear: Linear) -> Any:
        """Return Z3's expression of a term."""
        terms = [self._monomial(key) * factor if key else factor for key, factor in linear.items()]
        if not terms or not any(linear):
            return z3.IntVal(sum(terms), self._budget.context)
        return z3.Sum(terms)

    def term(self, value: Term, tag: str) -> Any:
        """Return Z3's expression of a term of one thread."""
        return self.value(self.linear(value, tag))

    def condition(self, condition: Predicate, tag: str) -> Any:
        """Return Z3's expression of a condition of one thread."""
        kind, parts = condition.kind, condition.parts
        if kind in ("true", "false"):
            return z3.BoolVal(kind == "true", self._budget.context)
        if kind in ("less", "zero"):
            linear = self.linear(parts[0], tag)
            self._literals.append(linear)
            return self.value(linear) < 0 if kind == "less" else self.value(linear) == 0
        if kind == "not":
            return z3.Not(self.condition(parts[0], tag))
        return (z3.And if kind == "and" else z3.Or)([self.condition(one, tag) for one in parts])

    def literal(self, linear: Linear) -> None:
        """Offer a term of which lemmas may multiply the sign by a size."""
        self._literals.append(linear)

    def _monomial(self, key: tuple[Place, ...]) -> Any:
        if len(key) == 1:
            return self.variable(key[0])
        if key not in self._products:
            for one in key:
                self.variable(one)
            name = "*".join(f"{atom.number}@{tag}" for atom, tag in key)
            self._products[key] = z3.Int(name, self._budget.context)
        return self._products[key]

    def _define(self, atom: Atom, tag: str, variable: Any) -> None:
        place, own = (atom, tag), Term({(atom,): 1})
        if atom.low is not None:
            self.hypotheses.append(variable >= atom.low)
            self._literals.append({(place,): 1, (): -atom.low} if atom.low else {(place,): 1})
        if atom.high is not None:
            room = self.linear(term(atom.high) - own, tag)
            self.hypotheses.append(self.value(room) >= 0)
            self._literals.append(room)
        if atom.kind == "quotient":
            rest = self.linear(atom.args[0] - own * atom.args[1], tag)
            self.hypotheses += [self.value(rest) >= 0, self.value(rest) < atom.args[1]]
            self._literals += [rest, self.linear(atom.args[0] - own * atom.args[1] - atom.args[1], tag)]
        elif atom.kind == "ratio":
            self._define_ratio(atom, tag, variable)
        elif atom.kind == "choice":
            condition = self.condition(atom.args[0], tag)
            one, other = (variable == self.term(value, tag) for value in atom.args[1:])
            self.hypotheses += [z3.Implies(condition, one), z3.Implies(z3.Not(condition), other)]
        elif atom.kind == "flag":
            self.hypotheses.append((variable == 1) == self.condition(atom.args[0], tag))
        elif atom.kind == "bit":
            self._define_bits(atom, tag)
        elif atom.kind == "load":
            self._define_load(atom, tag, variable)

    def _define_ratio(self, atom: Atom, tag: str, variable: Any) -> None:
        dividend, divisor, own = atom.args[0], atom.args[1], Term({(atom,): 1})
        defined = z3.And(self.term(dividend, tag) >= 0, self.term(divisor, tag) >= 1)
        rest, over = self.linear(dividend - divisor * own, tag), self.linear(dividend - divisor * own - divisor, tag)
        known = [self.value(rest) >= 0, self.value(over) < 0]
        if len(atom.args) > 2:
            known.append(variable <= self.term(atom.args[2], tag))
        self.hypotheses += [z3.Implies(defined, z3.And(known)), z3.Implies(z3.Not(defined), variable == 0)]
        self._literals += [rest, over]

    def _define_bits(self, atom: Atom, tag: str) -> None:
        whole = atom.args[0].atom
        place = self.place(whole, tag)
        if place not in self._bits:
            self._bits.add(place)
            width = whole.high.bit_length()
            names = [atom.arena.atom("bit", f"{whole.name}.bit{i}", (atom.args[0], i), 0, 1).atom for i in range(width)]
            bits = [self.variable(self.place(one, tag)) * (1 << i) for i, one in enumerate(names) if one is not None]
            self.hypotheses.append(self.variable(place) == z3.Sum(bits))

    def _define_load(self, atom: Atom, tag: str, variable: Any) -> None:
        """Make loads of memory that nobody writes a function of the place; facts hold for places inside."""
        fact, place, own = self._data.get(atom.name), atom.args[0], Term({(atom,): 1})
        if fact is not None and fact.size == atom.args[1]:
            known = self.condition(fact.condition(place, own), tag)
            self.hypotheses.append(z3.Implies(self._inside(place, fact, tag), known))
        else:
            fact = None
        for other, its in list(self._variables):
            if other.kind != "load" or (other.name, *other.args[1:]) != (atom.name, *atom.args[1:]):
                continue
            if (other, its) == (atom, tag):
                continue
            same = self.value(self.linear(place, tag, other.args[0], its)) == 0
            equal = variable == self._variables[other, its]
            self.hypotheses.append(z3.Implies(same, equal))
            if fact is not None and fact.distinct:
                inside = [self._inside(place, fact, tag), self._inside(other.args[0], fact, its)]
                free = [variable != one for one in fact.free]
                self.hypotheses.append(z3.Implies(z3.And(*inside, equal, *free), same))

    def _inside(self, place: Term, fact: DataFact, tag: str) -> Any:
        return z3.And(self.term(place, tag) >= 0, self.term(fact.count - place, tag) >= 1)

    # -- asking -------------------------------------------------------------------------------------------------

    def _lemmas(self) -> list[Any]:
        """Return products of what is compared with what is never negative, where they need no new product."""
        found: list[Any] = []
        factors = [
            one for one in dict.fromkeys(one for key in self._products for one in key) if _never_negative(one[0])
        ]
        known = {frozenset(one.items()): one for one in self._literals if 0 < max(map(len, one), default=0) <= 2}
        for linear in known.values():
            for factor in factors:
                product: Linear = {}
                for key, scale in linear.items():
                    new = tuple(sorted((*key, factor), key=_order))
                    product[new] = product.get(new, 0) + scale
                grown = [key for key in product if len(key) > 1]
                if any(len(key) > 3 for key in grown) or not any(key in self._products for key in grown):
                    continue
                value, times, by = self.value(linear), self.value(product), self.variable(factor)
                found += [
                    z3.Implies(value <= -1, times <= -by), z3.Implies(value >= 0, times >= 0),
                    z3.Implies(value >= 1, times >= by),
                ]  # fmt: skip
        return found

    def ask(self, extra: Sequence[Any], resources: int = USUAL, *, model: bool = True, lemmas: int = 2) -> Answer:
        """Return whether the hypotheses and ``extra`` contradict each other; if not, and asked to, look for a model."""
        gathered: list[Any] = []
        for attempt in range(lemmas + 1):
            if attempt:
                if not self._products:
                    break
                gathered += self._lemmas()
            result, values = self._check([*extra, *gathered], resources)
            if result == z3.unsat:
                return Answer(True)
            if result == z3.sat and not self._products:
                return Answer(False, values)
        if not model:
            return Answer(False)
        exact = [one == z3.Product([self.variable(part) for part in key]) for key, one in list(self._products.items())]
        for most in SMALL:
            small = [one <= most for (atom, _), one in self._variables.items() if atom.kind == "param"]
            result, values = self._check([*extra, *exact, *small], resources)
            if result == z3.sat:
                return Answer(False, values)
        result, values = self._check([*extra, *exact, *self._lemmas()], THOROUGH)
        return Answer(result == z3.unsat, values if result == z3.sat else {})

    def _check(self, extra: Sequence[Any], resources: int) -> tuple[Any, dict[Place, int]]:
        budget = self._budget
        if budget.left <= 0:
            raise OutOfBudget
        solver = z3.Solver(ctx=budget.context)
        solver.set("rlimit", min(resources, budget.left))
        solver.add(*self.hypotheses, *extra)
        result = solver.check()
        budget.spend(solver.statistics())
        if result != z3.sat:
            return result, {}
        model = solver.model()
        return result, {
            place: model.eval(one, model_completion=True).as_long() for place, one in self._variables.items()
        }

    def common_factor(self, linear: Linear, factor: Place) -> Linear | None:
        """Return what a size is multiplied by in a term, less its common divisor; None if it is in no product."""
        parts: Linear = {}
        for key, scale in linear.items():
            if factor in key:
                rest = list(key)
                rest.remove(factor)
                parts[tuple(rest)] = scale
        divisor = math.gcd(*parts.values()) if parts else 0
        return {key: scale // divisor for key, scale in parts.items()} if divisor else None


def all_of(several: Sequence[Any]) -> Any:
    """Return that all of several of Z3's conditions hold."""
    return z3.And(several)


def any_of(several: Sequence[Any]) -> Any:
    """Return that one of several of Z3's conditions holds."""
    return z3.Or(several)


def _order(place: Place) -> tuple[int, str]:
    return place[0].number, place[1]


def _never_negative(atom: Atom) -> bool:
    return atom.low is not None and atom.low >= 0
