"""Copies in flight at the head of a loop's round."""

from __future__ import annotations

from collections.abc import Callable

from workbench.proof.access import Pending, ThreadAccess
from workbench.proof.conditions import TRUE, Predicate, at_most, both, conjuncts, substituted, zero
from workbench.proof.state import Queue
from workbench.proof.terms import Atom, Term, term
from workbench.proof.unknown import Unknown
from workbench.ptx.parse import Statement

_MOST_GROUPS = 8
_HEAD = ""
"""Base of the stand-in for a group that was in flight at the head already."""


class HeadCopies:
    """The groups in flight at the head of round k: in the first those before the loop, else those of round k - 1."""

    def __init__(self, count: Term, index: Atom, before: tuple[Pending, ...]):
        self.count, self.index, self.before = count, index, before
        self.groups: tuple[Pending, ...] = before

    def guess(self, statement: Statement, trial: Callable[[tuple[Pending, ...]], Queue]) -> None:
        """Find the groups from trial rounds, which begin with stand-ins."""
        length = len(self.before)
        while True:
            after = trial(tuple(_stand_in(statement, place) for place in range(length)))
            if after.open:
                raise Unknown(statement, "copies that a round of a loop does not commit")
            if len(after.groups) <= length:
                break
            if length > _MOST_GROUPS:
                raise Unknown(statement, "more and more copies in flight in each round of a loop")
            length = len(after.groups)
        if not length:
            return
        before, found = _padded(self.before, length), _padded(after.groups, length)
        self.groups = tuple(self._at(statement, place, self.count, before, found, 0) for place in range(length))

    def _at(
        self, statement: Statement, place: int, count: Term, before: tuple[Pending, ...], found: tuple[Pending, ...],
        depth: int,
    ) -> Pending:  # fmt: skip
        if depth > _MOST_GROUPS:
            raise Unknown(statement, "copies that stay in flight over the rounds of a loop")
        entries = [(both(zero(count), when), one) for when, one in before[place]]
        mapping = {self.index: count - 1}
        later = at_most(1, count)
        for when, one in found[place]:
            condition = both(later, substituted(when, mapping))
            if one.base == _HEAD:
                older = self._at(statement, one.width, count - 1, before, found, depth + 1)
                entries += [(both(condition, further), copy) for further, copy in older]
            else:
                entries.append((condition, one.substituted(mapping)))
        return tuple(entries)

    def kept(self, after: Queue, holds: Callable[[Predicate, Predicate], bool]) -> bool:
        """Return True if the copies in flight at the end of a round are those assumed at its beginning."""
        following = {self.index: self.count + 1}
        real = _padded(after.groups, len(self.groups))
        if len(real) > len(self.groups) or after.open:
            return False
        for group, guessed in zip(real, self.groups, strict=True):
            wanted = [(substituted(when, following), one.substituted(following)) for when, one in guessed]
            for when, one in group:
                path = both(when, one.path)
                if not any(_covers(other, one) and _implied(path, both(it, other.path), holds) for it, other in wanted):
                    return False
        return True


def _covers(one: ThreadAccess, other: ThreadAccess) -> bool:
    brought, its = (None if it.brought is None else it.brought.key for it in (one, other))
    here, there = ((it.base, it.offset, it.width, it.writes) for it in (one, other))
    return here == there and brought == its


def _implied(path: Predicate, goal: Predicate, holds: Callable[[Predicate, Predicate], bool]) -> bool:
    known = frozenset(conjuncts(path))
    return all(one in known for one in conjuncts(goal)) or holds(path, goal)


def _padded(groups: tuple[Pending, ...], length: int) -> tuple[Pending, ...]:
    return ((),) * (length - len(groups)) + groups


def _stand_in(statement: Statement, place: int) -> Pending:
    return ((TRUE, ThreadAccess(statement, _HEAD, term(0), place, TRUE, False, True, False, True, (), ())),)
