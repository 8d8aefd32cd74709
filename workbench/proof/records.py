"""Records of an execution: accesses, barriers, and what its thread has done at these."""

from __future__ import annotations

from dataclasses import replace

from workbench.proof.access import Hazard, Meeting, Pending, ThreadAccess
from workbench.proof.clocks import NO_COUNTS, BarrierUse, Role, ThreadCounts
from workbench.proof.conditions import FALSE, Predicate, both
from workbench.proof.state import State
from workbench.proof.terms import Atom, Term
from workbench.proof.unknown import Unknown
from workbench.ptx.parse import Statement

Release = tuple[Predicate, ThreadCounts]
"""An arrival, or a copy or product: its condition, and the counts before it."""


class Records:
    """The records of one execution, made in its ``exact`` runs.

    ``unfenced`` has, of each statement that writes shared memory, each `Release` by which others may learn of that
    before a fence for bulk copies and products.
    """

    def __init__(self, role: Role, threads: int) -> None:
        self.role, self.exact, self.threads = role, True, threads
        self.accesses: list[ThreadAccess] = []
        self.meetings: list[Meeting] = []
        self.hazards: list[Hazard] = []
        self.events: list[BarrierUse] = []
        self.spans: list[tuple[ThreadAccess, ThreadAccess]] = []
        self.unfenced: dict[int, list[Release]] = {}
        self.going_on: dict[Atom, Predicate] = {}
        self._base: list[Predicate] = [role.condition]

    @property
    def in_roles(self) -> bool:
        """Return True if the kernel has barriers that not all threads of a block take part in, copies or products.

        Then shared memory is not followed: what other roles write there is in no record of this one.
        """
        everyone = {one.ring is not None and one.ring.name == "bar0" and one.number == self.threads
                    for one in self.events if one.kind == "bar"}  # fmt: skip
        others = any(one.kind not in ("bar", "warp") for one in self.events)
        return self.role.known or others or False in everyone or any(one.proxy for one in self.accesses)

    @property
    def inits(self) -> set[int]:
        """Return the statements that have initialised mbarriers."""
        return {one.statement.start for one in self.events if one.kind == "init"}

    def mark(self) -> tuple[int, ...]:
        """Return the numbers of accesses and other records so far, for `forget`."""
        return len(self.accesses), len(self.meetings), len(self.hazards), len(self.events), len(self.spans)

    def forget(self, mark: tuple[int, ...]) -> None:
        """Drop everything recorded since a mark."""
        accesses, meetings, hazards, events, spans = mark
        del self.accesses[accesses:], self.meetings[meetings:], self.hazards[hazards:], self.events[events:]
        del self.spans[spans:]

    def go_on(self, count: Atom, condition: Predicate) -> None:
        """Note a condition under which a thread goes on from a round of a loop to the next."""
        if self.exact:
            self.going_on[count] = condition

    def meet(self, statement: Statement, path: Predicate, reach: Predicate, rounds: tuple[Term, ...]) -> None:
        """Note that the threads have to agree to come here."""
        if self.exact:
            self.meetings.append(Meeting(statement, both(self._base[-1], path), reach, False, rounds))

    def record(self, access: ThreadAccess, *, ended: bool = False) -> None:
        """Keep an access, in an exact run; of a copy for which its thread waits only when it has."""
        early = self.role.known and access.copy and access.over is None and access.landing is None
        if self.exact and access.path != FALSE and (ended or not early):
            self.accesses.append(access)

    def endanger(self, hazard: Hazard) -> None:
        """Keep a hazard of a copy, in an exact run."""
        if self.exact:
            self.hazards.append(hazard)

    def note(self, event: BarrierUse) -> None:
        """Keep what a thread does at a barrier, in an exact run."""
        if self.exact and event.path != FALSE:
            self.events.append(event)

    def span(self, span: tuple[ThreadAccess, ThreadAccess]) -> None:
        """Note two accesses between which no other thread may write the bytes of the first, in an exact run."""
        if self.exact:
            self.spans.append(span)

    def clock(self, state: State) -> ThreadCounts:
        """Return the thread's counts at barriers. Raises Unknown for counts that match no sum of steps."""
        if not self.role.known:
            return NO_COUNTS
        found = []
        for ring in self.role.all_rings():
            for name in ring.counts():
                held = state.registers.get(name)
                if not isinstance(held, Term):
                    raise Unknown(None, f"uses of {ring.name} that match no sum of steps from round to round")
                found.append((name, held))
        return ThreadCounts(tuple(found), self.role.number)

    def times(self, state: State, *, copy: bool) -> tuple[ThreadCounts, ThreadCounts | None]:
        """Return the counts when an access begins and when it is over; None for a copy."""
        if not self.exact:
            return NO_COUNTS, None
        now = self.clock(state)
        return now, None if copy else now

    def release(self, state: State) -> None:
        """Note that what the thread has written without a fence may now be reached by others' copies and products."""
        if self.exact and self.role.known:
            release = (state.path, self.clock(state))
            for one in state.unfenced:
                several = self.unfenced.setdefault(one, [])
                if release not in several:
                    several.append(release)

    def retire(self, state: State, groups: tuple[Pending, ...]) -> None:
        """Note that the thread has waited for groups of copies."""
        if self.role.known and self.exact:
            now = self.clock(state)
            for when, copy in (one for group in groups for one in group if one[1].landing is None):
                self.record(replace(copy, path=both(state.path, copy.path, when), over=now))
                if copy.writes and not copy.proxy:
                    state.unfenced |= {copy.statement.start}
