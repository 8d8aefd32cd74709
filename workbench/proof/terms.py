"""Integer terms: polynomials with integer coefficients over *atoms*, which are indices, parameters and opaque values.

A term stands for an exact integer. What a register holds is that integer modulo two to the power of its width, so that
sums, differences and products need no case for wrapping; an instruction that depends on the value itself asks for the
range first (`workbench.proof.values`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Union

GRID, BLOCK, THREAD = 0, 1, 2
"""Scopes of an atom: the same in the whole grid, in one block, or in one thread only."""

Bounds = tuple[int | None, int | None]
Monomial = tuple["Atom", ...]
Number = Union["Term", int]


class Atom:
    """An integer that no polynomial describes further.

    ``kind`` says what it is: ``param``, ``tid``, ``ctaid``, ``round`` (of a loop), ``unknown``, ``pointer``,
    ``header`` (a register at the head of a loop), ``load``, ``bit``, ``flag`` (1 where a condition holds), ``choice``,
    ``quotient`` (by a constant) or ``ratio`` (by a term). ``args`` are what it is computed from, or the rounds of the
    loops in which it was made. ``low`` and ``high`` bound it.
    """

    __slots__ = ("arena", "args", "deps", "high", "kind", "low", "name", "number", "scope")

    def __init__(
        self, arena: Arena, kind: str, name: str, args: tuple, low: int | None, high: Number | None, scope: int
    ):
        self.arena, self.kind, self.name, self.args, self.low, self.high = arena, kind, name, args, low, high
        self.number = len(arena.atoms)
        parts = [one for one in (*args, high) if hasattr(one, "deps")]
        self.deps: frozenset[Atom] = frozenset((self,)).union(*(one.deps for one in parts))
        self.scope: int = max([scope, *(one.scope for one in self.deps if one is not self)])

    def __lt__(self, other: Atom) -> bool:
        return self.number < other.number

    def __repr__(self) -> str:
        if self.kind == "quotient":
            return f"({self.args[0]})/{self.args[1]}"
        if self.kind == "ratio":
            return f"({self.args[0]})/({self.args[1]})"
        return self.name or f"{self.kind}{self.number}"


class Arena:
    """The atoms of one proof. Equal atoms are one object, and their order is that in which they were made."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self._known: dict[tuple, Atom] = {}

    def atom(
        self,
        kind: str,
        name: str,
        args: tuple = (),
        low: int | None = None,
        high: Number | None = None,
        scope: int = GRID,
    ) -> Term:
        """Return the atom with these properties as a term."""
        key = (kind, name, args)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Atom(self, kind, name, args, low, high, scope)
            self.atoms.append(found)
        return Term({(found,): 1})


