"""Questions to Z3 about one or two threads, in linear arithmetic over monomials, with lemmas about products.

Everything is bounded by Z3's resource counter, so that an answer is the same on every machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import MissingToolError
from workbench.proof.conditions import Predicate
from workbench.proof.facts import DataFact
from workbench.proof.solver_texts import all_of, any_of, loads_in, number_text, same_array
from workbench.proof.terms import BLOCK, GRID, Atom, Term, bounds_of_atom, term

try:
    import z3
except ImportError:  # the extra `proof`
    z3 = None

Place = tuple[Atom, str]
"""An atom as one thread has it: with that thread's tag, or none if all threads have the same."""
Linear = dict[tuple[Place, ...], int]

QUICK, USUAL, THOROUGH = 400_000, 3_000_000, 8_000_000
"""Resources of one question."""
_ARITHMETIC = ((6, 200_000), (2, THOROUGH))
"""Z3's solvers for linear arithmetic by their numbers, with the most resources of each: the newer one is better for
most questions, the older one much faster on the few that are left."""
SMALL = (3, 40, 2_000)
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
    """Resources left for the questions of one proof, and what was used; without ``models`` none is looked for."""

    left: int
    models: bool = True
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
        self._variables: dict[Place, str] = {}
        self._products: dict[tuple[Place, ...], str] = {}
        self._literals: list[Linear] = []
        self._bits: set[Place] = set()
        self._core: set[Place] = set()
        self._paired: set[tuple[Place, Place]] = set()
        self.hypotheses: list[str] = []
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

    def variable(self, place: Place) -> str:
        """Return the solver's name of an atom; its definition becomes a hypothesis."""
        found = self._variables.get(place)
        if found is None:
            atom, tag = place
            found = self._variables[place] = f"a{atom.number}t{tag}"
            self._define(atom, tag, found)
        return found

    def value(self, linear: Linear) -> str:
        """Return the solver's text of a term."""
        terms = [
            number_text(factor) if not key else self._monomial(key) if factor == 1 else
            f"(* {number_text(factor)} {self._monomial(key)})" for key, factor in linear.items()
        ]  # fmt: skip
        return "0" if not terms else terms[0] if len(terms) == 1 else f"(+ {' '.join(terms)})"

    def term(self, value: Term, tag: str) -> str:
        """Return the solver's text of a term of one thread."""
        return self.value(self.linear(value, tag))

    def same(self, value: Term) -> str:
        """Return the text of the condition that two threads have the same value of a term."""
        return f"(= {self.term(value, '1')} {self.term(value, '2')})"

    def condition(self, condition: Predicate, tag: str) -> str:
        """Return the solver's text of a condition of one thread."""
        kind, parts = condition.kind, condition.parts
        if kind in ("true", "false"):
            return kind
        if kind in ("less", "zero"):
            linear = self.linear(parts[0], tag)
            self._literals.append(linear)
            return f"({'<' if kind == 'less' else '='} {self.value(linear)} 0)"
        if kind == "not":
            return f"(not {self.condition(parts[0], tag)})"
        return (all_of if kind == "and" else any_of)([self.condition(one, tag) for one in parts])

    def about(self, value: Term, tag: str) -> None:
        """Note that a term decides the answer: what follows for two loads is first supposed of those in it alone."""
        self._core |= {self.place(atom, tag) for atom in loads_in(value)}

    def literal(self, linear: Linear) -> None:
        """Offer a term of which lemmas may multiply the sign by a size."""
        self._literals.append(linear)

    def _monomial(self, key: tuple[Place, ...]) -> str:
        if len(key) == 1:
            return self.variable(key[0])
        found = self._products.get(key)
        if found is None:
            found = self._products[key] = "m" + "_".join(self.variable(one) for one in key)
        return found

    def _suppose_at_least(self, linear: Linear, least: int = 0) -> None:
        self._literals.append(linear)
        self.hypotheses.append(f"(>= {self.value(linear)} {number_text(least)})")

    def _define(self, atom: Atom, tag: str, variable: str) -> None:
        place, own = (atom, tag), Term({(atom,): 1})
        if atom.low is not None:
            self._suppose_at_least({(place,): 1, (): -atom.low} if atom.low else {(place,): 1})
        if atom.high is not None:
            self._suppose_at_least(self.linear(term(atom.high) - own, tag))
        if atom.kind == "quotient":
            dividend, divisor = atom.args
            self._suppose_at_least(self.linear(dividend - own * divisor, tag))
            self._suppose_at_least(self.linear(own * divisor + (divisor - 1) - dividend, tag))
        elif atom.kind == "ratio":
            self._define_ratio(atom, tag, variable)
        elif atom.kind == "choice":
            condition = self.condition(atom.args[0], tag)
            one, other = (self.term(value, tag) for value in atom.args[1:])
            self.hypotheses.append(f"(= {variable} (ite {condition} {one} {other}))")
        elif atom.kind == "flag":
            self.hypotheses.append(f"(= {variable} (ite {self.condition(atom.args[0], tag)} 1 0))")
        elif atom.kind == "bit":
            self._define_bits(atom, tag)
        elif atom.kind == "load":
            self._define_load(atom, tag)

    def _define_ratio(self, atom: Atom, tag: str, variable: str) -> None:
        dividend, divisor, own = atom.args[0], atom.args[1], Term({(atom,): 1})
        defined = f"(and (>= {self.term(dividend, tag)} 0) (>= {self.term(divisor, tag)} 1))"
        rest, over = self.linear(dividend - divisor * own, tag), self.linear(dividend - divisor * own - divisor, tag)
        self._literals += [rest, over]
        known = [f"(>= {self.value(rest)} 0)", f"(< {self.value(over)} 0)"]
        if len(atom.args) > 2:
            known.append(f"(<= {variable} {self.term(atom.args[2], tag)})")
        self.hypotheses.append(f"(ite {defined} {all_of(known)} (= {variable} 0))")

    def _define_bits(self, atom: Atom, tag: str) -> None:
        whole = atom.args[0].atom
        place = self.place(whole, tag)
        if place not in self._bits:
            self._bits.add(place)
            named = [
                atom.arena.atom("bit", f"{whole.name}.bit{i}", (atom.args[0], i), 0, 1)
                for i in range(whole.high.bit_length())
            ]
            total = Term({}) - atom.args[0]
            for i, one in enumerate(named):
                total = total + one * (1 << i)
            self.hypotheses.append(f"(= {self.term(total, tag)} 0)")

    def _define_load(self, atom: Atom, tag: str) -> None:
        """Suppose the facts about an element of memory that is never written, if its place is inside."""
        fact, place = self._fact(atom), atom.args[0]
        if fact is not None:
            known = self.condition(fact.condition(place, Term({(atom,): 1})), tag)
            self.hypotheses.append(f"(=> {self._inside(place, fact, tag)} {known})")

    def _fact(self, atom: Atom) -> DataFact | None:
        fact = self._data.get(atom.name)
        return fact if fact is not None and fact.size == atom.args[1] else None

    def _suppose_pairs(self, *, every: bool) -> bool:
        """Suppose of two loads of an array that elements at the same place are the same, and facts about two elements.

        Of loads that are in no term that the question is about, only if ``every``. Return True if there were any.
        """
        before = len(self._paired)
        while waiting := [pair for pair in self._pairs(every=every) if pair not in self._paired]:
            for pair in waiting:
                self._paired.add(pair)
                self._suppose_pair(*pair)
        return len(self._paired) > before

    def _pairs(self, *, every: bool) -> list[tuple[Place, Place]]:
        loads = [one for one in self._variables if one[0].kind == "load" and (every or one in self._core)]
        pairs = [(one, other) for i, one in enumerate(loads) for other in loads[:i] if same_array(one[0], other[0])]
        return [pair for pair in pairs if self._core.issuperset(pair) or self._may_coincide(*pair)]

    def _may_coincide(self, one: Place, other: Place) -> bool:
        """Return False for loads of which the common divisor of all steps says that they are never at one place."""
        apart = self.linear(one[0].args[0], one[1], other[0].args[0], other[1])
        constant = apart.pop((), 0)
        step = math.gcd(*apart.values())
        return constant % step == 0 if step else constant == 0

    def _suppose_pair(self, first: Place, second: Place) -> None:
        (one, tag), (other, its) = first, second
        same = f"(= {self.value(self.linear(one.args[0], tag, other.args[0], its))} 0)"
        equal = f"(= {self._variables[first]} {self._variables[second]})"
        self.hypotheses.append(f"(=> {same} {equal})")
        fact = self._fact(one)
        if fact is not None and fact.distinct:
            free = [f"(not (= {self._variables[first]} {number_text(value)}))" for value in fact.free]
            inside = [self._inside(one.args[0], fact, tag), self._inside(other.args[0], fact, its)]
            self.hypotheses.append(f"(=> {all_of([*inside, equal, *free])} {same})")
        if fact is not None and fact.apart:
            inside = [self._inside(one.args[0], fact, tag), self._inside(other.args[0], fact, its)]
            lengths = {place: self.term(fact.length(place[0].args[0]), place[1]) for place in (first, second)}
            ends = [
                f"(<= (+ {self._variables[here]} {lengths[here]}) {self._variables[there]})"
                for here, there in ((first, second), (second, first))
            ]
            self.hypotheses.append(f"(=> {all_of([*inside, f'(not {same})'])} {any_of(ends)})")

    def _inside(self, place: Term, fact: DataFact, tag: str) -> str:
        return f"(and (>= {self.term(place, tag)} 0) (>= {self.term(fact.count - place, tag)} 1))"

    # -- asking -------------------------------------------------------------------------------------------------

    def _lemmas(self) -> list[str]:
        """Return products of compared terms with terms that are never negative, where they need no new product."""
        found: list[str] = []
        factors: dict[tuple[Place, ...], None] = {
            (one,): None for key in self._products for one in key if _never_negative(one[0])
        }
        for whole in [one for one in self._products if len(one) == 3]:
            sizes = [one for one in whole if one[0].scope == GRID and _never_negative(one[0])]
            factors |= {pair: None for pair in itertools.combinations(sizes, 2) if pair in self._products}
        known = {frozenset(one.items()): one for one in self._literals if 0 < max(map(len, one), default=0) <= 2}
        for linear in known.values():
            for factor in factors:
                product: Linear = {}
                for key, scale in linear.items():
                    grown_key = tuple(sorted((*key, *factor), key=_order))
                    product[grown_key] = product.get(grown_key, 0) + scale
                grown = [key for key in product if len(key) > len(factor)]
                if any(len(key) > 3 for key in grown) or not any(key in self._products for key in grown):
                    continue
                value, times, by = self.value(linear), self.value(product), self._monomial(factor)
                found.append(f"(=> (<= {value} (- 1)) (<= (+ {times} {by}) 0))")
                found.append(f"(=> (>= {value} 0) (>= {times} 0))")
                found.append(f"(=> (<= {value} 0) (<= {times} 0))")
                found.append(f"(=> (>= {value} 1) (>= {times} {by}))")
        return found

    def ask(self, extra: Sequence[str], resources: int = USUAL, *, model: bool = True, lemmas: int = 2) -> Answer:
        """Return whether the hypotheses and ``extra`` contradict each other; if not, and asked to, look for a model."""
        model = model and self._budget.models
        every = not self._core
        gathered: list[str] = []
        for attempt in range(lemmas + 1):
            if attempt and not self._products:
                break
            self._suppose_pairs(every=every)
            gathered += self._lemmas() if attempt else []
            result, values = self._check([*extra, *gathered], resources)
            last = attempt == lemmas or not self._products
            if result != z3.unsat and not every and (attempt or last) and self._suppose_pairs(every=True):
                result, values = self._check([*extra, *gathered], resources)
            if result == z3.unsat:
                return Answer(True)
            if result == z3.sat and not self._products:
                break
        if result == z3.sat and not self._products:
            return self._smaller([*extra], resources) or Answer(False, values) if model else Answer(False)
        if not model:
            return Answer(False)
        exact = [f"(= {one} (* {' '.join(map(self.variable, key))}))" for key, one in list(self._products.items())]
        found = self._smaller([*extra, *exact], resources)
        if found is not None:
            return found
        for lemmas_too in ((), self._lemmas()):
            result, values = self._check([*extra, *exact, *lemmas_too], THOROUGH, products=True)
            if result != z3.unknown:
                break
        return Answer(result == z3.unsat, values if result == z3.sat else {})

    def _smaller(self, extra: Sequence[str], resources: int) -> Answer | None:
        """Return a model in which all sizes are small, if there is one."""
        for most in SMALL:
            small = [f"(<= {one} {most})" for (atom, _), one in self._variables.items() if atom.kind == "param"]
            result, values = self._check([*extra, *small], resources, products=True)
            if result == z3.sat:
                return Answer(False, values)
        return None

    def _check(self, extra: Sequence[str], resources: int, *, products: bool = False) -> tuple[Any, dict[Place, int]]:
        """Return Z3's answer with the values of a model.

        Questions with ``products`` go through its tactics, which find models that the bare solvers do not.
        """
        effort = self._budget
        names = [*self._variables.values(), *self._products.values()]
        lines = [f"(declare-const {name} Int)" for name in names]
        lines += [f"(assert {one})" for one in (*self.hypotheses, *extra)]
        text, result = "\n".join(lines), z3.unknown
        for number, most in ((0, resources),) if products else _ARITHMETIC:
            if effort.left <= 0:
                raise OutOfBudget
            solver = (z3.SimpleSolver if number else z3.Solver)(ctx=effort.context)
            if number:
                solver.set("smt.arith.solver", number)
            solver.set("rlimit", min(resources, most, effort.left))
            solver.set("ctrl_c", False)  # else its handler takes Ctrl-C, and system calls go on after it for ever
            solver.from_string(text)
            result = solver.check()
            effort.spend(solver.statistics())
            if result != z3.unknown:
                break
        if result != z3.sat:
            return result, {}
        model = solver.model()
        found = {one.name(): model[one].as_long() for one in model.decls()}
        return result, {place: found.get(name, 0) for place, name in self._variables.items()}

    def common_factor(self, linear: Linear, factor: Place) -> Linear | None:
        """Return the factor of a size in a term, without its common divisor; None if it is in no product."""
        parts: Linear = {}
        for key, scale in linear.items():
            if factor in key:
                rest = list(key)
                rest.remove(factor)
                parts[tuple(rest)] = scale
        divisor = math.gcd(*parts.values()) if parts else 0
        return {key: scale // divisor for key, scale in parts.items()} if divisor else None


def _order(place: Place) -> tuple[int, str]:
    return place[0].number, place[1]


def _never_negative(atom: Atom) -> bool:
    least, _ = bounds_of_atom(atom)
    return least is not None and least >= 0
