"""The order of accesses of threads in different roles, by the barriers that they count at.

A thread *knows* K items of a ring if the items below K are over: by its own waits, and by what a thread knew that made
its arrival for the last of these. An access of another thread is over if that thread has made an arrival since, for an
item that is known to be over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workbench.proof.access import ThreadAccess
from workbench.proof.clocks import MADE, WAITED, BarrierUse, Ring, ThreadCounts
from workbench.proof.conditions import Predicate, at_most, equal
from workbench.proof.indices import thread_index
from workbench.proof.records import Release
from workbench.proof.roles import Roles
from workbench.proof.solver import Question
from workbench.proof.solver_texts import all_of, any_of
from workbench.proof.terms import Term, remainder

_MOST_RATE = 4


@dataclass(frozen=True, order=True)
class Ahead:
    """A relation of two rings: who makes arrival g at one knows at least ``rate * g + least`` items of the other.

    ``least`` is at most ``rate``, so that nothing follows from arrivals that are not made; ``sure`` may be more, for
    those that are.
    """

    rate: int
    least: int
    sure: int

    @classmethod
    def of(cls, rate: int, sure: int) -> Ahead:
        """Return the relation of arrivals that know so many items."""
        return cls(rate, min(rate, sure), sure)

    def after_made(self, arrival: Term) -> Term:
        """Return the items that are known with an arrival, which is made: its number is at least 0."""
        return arrival * self.rate + self.sure

    def after(self, arrival: Term) -> Term:
        """Return the items that are known with an arrival."""
        return arrival * self.rate + self.least

    def then(self, other: Ahead) -> Ahead:
        """Return what is known by way of the other ring of a third one."""
        further = other.sure if self.sure >= 1 else other.least  # who knows an item has an arrival that is made
        return Ahead.of(self.rate * other.rate, other.rate * (self.sure - 1) + further)


def _arrival(event: BarrierUse, ring: Ring) -> Term:
    """Return the number of the arrival that an event is, or to which its copy belongs."""
    return event.clock.of(ring) - (event.kind == "copy")


Relations = dict[tuple[Ring, Ring], Ahead]


def _learn(known: Relations, ring: Ring, other: Ring, found: Ahead | None) -> None:
    if found is not None and found > known.get((ring, other), Ahead(0, 0, 0)):
        known[ring, other] = found


class HappensBefore:
    """The order of the accesses of `Roles`.

    ``makers`` are the roles that arrive at a ring, ``shift`` what a role's wait is ahead of the item that it waits for,
    ``ahead`` the least by which knowledge of another ring is ahead of the arrival that is made with it. ``passed`` is
    the same about time alone: when an item is over, that many of another ring are, which who asked for its bytes had
    passed, though what was written before need not be seen.
    """

    def __init__(self, roles: Roles):
        self.roles = roles
        self.makers: dict[Ring, set[int]] = {one: set() for one in roles.rings}
        for one in roles.events("arrive", "bar", "product"):
            self.makers[one.at].add(one.clock.role)
        self.shift: dict[tuple[int, Ring], int] = {}
        self.wrong: list[BarrierUse] = []
        self._later: dict[tuple, bool] = {}
        self._read_waits()
        self._close()

    # -- what threads know ---------------------------------------------------------------------------------------

    def _read_waits(self) -> None:
        waits: dict[tuple[int, Ring], list[BarrierUse]] = {}
        for one in self.roles.events("wait"):
            waits.setdefault((one.clock.role, one.at), []).append(one)
        for (role, ring), several in waits.items():
            for shift in (0, -ring.slots):
                unfit = [one for one in several if not self._has_parity(one, ring, shift)]
                if not unfit:
                    self.shift[role, ring] = shift
                    break
            else:
                self.wrong.append(unfit[0])

    def _has_parity(self, wait: BarrierUse, ring: Ring, shift: int) -> bool:
        if not isinstance(wait.number, Term):
            return False
        parity = remainder(ring.phase(wait.clock.of(ring, WAITED) + shift), 2)
        return self.holds(wait, equal(parity, remainder(wait.number, 2)))  # the lowest bit counts

    def holds(self, event: BarrierUse, condition: Predicate) -> bool:
        """Return True if a condition can be proved for all threads of an event."""
        return self.roles.holds(event, condition)

    def waited(self, clock: ThreadCounts, ring: Ring) -> Term | None:
        """Return how many items of a ring a thread knows by its own waits."""
        if ring.is_bar or ring.is_group:
            return clock.of(ring, MADE if ring.is_bar else WAITED) if clock.role in self.makers[ring] else None
        shift = self.shift.get((clock.role, ring))
        return None if shift is None else clock.of(ring, WAITED) + shift

    def knows(self, clock: ThreadCounts) -> Iterator[tuple[Ring, Term]]:
        """Yield, for each ring, numbers of items that a thread knows to be over; the largest counts."""
        for ring in self.roles.rings:
            own = self.waited(clock, ring)
            if own is None:
                continue
            yield ring, own
            for other in self.roles.rings:
                ahead = self.ahead.get((ring, other))
                if ahead is not None:
                    yield other, ahead.after(own - 1)

    def known(self, clock: ThreadCounts, ring: Ring) -> list[Term]:
        """Return numbers of items of a ring that a thread knows to be over."""
        return list(dict.fromkeys(value for one, value in self.knows(clock) if one == ring))

    def _close(self) -> None:
        arrivals: dict[tuple[Ring, int], list[BarrierUse]] = {}
        for one in self.roles.events("arrive", "bar", "product"):
            arrivals.setdefault((one.at, one.clock.role), []).append(one)
        direct: Relations = {}
        for (ring, _), several in arrivals.items():
            self._learn_from(several, ring, direct)
        self.ahead = self._closed(direct)
        announced = {(one.statement.start, one.clock) for one in self.roles.events("announce")}
        for (ring, role), several in arrivals.items():
            copies = [one for one in self.roles.events("copy") if (one.at, one.clock.role) == (ring, role)]
            if copies and all(
                (one.statement.start, one.clock) in announced for one in several
            ):  # an item is over when its bytes have come
                self._learn_from(copies, ring, direct)
        self.passed = self._closed(direct)

    def _learn_from(self, events: list[BarrierUse], ring: Ring, known: Relations) -> None:
        """Add what threads know at some events, of one role and ring, about other rings."""
        for other in self.roles.rings:
            if other != ring or not ring.is_bar:
                _learn(known, ring, other, self._ahead(events, ring, other))

    def _closed(self, direct: Relations) -> Relations:
        """Return relations with all that follow from them."""
        found = dict(direct)
        for middle in self.roles.rings:
            for first in self.roles.rings:
                for last in self.roles.rings:
                    here, there = found.get((first, middle)), found.get((middle, last))
                    if here is not None and there is not None:
                        _learn(found, first, last, here.then(there))
        return found

    def _ahead(self, arrivals: list[BarrierUse], ring: Ring, other: Ring) -> Ahead | None:
        """Return by how much knowledge of a ring is ahead of all of a role's arrivals, or copies, at another."""
        found = []
        for one in arrivals:
            own = self.waited(one.clock, other)
            if own is None:
                return None
            found.append((one, own))
        for rate in range(1, _MOST_RATE + 1):
            exact = [(own - _arrival(one, ring) * rate).constant for one, own in found]
            if None not in exact:
                return Ahead.of(rate, min(least for least in exact if least is not None))
        several = [self._least(one, own - _arrival(one, ring), other) for one, own in found]
        return None if None in several else Ahead.of(1, min(least for least in several if least is not None))

    def _least(self, event: BarrierUse, value: Term, ring: Ring) -> int | None:
        """Return the largest number up to 1 that a value is at least."""
        low, _ = value.bounds
        if low is not None and low >= 1:
            return 1
        least = -2 * ring.slots - 2
        if not self.holds(event, at_most(least, value)):
            return None  # most often
        return next((found for found in range(1, least, -1) if self.holds(event, at_most(found, value))), least)

    # -- accesses -----------------------------------------------------------------------------------------------

    def before(self, question: Question, one: ThreadAccess, tag: str, other: ThreadAccess, its: str) -> str:
        """Return the condition that an access is over before another one begins."""
        hidden = one.writes and not one.proxy and other.proxy and one.base.startswith("%")
        unfenced = self.roles.executions[one.clock.role].unfenced.get(one.statement.start, []) if hidden else []
        if one.landing is not None:
            ends = [one.landing]
        elif one.over is not None:
            ends = [(ring, one.over.of(ring)) for ring in self.roles.rings if one.clock.role in self.makers[ring]]
        else:
            ends = []
        ways = [
            f"(> {question.value(question.linear(known, its, item, tag))} 0)"
            for ring, item in ends
            for known in self.known(other.clock, ring)
            if all(self._is_later(known, other, ring, release) for release in unfenced)
        ]
        alike = one.clock.role == other.clock.role and (one.proxy or other.proxy)
        if one.over is not None and alike and not unfenced:
            later = [
                f"(> {question.value(question.linear(dict(other.clock.counts)[name], its, value, tag))} 0)"
                for name, value in one.over.counts
            ]
            ways.append(all_of([self.same_thread(question), any_of(later)]))
        return any_of(ways)

    def _is_later(self, known: Term, access: ThreadAccess, ring: Ring, release: Release) -> bool:
        """Return True if the items that are known at an access go beyond what was made at any time of a release."""
        key = (known, access.path, ring, release)
        if key not in self._later:
            path, counts = release
            question = self.roles.whole.question()
            question.suppose(path, "1")
            question.suppose(access.path, "2")
            against = f"(<= {question.term(known, '2')} {question.term(counts.of(ring), '1')})"
            self._later[key] = question.ask([against], model=False).contradiction
        return self._later[key]

    def same_thread(self, question: Question) -> str:
        """Return the condition that both threads are the same."""
        indices = [thread_index(self.roles.whole.specification, axis) for axis in range(3)]
        return all_of([question.same(one) for one in indices if one.parts])