class Term:
    """A polynomial: coefficients by monomial; the empty monomial is the constant."""

    __slots__ = ("_bounds", "_deps", "_hash", "parts")

    def __init__(self, parts: Mapping[Monomial, int]):
        self.parts = parts
        self._hash: int | None = None
        self._deps: frozenset[Atom] | None = None
        self._bounds: Bounds | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.parts.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Term) and self.parts == other.parts

    def __add__(self, other: Number) -> Term:
        parts = dict(self.parts)
        for key, factor in term(other).parts.items():
            factor += parts.pop(key, 0)
            if factor:
                parts[key] = factor
        return Term(parts)

    def __neg__(self) -> Term:
        return Term({key: -factor for key, factor in self.parts.items()})

    def __sub__(self, other: Number) -> Term:
        return self + -term(other)

    def __rsub__(self, other: int) -> Term:
        return term(other) - self

    def __mul__(self, other: Number) -> Term:
        parts: dict[Monomial, int] = {}
        for one, x in self.parts.items():
            for two, y in term(other).parts.items():
                key = tuple(sorted(one + two)) if one and two else one or two
                factor = x * y + parts.pop(key, 0)
                if factor:
                    parts[key] = factor
        return Term(parts)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, divisor: int) -> Term:
        return quotient(self, divisor) if isinstance(divisor, int) and divisor >= 1 else NotImplemented

    def __mod__(self, divisor: int) -> Term:
        return remainder(self, divisor) if isinstance(divisor, int) and divisor >= 1 else NotImplemented

    @property
    def constant(self) -> int | None:
        """Value of a term without atoms, else None."""
        if not self.parts:
            return 0
        return self.parts[()] if len(self.parts) == 1 and () in self.parts else None

    @property
    def atom(self) -> Atom | None:
        """The atom that the term is, else None."""
        if len(self.parts) == 1:
            ((key, factor),) = self.parts.items()
            if factor == 1 and len(key) == 1:
                return key[0]
        return None

    @property
    def deps(self) -> frozenset[Atom]:
        """Every atom in it, and in what those are computed from."""
        if self._deps is None:
            self._deps = frozenset().union(*(one.deps for key in self.parts for one in key))
        return self._deps

    @property
    def arena(self) -> Arena:
        """Arena of its atoms; a constant has none."""
        return next(key[0].arena for key in self.parts if key)

    @property
    def bounds(self) -> Bounds:
        """Bounds of its value, from the bounds of its atoms alone."""
        if self._bounds is None:
            self._bounds = _bounds_of(self)
        return self._bounds

    def within(self, low: int, high: int) -> bool:
        """Return True if its bounds lie in ``low`` to ``high``."""
        least, most = self.bounds
        return least is not None and most is not None and least >= low and most <= high

    def __repr__(self) -> str:
        def one(key: Monomial, factor: int) -> str:
            name = "*".join(map(str, key))
            return str(factor) if not key else name if factor == 1 else f"{factor}*{name}"

        found = sorted(self.parts.items(), key=lambda item: (len(item[0]), [one.number for one in item[0]]))
        return " + ".join(one(*item) for item in found) or "0"


def term(value: Number) -> Term:
    """Return a number as a term."""
    return value if isinstance(value, Term) else Term({(): int(value)} if value else {})


