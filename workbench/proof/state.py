"""The state of the generic thread at a point of the kernel, and how the states of several paths become one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from workbench.proof.access import Epoch, Epochs, Pending
from workbench.proof.conditions import TRUE, Predicate, both, choice, conjuncts, either, negation, without
from workbench.proof.terms import Term

Value = Term | Predicate | None
"""A register: a term, for a predicate a condition, None for any value."""


COPIES, STORES = "copies", "stores"
QUEUES = (COPIES, STORES)
"""Queues of what a thread issues in groups and waits for: ``cp.async``, and bulk stores."""


@dataclass(frozen=True)
class Queue:
    """Groups in flight, the oldest first, and what belongs to the group that is not committed yet."""

    groups: tuple[Pending, ...] = ()
    open: Pending = ()

    def with_open(self, more: Pending) -> Queue:
        """Return the queue with more in the open group."""
        return Queue(self.groups, self.open + more)

    def committed(self) -> Queue:
        """Return the queue with the open group closed."""
        return Queue((*self.groups, self.open))

    def waited(self, left: int) -> tuple[Queue, tuple[Pending, ...]]:
        """Return the queue with all but the latest groups waited for, and those groups."""
        done = max(len(self.groups) - left, 0)
        return Queue(self.groups[done:], self.open), self.groups[:done]


class Landed(NamedTuple):
    """The copies that a thread has waited for since some loops' heads, of which it came by the latest."""

    copies: Pending = ()
    since: frozenset[Any] = frozenset()

    def more(self, groups: Iterable[Pending]) -> Landed:
        """Return it with more groups that the thread has waited for."""
        return self._replace(copies=(*self.copies, *(one for group in groups for one in group if one[1].writes)))


@dataclass
class State:
    """Knowledge about the generic thread at one place.

    ``path`` is a condition that holds for every thread here. ``reach`` is exact: of the threads at the head of the
    innermost loop in this round, or in the kernel at its beginning, those with it come here. ``epochs`` tell which
    barrier of the block was the latest, ``lane_epochs`` which of the warp or the block. ``queues`` has what is in
    flight of each of `QUEUES`. ``touched`` tells whether the thread may have accessed memory, ``multiplying`` whether
    it has begun a group of products and not committed it. ``unfenced`` are the
    statements that may have written shared memory with no fence for bulk copies and products behind them. ``maps`` are
    the tensor maps that the thread has made, by array and offset, ``landed`` the copies that are over.
    """

    registers: dict[str, Value]
    path: Predicate = TRUE
    reach: Predicate = TRUE
    epochs: Epochs = (Epoch(TRUE, "entry"),)
    lane_epochs: Epochs = (Epoch(TRUE, "entry"),)
    queues: dict[str, Queue] = field(default_factory=lambda: dict.fromkeys(QUEUES, Queue()))
    touched: bool = False
    multiplying: bool = False
    unfenced: frozenset[int] = frozenset()
    landed: Landed = field(default_factory=Landed)
    maps: dict[tuple[str, Term], Any] = field(default_factory=dict)

    def copy(self) -> State:
        """Return a state that changes by itself."""
        return replace(self, registers=dict(self.registers), queues=dict(self.queues), maps=dict(self.maps))

    @property
    def pending(self) -> Pending:
        """Accesses of all copies in flight."""
        return tuple(one for queue in self.queues.values() for group in (*queue.groups, queue.open) for one in group)

    def narrow(self, condition: Predicate, *, others_end: bool = False, others_abort: bool = False) -> State:
        """Restrict the state to the threads with a condition, and return it.

        If the others end here, nobody waits for them: the places behind are reached by all that are left. But what they
        have accessed before is then not ordered by the barriers there. If the others end the launch, nothing follows.
        """
        self.path = both(self.path, condition)
        if not others_abort and (not others_end or self.touched):
            self.reach = both(self.reach, condition)
        return self


def merged(states: Sequence[State], live: Iterable[str], types: dict[str, str]) -> State:
    """Return the state behind a join of several paths, of which each thread took one."""
    if len(states) == 1:
        return states[0].copy()
    common, rests = without([one.path for one in states])
    reached, parts = without([one.reach for one in states])
    result = states[-1].copy()
    result.path, result.reach = both(*common, either(*rests)), both(*reached, either(*parts))
    result.epochs = _joined([one.epochs for one in states], rests)
    result.lane_epochs = _joined([one.lane_epochs for one in states], rests)
    result.queues = {name: _queue([one.queues[name] for one in states], rests) for name in QUEUES}
    result.landed = _landed([one.landed for one in states], rests)
    result.touched = any(one.touched for one in states)
    result.multiplying = any(one.multiplying for one in states)
    result.unfenced = frozenset().union(*(one.unfenced for one in states))
    result.maps = {key: one for key, one in result.maps.items() if all(it.maps.get(key) == one for it in states)}
    result.registers = {}
    for name in sorted(live):
        if any(name in one.registers for one in states):
            values = [(rest, one.registers.get(name)) for rest, one in zip(rests, states, strict=True)]
            result.registers[name] = _chosen(values, types[name] == "pred")
    return result


def _chosen(values: Sequence[tuple[Predicate, Value]], predicate: bool) -> Value:
    """Return the value of a register behind several paths; None if one of them leaves it undefined."""
    found = values[-1][1]
    for rest, value in reversed(values[:-1]):
        if value == found:
            continue
        if value is None or found is None:
            return None
        if isinstance(value, Predicate) and isinstance(found, Predicate):
            found = either(both(rest, value), both(negation(rest), found))
        elif isinstance(value, Term) and isinstance(found, Term) and not predicate:
            found = choice(rest, value, found)
        else:
            return None
    return found


def _joined(epochs: Sequence[Epochs], rests: Sequence[Predicate]) -> Epochs:
    if all(one == epochs[0] for one in epochs):
        return epochs[0]
    found = (
        Epoch(both(rest, epoch.when), epoch.place, epoch.rounds)
        for rest, several in zip(rests, epochs, strict=True)
        for epoch in several
    )
    return tuple(dict.fromkeys(found))


def _queue(several: Sequence[Queue], rests: Sequence[Predicate]) -> Queue:
    longest = max(len(one.groups) for one in several)
    padded = [((),) * (longest - len(one.groups)) + one.groups for one in several]
    groups = tuple(_pending([one[i] for one in padded], rests) for i in range(longest))
    return Queue(groups, _pending([one.open for one in several], rests))


def _landed(several: Sequence[Landed], rests: Sequence[Predicate]) -> Landed:
    """Return what is known on all paths: none may have forgotten copies behind some that another one knows."""
    since = frozenset().union(*(one.since for one in several))
    known = all(one.since == since for one in several)
    return Landed(_pending([one.copies for one in several], rests) if known else (), since)


def _pending(several: Sequence[Pending], rests: Sequence[Predicate]) -> Pending:
    if all(one == several[0] for one in several):
        return several[0]
    return tuple((both(rest, when), copy) for rest, one in zip(rests, several, strict=True) for when, copy in one)


def relative(path: Predicate, base: Predicate) -> list[Predicate]:
    """Return the conjuncts of a path that its base lacks."""
    known = frozenset(conjuncts(base))
    return [one for one in conjuncts(path) if one not in known]
