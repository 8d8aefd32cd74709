"""Terms for registers that go round a ring of numbers from round to round of a loop."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.proof.conditions import Predicate, choice, equal
from workbench.proof.terms import Term, remainder, term


def number_of(value: Term | Predicate) -> int | None:
    """Return the number that a term is, else None."""
    return value.constant if isinstance(value, Term) else None


def remainder_of(value: Term) -> tuple[Term, int] | None:
    """Return the dividend and the divisor of a term that is a remainder."""
    for key, factor in value.parts.items():
        if len(key) == 1 and key[0].kind == "quotient" and factor == -key[0].args[1] and key[0].args[1] > 1:
            dividend, divisor = key[0].args
            if value == remainder(dividend, divisor):
                return dividend, divisor
    return None


def on_ring(count: Term, ring: Sequence[int]) -> Term:
    """Return the number of a round on a ring of numbers."""
    place = remainder(count, len(ring))
    if len(ring) > 1 and all(one == ring[0] + i * (ring[1] - ring[0]) for i, one in enumerate(ring)):
        return ring[0] + place * (ring[1] - ring[0])
    found = term(ring[-1])
    for i in range(len(ring) - 2, -1, -1):
        found = choice(equal(place, i), ring[i], found)
    return found