def quotient(dividend: Number, divisor: int) -> Term:
    """Return the quotient by a positive constant, rounded down."""
    dividend = term(dividend)
    if divisor == 1:
        return dividend
    if dividend.constant is not None:
        return term(dividend.constant // divisor)
    parts = dividend.parts.items()
    whole = Term(
        {key: factor // divisor for key, factor in parts if factor % divisor == 0 or (not key and factor // divisor)}
    )
    rest = dividend - whole * divisor
    low, high = rest.bounds
    if low is not None and high is not None and low // divisor == high // divisor:
        return whole + low // divisor
    if all(factor < 0 for key, factor in rest.parts.items() if key):  # -(n // d) and (n + d - 1) // d have one form
        return whole - quotient(-rest + (divisor - 1), divisor)
    inner = rest.atom
    if inner is not None and inner.kind == "quotient":
        return whole + quotient(inner.args[0], inner.args[1] * divisor)
    return whole + rest.arena.atom("quotient", "", (rest, divisor))


def remainder(dividend: Number, divisor: int) -> Term:
    """Return the remainder of `quotient`, from 0 to ``divisor - 1``."""
    return dividend - quotient(dividend, divisor) * divisor if isinstance(dividend, Term) else term(dividend % divisor)


def divided(dividend: Term, divisor: Term) -> Term | None:
    """Return the exact quotient by a product of atoms, or None if it does not divide every monomial."""
    if len(divisor.parts) != 1:
        return None
    ((factors, scale),) = divisor.parts.items()
    if scale != 1 or not factors:
        return None
    parts = {}
    for key, factor in dividend.parts.items():
        left = list(key)
        for one in factors:
            if one not in left:
                return None
            left.remove(one)
        parts[tuple(left)] = factor
    return Term(parts)


def ratio(dividend: Term, divisor: Term) -> Term:
    """Return the quotient by a term, rounded down; it is 0 where the dividend is below 0 or the divisor below 1."""
    number, (least, most) = divisor.constant, dividend.bounds
    if number is not None:  # a divisor of a round of a loop becomes one
        if number < 1 or (most is not None and most < 0):
            return term(0)
        if least is not None and least >= 0:
            return quotient(dividend, number)
    exact = divided(dividend, divisor)
    if exact is not None:
        return exact
    only = dividend.atom
    top = None if only is None or only.high is None else divided(term(only.high) + 1, divisor)
    args = (dividend, divisor) if top is None else (dividend, divisor, top - 1)
    return (dividend if number is not None else divisor).arena.atom("ratio", "", args, 0)


def bounds_of_atom(atom: Atom) -> Bounds:
    """Return bounds of an atom, from its own and from what it is computed from."""
    low: int | None = atom.low
    high = atom.high.bounds[1] if isinstance(atom.high, Term) else atom.high
    if atom.kind == "quotient":
        inner: Any = atom.args[0].bounds
        divisor = atom.args[1]
        low = None if inner[0] is None else inner[0] // divisor
        high = None if inner[1] is None else inner[1] // divisor
    elif atom.kind == "choice":
        (one, two), (three, four) = _bounds_of_ways(*atom.args)
        low = None if one is None or three is None else min(one, three)
        high = None if two is None or four is None else max(two, four)
    return low, high


def _bounds_of_ways(condition: Any, one: Term, other: Term) -> tuple[Bounds, Bounds]:
    """Return bounds of both terms of a choice, each where it is chosen: a minimum has the least upper bound of both."""
    (low, high), (least, most) = one.bounds, other.bounds
    difference = one - other
    key = next((key for key in difference.parts if key), None)
    if condition.kind != "less" or key is None or key not in condition.parts[0].parts:
        return (low, high), (least, most)
    compared = condition.parts[0]
    unit, rest = divmod(compared.parts[key], difference.parts[key])
    constant = None if rest else (compared - difference * unit).constant
    if constant is None:
        return (low, high), (least, most)
    if unit > 0:  # one <= other + (-1 - constant) // unit, else other <= one + constant // unit
        top, roof = _sum(most, (-1 - constant) // unit), _sum(high, constant // unit)
        return (low, _least(high, top)), (least, _least(most, roof))
    bottom, floor = _sum(least, -((-1 - constant) // -unit)), _sum(low, -(constant // -unit))
    return (_most(low, bottom), high), (_most(least, floor), most)


def _sum(one: int | None, other: int) -> int | None:
    return None if one is None else one + other


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _most(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _bounds_of(value: Term) -> Bounds:
    low: int | None = 0
    high: int | None = 0
    for key, factor in value.parts.items():
        least, most = bounds_of_product(key)
        if factor < 0:
            least, most = most, least
        low = None if low is None or least is None else low + factor * least
        high = None if high is None or most is None else high + factor * most
    # t - d * (t / d) lies in [0, d). The latest quotient is the outermost one; one after the other keeps this linear.
    for key, factor in sorted(value.parts.items(), key=lambda part: part[0], reverse=True):
        for dividend, divisor in _dividends(key, factor, value):
            scale = -factor // divisor
            rest = value - (dividend - Term({key: divisor})) * scale
            if len(rest.parts) < len(value.parts):
                least, most = rest.bounds
                if least is not None:
                    low = least if low is None else max(low, least)
                if most is not None:
                    upper = most + scale * (divisor - 1)
                    high = upper if high is None else min(high, upper)
                return low, high
    return low, high


def _dividends(key: Monomial, factor: int, value: Term) -> Iterator[tuple[Term, int]]:
    """Yield what a negative multiple of a quotient may be the quotient of: ``t / d`` and, of ``(t / c) / d``, t / c."""
    if factor >= 0 or len(key) != 1 or key[0].kind != "quotient":
        return
    dividend, divisor = key[0].args
    if -factor % divisor == 0:
        yield dividend, divisor
    for other in value.parts:
        if len(other) == 1 and other[0].kind == "quotient" and other[0].args[0] == dividend:
            outer, rest = divmod(divisor, other[0].args[1])
            if not rest and outer > 1 and -factor % outer == 0:
                yield Term({other: 1}), outer


def bounds_of_product(key: Monomial) -> Bounds:
    """Return bounds of a product of atoms."""
    least: int | None = 1
    most: int | None = 1
    for one in key:
        low, high = bounds_of_atom(one)
        if least is None or most is None or low is None or high is None:
            both = least is not None and low is not None and least >= 0 and low >= 0
            least, most = (least * low, None) if both and least is not None and low is not None else (None, None)
            continue
        corners = [least * low, least * high, most * low, most * high]
        least, most = min(corners), max(corners)
    return least, most
