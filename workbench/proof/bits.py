"""The bits of terms, so that the masks and exclusive ors of compiled index arithmetic stay linear."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.proof.conditions import both, choice, either, equal, zero
from workbench.proof.terms import Atom, Term, quotient, remainder, term

_MOST = 1 << 12  # above every thread's index in a block along one dimension, but not much

_MOST_ROWS = 4


def bit(atom: Atom, place: int) -> Term:
    """Return a bit of an atom that is at least 0."""
    return atom.arena.atom("bit", f"{atom.name}.bit{place}", (Term({(atom,): 1}), place), 0, 1)


def bits_of(value: Term, width: int) -> list[Term] | None:
    """Return the bits of a term, the lowest first, or None if its monomials overlap or are not known by bits."""
    found = [term(0)] * width
    if value.within(0, 1) and value.constant is None:
        return [value, *found[1:]]

    def put(place: int, one: Term) -> bool:
        if place >= width or found[place].parts:
            return False
        found[place] = one
        return True

    for key, factor in value.parts.items():
        if factor < 0 or len(key) > 1:
            return None
        places = [place for place in range(factor.bit_length()) if factor >> place & 1]
        if not key:
            ones = [(place, term(1)) for place in places]
        elif key[0].kind in ("bit", "flag"):
            ones = [(place, Term({key: 1})) for place in places]
        elif len(places) == 1 and key[0].kind == "tid" and isinstance(key[0].high, int) and key[0].high < _MOST:
            ones = [(places[0] + i, bit(key[0], i)) for i in range(key[0].high.bit_length())]
        else:
            return None
        if not all(put(place, one) for place, one in ones):
            return None
    return found


def from_bits(bits: Sequence[Term]) -> Term:
    """Return the term of these bits; all bits of an atom become the atom again."""
    total = term(0)
    for place, one in enumerate(bits):
        total = total + one * (1 << place)
    whole = {one.args[0].atom for key in total.parts for one in key if one.kind == "bit"}
    for atom in sorted(one for one in whole if one is not None):
        assert isinstance(atom.high, int)  # `bits_of` takes no others
        own = [bit(atom, i) for i in range(atom.high.bit_length())]
        keys = [next(iter(one.parts)) for one in own]
        scale = total.parts.get(keys[0])
        if scale is not None and all(total.parts.get(key) == scale << i for i, key in enumerate(keys)):
            total = total + Term({(atom,): scale}) - Term({key: scale << i for i, key in enumerate(keys)})
    return total


def combined(operation: str, one: Term, other: Term, width: int) -> Term | None:
    """Return ``and``, ``or`` or ``xor`` of two terms bit by bit, or None where their bits are not known."""
    left, right = bits_of(one, width), bits_of(other, width)
    if left is None or right is None:
        return None
    return from_bits([_ONE_BIT[operation](x, y) for x, y in zip(left, right, strict=True)])


def _and(x: Term, y: Term) -> Term:
    if x.constant is not None:
        return y if x.constant else term(0)
    if y.constant is not None or x == y:
        return _and(y, x) if x != y else x
    return choice(both(equal(x, 1), equal(y, 1)), 1, 0)


def _or(x: Term, y: Term) -> Term:
    if x.constant is not None:
        return term(1) if x.constant else y
    if y.constant is not None or x == y:
        return _or(y, x) if x != y else x
    return choice(either(equal(x, 1), equal(y, 1)), 1, 0)


def _xor(x: Term, y: Term) -> Term:
    if x.constant == 0 or y.constant == 0:
        return x + y
    return choice(zero(x - y), 0, 1)


_ONE_BIT = {"and": _and, "or": _or, "xor": _xor}


def masked(value: Term, mask: int, width: int) -> Term | None:
    """Return ``value & mask`` of any term for a mask of a few rows of ones, else None."""
    total, start = term(0), 0
    for _ in range(_MOST_ROWS):
        if not mask >> start:
            return total
        start += (mask >> start & -(mask >> start)).bit_length() - 1
        ones = mask >> start
        count = (~ones & ones + 1).bit_length() - 1
        if start + count == width:  # only lower bits go
            return total + value - remainder(value, 1 << start)
        total = total + remainder(quotient(value, 1 << start), 1 << count) * (1 << start)
        start += count
    return None if mask >> start else total


def in_parts(operation: str, one: Term, other: Term, width: int) -> Term | None:
    """Return a bitwise operation with a small ``other``: the part of ``one`` that is a larger multiple stays as it is.

    None if the bits of the rest are not known.
    """
    low, high = other.bounds
    if low is None or low < 0 or high is None:
        return None
    unit = 1 << high.bit_length()
    while unit <= 1 << width:
        upper = Term({key: factor for key, factor in one.parts.items() if factor % unit == 0})
        rest = one - upper
        least, most = rest.bounds
        if least is not None and least >= 0 and most is not None and most < unit:
            small = combined(operation, rest, other, width)
            return None if small is None else small if operation == "and" else upper + small
        if not upper.parts:
            return None
        unit *= 2
    return None
