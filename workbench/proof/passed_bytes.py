"""Bytes of shared memory by which threads with roles tell each other what to do, written and read between barriers.

A thread that has passed n barriers of the whole block, and reads a byte, finds what was stored last before the n-th of
them, if no store to the byte may be made after it and before the next. The stores are those of an execution whose loads
had found what they are taken to find: that is so in the end, and until a load finds something else for the first time,
all threads do what the execution says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from workbench.proof.access import ThreadAccess
from workbench.proof.clocks import Ring, ThreadCounts
from workbench.proof.conditions import FALSE, Predicate, either, equal
from workbench.proof.execution import Execution
from workbench.proof.members import decided, of_threads, value_for
from workbench.proof.terms import Term, term

_MOST_PLACES = 32
"""Places that the threads of a role may read at one load."""


class Divided(Exception):
    """Threads of a role that find different bytes: they are of several roles, which ``conditions`` tell apart."""

    def __init__(self, conditions: Sequence[Predicate]):
        super().__init__()
        self.conditions = conditions


class _Store(NamedTuple):
    passed: int
    access: ThreadAccess
    run: Execution


class _Load(NamedTuple):
    run: Execution
    access: ThreadAccess
    shift: int
    size: int
    limits: tuple[int, int]
    value: Term | None


class PassedBytes:
    """The numbers that loads find, by the stores of some executions. ``found`` has those that were returned."""

    def __init__(self, executions: Sequence[Execution]):
        self.executions = executions
        self.found: dict[tuple[int, int, tuple[Term, ...], int], _Load] = {}

    def agrees(self, executions: Sequence[Execution]) -> bool:
        """Return True if all loads find the same by the stores of other executions."""
        others = PassedBytes(executions)
        return all(others.load(*one[:5]) == one.value for one in self.found.values())

    def load(
        self, run: Execution, access: ThreadAccess, shift: int, size: int, limits: tuple[int, int]
    ) -> Term | None:  # fmt: skip
        """Return the number of ``size`` bytes that a load finds, within its limits; None for any. Raises Divided."""
        place = access.offset + shift
        if not (place.constant is not None or of_threads(place)) or access.strong:
            return None
        found, (low, high) = self._for_all(run, access, place, size), limits
        value = None if found is None else term(found if found <= high else found - (high - low + 1))
        self.found[run.role.number, access.statement.start, access.rounds, shift] = _Load(
            run, access, shift, size, limits, value
        )
        return value

    def _for_all(self, run: Execution, access: ThreadAccess, place: Term, size: int) -> int | None:
        """Return what all threads of a role find. Raises Divided if they do not find the same."""
        members = run.role.members or frozenset()
        values: dict[int, int | None] = {}
        for one in sorted(members):
            at = value_for(place, one, run.specification)
            if at not in values and len(values) < _MOST_PLACES:
                values[at] = self._at(access, at, size)
            elif at not in values:
                return None
        known = set(values.values())
        if None in known:
            return None
        if len(known) > 1:
            raise Divided([either(*(equal(place, at) for at in values if values[at] == one)) for one in known])
        return known.pop()

    def _at(self, load: ThreadAccess, place: int, size: int) -> int | None:
        """Return what a load finds at one place."""
        barriers = self._barriers()
        passed, stores = _passed(load.clock, barriers), self._stores(barriers, load.base, place, size)
        if not barriers or passed is None or stores is None or any(one.passed == passed for one in stores):
            return None
        latest = max((one.passed for one in stores if one.passed < passed), default=-1)
        last = [one for one in stores if one.passed == latest]
        values = {_bytes(one, place, size) for one in last}
        if len(values) > 1 or not any(self._sure(one, barriers) for one in last):
            return None
        return values.pop()

    def _barriers(self) -> list[Ring]:
        """Return the barriers that all threads of the block take part in."""
        several = [one for run in self.executions for one in run.events if one.kind == "bar"]
        threads = {run.specification.threads for run in self.executions}
        parts = {one.at for one in several if one.number not in threads}
        return [one for one in dict.fromkeys(one.at for one in several) if one not in parts]

    def _stores(self, barriers: list[Ring], base: str, place: int, size: int) -> list[_Store] | None:
        """Return the stores that may touch some bytes; None if one may be made at any time."""
        found = []
        for run in self.executions:
            for one in run.accesses:
                low, high = one.offset.bounds
                misses = (low is not None and low >= place + size) or (high is not None and high + one.width <= place)
                if one.base != base or not one.writes or misses:
                    continue
                count = _passed(one.clock, barriers)
                if count is None or one.copy or one.strong:
                    return None
                found.append(_Store(count, one, run))
        return found

    def _sure(self, store: _Store, barriers: list[Ring]) -> bool:
        """Return True if some thread of the store's role does not get past the barrier behind it without making it."""
        ends = [(one, _passed(one.clock, barriers)) for one in store.run.events
                if one.kind == "bar" and one.at in barriers]  # fmt: skip
        behind = [one for one, count in ends if count == store.passed]
        known = all(count is not None for _, count in ends)
        if not known or not behind:
            return False
        run, path = store.run, store.access.path
        alone = (decided(path, [one], run.specification) for one in sorted(run.role.members or ()))
        mine = next((one for one in alone if one != FALSE), FALSE)
        return all(run.holds(one.path, mine) for one in behind)


def _passed(clock: ThreadCounts, barriers: Sequence[Ring]) -> int | None:
    """Return how many barriers of the whole block a thread has passed: all threads pass them in one order."""
    total = term(0)
    for ring in barriers:
        total = total + clock.of(ring)
    return total.constant


def _bytes(store: _Store, place: int, size: int) -> int | None:
    """Return the bytes that a store leaves at a place, as a number; None if they are not all known."""
    values, start = store.run.stored.get(store.access), store.access.offset.constant
    if not values or start is None:
        return None
    width = store.access.width // len(values)
    numbers = [one.constant if isinstance(one, Term) else None for one in values]
    if None in numbers or not start <= place <= start + store.access.width - size:
        return None
    data = b"".join((one % (1 << 8 * width)).to_bytes(width, "little") for one in numbers if one is not None)
    return int.from_bytes(data[place - start : place - start + size], "little")
