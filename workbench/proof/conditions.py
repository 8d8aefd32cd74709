"""Conditions over terms, terms that depend on conditions, and substitution in both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from workbench.proof.terms import Atom, Number, Term, quotient, ratio, remainder, term


class Predicate:
    """A condition: ``less`` (a term is below 0), ``zero``, ``not``, ``and``, ``or``, ``true`` or ``false``."""

    __slots__ = ("_hash", "deps", "kind", "opposite", "parts")

    def __init__(self, kind: str, *parts: Any):
        self.kind, self.parts = kind, parts
        self._hash = hash((kind, parts))
        self.opposite: Predicate | None = None
        self.deps: frozenset[Atom] = frozenset().union(*(one.deps for one in parts))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predicate) and self._hash == other._hash and (
            (self.kind, self.parts) == (other.kind, other.parts)
        )  # fmt: skip

    def __repr__(self) -> str:
        if self.kind in ("less", "zero"):
            return f"{self.parts[0]} {'< 0' if self.kind == 'less' else '== 0'}"
        return f"{self.kind}({', '.join(map(str, self.parts))})"


TRUE, FALSE = Predicate("true"), Predicate("false")


def negative(value: Number) -> Predicate:
    """Return the condition that a term is below 0."""
    value = term(value)
    return _of_a_choice(value, negative) or undivided(value)


def undivided(value: Term) -> Predicate:
    """Return the condition that a term is below 0 as one comparison, from which bounds of a minimum follow."""
    low, high = value.bounds
    if high is not None and high < 0:
        return TRUE
    return FALSE if low is not None and low >= 0 else Predicate("less", value)


def _of_a_choice(value: Term, test: Callable[[Term], Predicate]) -> Predicate | None:
    """Return a condition of a choice, perhaps with a factor and a number, where a way of it decides; else None."""
    keys = [key for key in value.parts if key]
    if len(keys) != 1 or len(keys[0]) != 1 or keys[0][0].kind not in ("choice", "flag"):
        return None
    ((atom,),), factor, rest = keys, value.parts[keys[0]], value.parts.get((), 0)
    condition, *ways = atom.args if atom.kind == "choice" else (*atom.args, term(1), term(0))
    chosen, other = (test(way * factor + rest) for way in ways)
    if not {chosen.kind, other.kind} & {"true", "false"}:
        return None
    return either(both(condition, chosen), both(negation(condition), other))


def at_most(one: Number, other: Number) -> Predicate:
    """Return the condition ``one <= other``."""
    return negative(term(one) - other - 1)


def below(one: Number, other: Number) -> Predicate:
    """Return the condition ``one < other``."""
    return negative(term(one) - other)


def between(low: Number, value: Number, high: Number) -> Predicate:
    """Return the condition ``low <= value <= high``."""
    return both(at_most(low, value), at_most(value, high))


def zero(value: Number) -> Predicate:
    """Return the condition that a term is 0."""
    value = term(value)
    if value.constant is not None:
        return TRUE if value.constant == 0 else FALSE
    low, high = value.bounds
    if (low is not None and low > 0) or (high is not None and high < 0):
        return FALSE
    decided = _of_a_choice(value, zero)
    if decided is not None:
        return decided
    first = min(value.parts, key=lambda key: [one.number for one in key])
    return Predicate("zero", value if value.parts[first] > 0 else -value)


def equal(one: Number, other: Number) -> Predicate:
    """Return the condition ``one == other``."""
    return zero(term(one) - other)


def negation(condition: Predicate) -> Predicate:
    """Return the opposite of a condition."""
    if condition.opposite is None:
        condition.opposite = _negated(condition)
    return condition.opposite


def _negated(condition: Predicate) -> Predicate:
    kind, parts = condition.kind, condition.parts
    if kind == "less":
        return negative(-parts[0] - 1)
    if kind in ("true", "false"):
        return FALSE if kind == "true" else TRUE
    if kind == "not":
        return parts[0]
    if kind == "and":
        return either(*map(negation, parts))
    if kind == "or":
        return both(*map(negation, parts))
    return Predicate("not", condition)


def conjuncts(condition: Predicate) -> tuple[Predicate, ...]:
    """Return the conditions that all have to hold."""
    return () if condition == TRUE else condition.parts if condition.kind == "and" else (condition,)


def both(*conditions: Predicate) -> Predicate:
    """Return the condition that all of them hold."""
    return _joined("and", TRUE, FALSE, conditions)


def either(*conditions: Predicate) -> Predicate:
    """Return the condition that one of them holds."""
    return _joined("or", FALSE, TRUE, conditions)


def _joined(kind: str, neutral: Predicate, final: Predicate, conditions: Iterable[Predicate]) -> Predicate:
    found: dict[Predicate, None] = {}
    for whole in conditions:
        for one in whole.parts if whole.kind == kind else (whole,):
            if one == final or (one.kind in ("less", "zero", "not") and negation(one) in found):
                return final
            if one != neutral:
                found[one] = None
    for one in found:  # the paths that join often leave out each other: of (not a) or (a and b), b is left
        if one.kind in ("and", "or"):
            kept = [part for part in one.parts if negation(part) not in found]
            if any(part in found for part in one.parts):
                return _joined(kind, neutral, final, [other for other in found if other is not one])
            if len(kept) < len(one.parts):
                simpler = (both if kind == "or" else either)(*kept)
                return _joined(kind, neutral, final, [simpler if other is one else other for other in found])
    parts = tuple(found)
    return neutral if not parts else parts[0] if len(parts) == 1 else Predicate(kind, *parts)


def without(conditions: Iterable[Predicate]) -> tuple[tuple[Predicate, ...], list[Predicate]]:
    """Return the conjuncts that all of the conditions have, and each condition without these."""
    several = [conjuncts(one) for one in conditions]
    sets = [frozenset(one) for one in several[1:]]
    common = tuple(one for one in several[0] if all(one in other for other in sets))
    kept = frozenset(common)
    return common, [both(*(part for part in one if part not in kept)) for one in several]


def flag(condition: Predicate) -> Term:
    """Return the term that is 1 where a condition holds, else 0."""
    if condition.kind in ("true", "false"):
        return term(1 if condition == TRUE else 0)
    return next(iter(condition.deps)).arena.atom("flag", "", (condition,), 0, 1)


def choice(condition: Predicate, one: Number, other: Number) -> Term:
    """Return the term that is ``one`` where a condition holds, else ``other``."""
    one, other = term(one), term(other)
    if condition == TRUE or one == other:
        return one
    if condition == FALSE:
        return other
    if condition.kind == "not":
        return choice(condition.parts[0], other, one)
    if condition.kind == "zero":
        ring = _ring(condition.parts[0], one, other)
        if ring is not None:
            return ring
    difference = (one - other).constant
    if difference is not None:
        return other + flag(condition) * difference if difference > 0 else one + flag(negation(condition)) * -difference
    arena = next(iter(condition.deps)).arena
    common = Term({key: factor for key, factor in one.parts.items() if other.parts.get(key) == factor})
    if any(atom.kind == "pointer" for atom in (one - common).deps | (other - common).deps):
        common = term(0)  # an address keeps its array
    one, other = one - common, other - common
    unit = math.gcd(*one.parts.values(), *other.parts.values())
    one, other = (Term({key: factor // unit for key, factor in part.parts.items()}) for part in (one, other))
    return common + arena.atom("choice", "", (condition, one, other)) * unit


def _ring(place: Term, one: Term, other: Term) -> Term | None:
    """Return the remainder that equals a step around a ring: ``p == m ? 0 : p + 1``, or ``p == 0 ? m : p - 1``."""
    last = one.constant
    if last is None:
        return None
    for here in (place, -place):
        size = ((other - 1) - here).constant
        if size is not None and last == 0 and (other - 1).bounds == (0, size):
            return remainder(other, size + 1)
        back = other + 1
        low, high = back.bounds
        if (back - here).constant == 0 and low == 0 and high is not None and high <= last:
            return remainder(back + last, last + 1)
    return None


def substituted(value: Any, mapping: Mapping[Atom, Term]) -> Any:
    """Return a term or a condition with atoms replaced, also inside of what other atoms are computed from."""
    known: dict[Atom, Term] = {}

    def in_term(one: Term) -> Term:
        if one.deps.isdisjoint(mapping):
            return one
        total = term(0)
        for key, factor in one.parts.items():
            product = term(factor)
            for atom in key:
                product = product * in_atom(atom)
            total = total + product
        return total

    def in_atom(atom: Atom) -> Term:
        found = mapping.get(atom) or known.get(atom)
        if found is None:
            found = known[atom] = Term({(atom,): 1}) if atom.deps.isdisjoint(mapping) else rebuilt(atom)
        return found

    def rebuilt(atom: Atom) -> Term:
        args = tuple(anything(one) for one in atom.args)
        if atom.kind == "choice":
            return choice(*args)
        if atom.kind == "flag":
            return choice(args[0], 1, 0)
        if atom.kind == "quotient":
            return quotient(*args)
        if atom.kind == "ratio":
            return ratio(*args[:2])
        if atom.kind == "bit":
            return remainder(quotient(args[0], 1 << args[1]), 2)
        high = in_term(atom.high) if isinstance(atom.high, Term) else atom.high
        return atom.arena.atom(atom.kind, atom.name, args, atom.low, high, atom.scope)

    def in_condition(one: Predicate) -> Predicate:
        if one.deps.isdisjoint(mapping):
            return one
        if one.kind == "less":
            return negative(in_term(one.parts[0]))
        if one.kind == "zero":
            return zero(in_term(one.parts[0]))
        parts = [in_condition(part) for part in one.parts]
        return negation(parts[0]) if one.kind == "not" else both(*parts) if one.kind == "and" else either(*parts)

    def anything(one: Any) -> Any:
        return in_term(one) if isinstance(one, Term) else in_condition(one) if isinstance(one, Predicate) else one

    return anything(value)


def narrowed(value: Any, path: Predicate) -> Any:
    """Return a term or a condition with the way that each choice takes where a path holds, if a part of it tells."""
    known = frozenset(conjuncts(path))
    mapping: dict[Atom, Term] = {}
    for atom in value.deps:
        if atom.kind in ("choice", "flag"):
            condition, *ways = atom.args if atom.kind == "choice" else (*atom.args, term(1), term(0))
            for holds, way in zip((condition, negation(condition)), ways, strict=True):
                if known.issuperset(conjuncts(holds)):
                    mapping[atom] = narrowed(way, path)
    return substituted(value, mapping) if mapping else value
