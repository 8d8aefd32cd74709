"""Obligations of barriers: arrivals and bytes that make up each phase, waits for the right one, and waits that end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from workbench.proof.clocks import COPIED, EXPECTED, GROUP, MADE, WAITED, BarrierUse, Ring
from workbench.proof.conditions import Predicate, at_most, below, both, either, equal
from workbench.proof.order import HappensBefore
from workbench.proof.queries import Failure, never_overlap
from workbench.proof.roles import Roles
from workbench.proof.solver import Answer, Question
from workbench.proof.terms import Term
from workbench.proof.unknown import line_of

Asking = Callable[..., Question]
_UNBOUNDED = 1 << 20


class Obligations:
    """The obligations of all barriers of a kernel with roles."""

    def __init__(self, roles: Roles, order: HappensBefore):
        self.roles, self.order = roles, order
        self._asked: dict[tuple, Answer] = {}

    def failures(self, asking: Asking) -> Iterator[Failure]:
        """Yield what could not be proved; ``asking`` begins a question."""
        self.asking = asking
        for one in self.order.wrong:
            yield self._failure(one, f"{line_of(one.statement)} waits for a parity that is not that of its round")
        yield from self._counts()
        yield from self._places()
        yield from self._bytes()
        yield from self._phases()
        yield from self._lifetimes()
        yield from self._ends()
        for one in self.roles.events("unread"):
            failure = self._failure(one, f"{line_of(one.statement)} ends before a bulk store has read shared memory")
            yield replace(failure, kind="races")
        yield from self._cycles()

    def _failure(self, event: BarrierUse, text: str) -> Failure:
        """Return a failure with any launch in which the event happens."""
        question = self.asking()
        question.suppose(event.path)
        return Failure("barriers", text, (event.statement,), dict(question.ask([]).values))

    def _holds(self, event: BarrierUse, condition: Predicate) -> bool:
        return self.order.holds(event, condition)

    # -- arrivals -----------------------------------------------------------------------------------------------

    def _counts(self) -> Iterator[Failure]:
        """Yield rings whose phases do not end when each thread that arrives at all has done so once.

        The arrivals of a thread may count for several; then all of a role count for the same number.
        """
        for ring, makers in self.order.makers.items():
            threads = sum(len(self.roles.members(role)) for role in makers)
            events = [one for one in self.roles.events("arrive", "bar", "product") if one.at == ring]
            for one in events:
                if ring.is_group:
                    if threads != GROUP:
                        text = f"{threads} threads of a warp group make products"
                        yield self._failure(one, f"{line_of(one.statement)}: {text}")
                        break
                    continue
                wanted = one.number if ring.is_bar else ring.arrivals
                made = threads if ring.is_bar else self._arrivals(events)
                if made == wanted:
                    continue
                arrivals = f"arrivals of {threads} threads" if made is None else f"{made} arrivals"
                text = f"{arrivals} at {ring.name}, where {wanted} are waited for"
                yield self._failure(one, f"{line_of(one.statement)}: {text}")
                break

    def _arrivals(self, events: list[BarrierUse]) -> int | None:
        """Return what the arrivals at a phase of an mbarrier add up to; None if a role's are not all for one number."""
        weights: dict[int, set[int | None]] = {}
        for one in events:
            weights.setdefault(one.clock.role, set()).add(getattr(one.number, "constant", None))
        total = 0
        for role, several in weights.items():
            weight = several.pop()
            if several or weight is None or weight < 1:
                return None
            total += weight * len(self.roles.members(role))
        return total

    def _places(self) -> Iterator[Failure]:
        """Yield uses of an mbarrier that is not the next one of its ring."""
        for one in self.roles.events("arrive", "wait", "copy"):
            ring = one.at
            assert ring is not None
            item = one.clock.of(ring, WAITED if one.kind == "wait" else MADE) - (one.kind == "copy")
            if not self._holds(one, equal(one.offset, ring.offset(item))):
                yield self._failure(one, f"{line_of(one.statement)} uses an mbarrier of {ring.name} out of turn")

    def _bytes(self) -> Iterator[Failure]:
        """Yield ends and arrivals before which a thread has not asked for just the bytes that it announced.

        Between an arrival and the next one at a ring it may wait elsewhere: see `_most_ahead`.
        """
        for one in self.roles.events("arrive", "exit"):
            for ring in self.roles.rings if one.kind == "exit" else (one.at,):
                if ring.base and not self._asked_for(one, ring):
                    text = f"the bytes that copies bring are not those that {ring.name} expects"
                    yield self._failure(one, f"before {line_of(one.statement)} {text}")
                    return

    def _asked_for(self, event: BarrierUse, ring: Ring) -> bool:
        """Return True if before an event its thread has asked for just the bytes that it announced at an mbarrier."""
        return self._holds(event, equal(event.clock.of(ring, EXPECTED), event.clock.of(ring, COPIED)))

    # -- phases -------------------------------------------------------------------------------------------------

    def _phases(self) -> Iterator[Failure]:
        """Yield arrivals whose phase may not have begun, and waits that may miss theirs."""
        for one in self.roles.events("arrive", "bar"):
            ring = one.at
            assert ring is not None
            if ring.is_bar:
                continue
            item = one.clock.of(ring)
            ways = [at_most(item - ring.slots + 1, known) for known in self.order.known(one.clock, ring)]
            if not self._holds(one, either(below(item, ring.slots), *ways)):
                text = f"{line_of(one.statement)} may arrive at {ring.name} while the phase before is not over"
                yield self._failure(one, text)
        for one in self.roles.events("wait"):
            ring = one.at
            assert ring is not None
            role = one.clock.role
            if (role, ring) not in self.order.shift:
                continue
            awaited = self.order.waited(one.clock, ring)
            assert awaited is not None
            if not self._holds(one, either(*self._still_waited_for(one, ring, awaited))):
                text = f"{line_of(one.statement)} may wait for a phase of {ring.name} that a later one has followed"
                yield self._failure(one, text)

    def _still_waited_for(self, wait: BarrierUse, ring: Ring, item: Term) -> Iterator[Predicate]:
        """Yield conditions under which the phase after the one waited for does not end before the wait."""
        role, last = wait.clock.role, item + ring.slots
        if role in self.order.makers[ring]:
            yield at_most(wait.clock.of(ring), last)
        for other in self.roles.rings:
            ahead = self.order.passed.get((ring, other))
            if ahead is not None and role in self.order.makers[other]:
                yield both(at_most(0, last), below(wait.clock.of(other), ahead.after_made(last)))

    def _lifetimes(self) -> Iterator[Failure]:
        """Yield uses of an mbarrier that are not between its beginning and its end."""
        accesses = self.roles.whole.accesses
        plain = {one.statement.start: one.kind for one in self.roles.events("init", "inval")}
        uses = {one.statement.start for one in self.roles.events("arrive", "wait", "copy")}
        for edge in [one for one in accesses if one.statement.start in plain and not one.strong]:
            for use in [one for one in self.roles.whole.accesses if one.statement.start in uses and one.strong]:
                if edge.base != use.base or never_overlap(edge, use):
                    continue
                question = self.asking()
                question.suppose(edge.path, "1")
                question.suppose(use.path, "2")
                distance = question.value(question.linear(edge.offset, "1", use.offset, "2"))
                begins = plain[edge.statement.start] == "init"
                pair = (edge, "1", use, "2") if begins else (use, "2", edge, "1")
                extra = [f"(= {distance} 0)", f"(not {self.order.before(question, *pair)})"]
                first, last = (edge, use) if begins else (use, edge)
                if edge.clock.role == use.clock.role and accesses.index(first) < accesses.index(last):
                    extra.append(f"(not {self.order.same_thread(question)})")
                answer = question.ask(extra)
                if not answer.contradiction:
                    word = "before it is initialised" if begins else "after it has ended"
                    text = f"{line_of(use.statement)} may use an mbarrier {word}"
                    yield Failure("barriers", text, (use.statement, edge.statement), dict(answer.values))
                    return

    # -- ends ---------------------------------------------------------------------------------------------------

    def _pair(self, one: BarrierUse, other: BarrierUse, *relations: tuple[Term, str, Term]) -> Answer:
        """Ask for two threads at two events, with relations between a term of the first and one of the second."""
        key = (self.roles.path(one), self.roles.path(other), relations)
        if key not in self._asked:
            question = self.asking()
            question.suppose(key[0], "1")
            question.suppose(key[1], "2")
            self._asked[key] = question.ask([
                f"({relation} {question.term(mine, '1')} {question.term(its, '2')})"
                for mine, relation, its in relations
            ])  # fmt: skip
        return self._asked[key]

    def _ends(self) -> Iterator[Failure]:
        """Yield waits for an arrival that a thread does not make before it ends, and barriers some go round."""
        exits = self.roles.events("exit")
        for wait in self.roles.events("wait"):
            ring, item = wait.at, self.order.waited(wait.clock, wait.at)
            if item is None:
                continue
            if not self.order.makers[ring]:
                yield self._failure(wait, f"{line_of(wait.statement)} waits for {ring.name}, where nobody arrives")
            for one in exits:
                if one.clock.role not in self.order.makers[ring]:
                    continue
                answer = self._pair(wait, one, (item, ">=", one.clock.of(ring)))
                if not answer.contradiction:
                    text = f"{line_of(wait.statement)} may wait for {ring.name} after its threads have ended"
                    yield Failure("barriers", text, (wait.statement,), dict(answer.values))
                    return
        for ring in [one for one in self.roles.rings if one.is_bar or one.is_group]:
            own = [one for one in exits if one.clock.role in self.order.makers[ring]]
            for place, one in enumerate(own):
                for other in own[place:]:
                    answer = self._pair(one, other, (one.clock.of(ring), "distinct", other.clock.of(ring)))
                    if not answer.contradiction:
                        text = f"not all threads of barrier {ring.name} reach it equally often"
                        yield Failure("barriers", text, (one.statement,), dict(answer.values))
                        return

    def _cycles(self) -> Iterator[Failure]:
        """Yield waits that may wait for each other.

        A thread that waits for item i of a ring waits for one that has made at most i arrivals there. If that one waits
        as well, then for an item that is ahead of i by no more than a number: around each cycle these add up to less
        than 0. Items are counted in rounds of loops, of which one may have several, so that each ring has a scale.
        """
        waits = list({self._key(one): one for one in self.roles.events("wait", "bar", "join")}.values())
        if self._in_cycle(waits, asked=False) is None:
            return  # most often no question is needed
        found = self._in_cycle(waits, asked=True)
        if found is not None:
            yield self._failure(found, f"{line_of(found.statement)}: threads may wait for each other")

    def _key(self, wait: BarrierUse) -> tuple:
        """Return what matters here of a wait: it is the same in several roles."""
        makes = frozenset(ring for ring, makers in self.order.makers.items() if wait.clock.role in makers)
        return wait.kind, wait.at, wait.number, wait.clock.counts, self.roles.path(wait), makes

    def _in_cycle(self, waits: list[BarrierUse], *, asked: bool) -> BarrierUse | None:
        """Return a wait of threads that may wait for each other."""
        scales = self._scales()
        longest: dict[tuple[int, int], int] = {}
        for first, one in enumerate(waits):
            for last, other in enumerate(waits):
                if other.clock.role in self.order.makers[one.at]:
                    ahead = self._most_ahead(one, other, scales, asked=asked)
                    if ahead is not False:
                        longest[first, last] = _UNBOUNDED if ahead is None else ahead
        places = range(len(waits))
        for middle in places:
            following = [(last, longest[middle, last]) for last in places if (middle, last) in longest]
            for first in places:
                if (first, middle) in longest:
                    for last, more in following:
                        found = min(longest[first, middle] + more, _UNBOUNDED)
                        longest[first, last] = max(found, longest.get((first, last), found))
        return next((waits[one] for one in places if longest.get((one, one), -1) >= 0), None)

    def _scales(self) -> dict[Ring, int]:
        """Return a factor for each ring, by which a round of a loop adds as much to the items of each."""
        rates = {}
        for ring in self.roles.rings:
            counts = [one.clock.of(ring) for one in self.roles.events("wait", "bar", "join", "arrive", "exit")]
            parts = [part for one in counts for part in one.parts.items()]
            rounds = [step for key, step in parts if len(key) == 1 and key[0].kind == "round"]
            rates[ring] = max([1, *rounds])
        whole = math.lcm(*rates.values())
        return {ring: whole // rate for ring, rate in rates.items()}

    def _most_ahead(
        self, one: BarrierUse, other: BarrierUse, scales: Mapping[Ring, int], *, asked: bool
    ) -> int | bool | None:  # fmt: skip
        """Return by how much the item that ``other`` waits for may be ahead of that of ``one``, which waits for it.

        None for no bound, False if ``one`` never waits for a thread that waits there, as far as that can be told
        without a question, or where one may be ``asked``.
        """
        item, its = self._item(one), self._item(other)
        if item is None or its is None:
            return None
        made = other.clock.of(one.at) + (other.at == one.at and one.at.is_bar)
        if one.at.base and not self._asked_for(other, one.at):
            made = made - 1  # the bytes of its latest arrival may be missing
        if item.constant is not None and made.constant is not None and item.constant < made.constant:
            return False
        ahead = its * scales[other.at] - made * scales[one.at]
        if not asked and ahead.constant is not None:
            return ahead.constant
        relations = [(item, ">=", made)]
        for ring in self.roles.rings:
            make_both = {one.clock.role, other.clock.role} <= self.order.makers[ring]
            if ring.is_bar and make_both:  # who passes one knows that all others have reached it
                relations.append((one.clock.of(ring), "=", other.clock.of(ring)))
        if self._pair(one, other, *relations).contradiction:
            return False
        if ahead.constant is not None:
            return ahead.constant
        least = -2 * max(one.at.slots, other.at.slots) * max(scales.values()) - 2
        for bound in range(1, least, -1):
            if not self._holds(other, at_most(ahead, bound)):
                return bound + 1 if bound < 1 else None
        return least + 1

    def _item(self, event: BarrierUse) -> Term | None:
        if event.kind == "join":
            return event.number if isinstance(event.number, Term) else None
        return event.clock.of(event.at) if event.at.is_bar else self.order.waited(event.clock, event.at)
