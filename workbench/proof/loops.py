"""Loops: unrolled where their end is known, else executed once for any round, with what holds at the head of it.

What a register holds at the head of round k is first guessed in trial runs (a sum of steps, a place in a ring, a value
of the round before), and so are conditions under which there is a round k at all. In the exact run all of it is a
hypothesis, which has to hold in the first round and to be kept by each: what does not is dropped, and the run repeated.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Protocol

from workbench.proof.access import ANY, Epoch, Epochs, Pending
from workbench.proof.conditions import (
    TRUE,
    Predicate,
    at_most,
    between,
    both,
    choice,
    either,
    equal,
    negation,
    substituted,
    zero,
)
from workbench.proof.graph import head
from workbench.proof.head_copies import HeadCopies
from workbench.proof.ring_forms import number_of, on_ring, remainder_of
from workbench.proof.state import COPIES, QUEUES, STORES, Landed, Queue, State, Value, relative
from workbench.proof.terms import THREAD, Atom, Term, quotient, remainder, term
from workbench.proof.thread import Thread
from workbench.proof.unknown import Unknown
from workbench.ptx.parse import Statement

Exits = list[tuple[int, State]]
MOST_ROUNDS = 130
"""Rounds up to which a loop is unrolled."""
_ATTEMPTS = 6
_LONGEST_RING = 40
_HALF = 1 << 31


class Looping(Thread, Protocol):
    """Interface of an execution for loops, beside that of `Thread`."""

    def round(self, block: int, body: set[int], start: State, count: Term, *, apart: bool) -> tuple[list[State], Exits]:
        """Execute a round: the states that come back, and those that leave; ``apart`` with a reach of its own."""

    def merged(self, block: int, states: Sequence[State]) -> State:
        """Return the state of several paths to a block."""

    def meet(self, statement: Statement, path: Predicate, reach: Predicate, rounds: tuple[Term, ...]) -> None:
        """Note that the threads have to agree to come here."""

    def go_on(self, count: Atom, condition: Predicate) -> None:
        """Note a condition under which a thread goes on from a round of a loop to the next."""

    def mark(self) -> tuple[int, ...]:
        """Return the numbers of accesses and other records so far, for `forget`."""

    def forget(self, mark: tuple[int, ...]) -> None:
        """Drop everything recorded since a mark."""


def run_loop(run: Looping, block: int, body: set[int], start: State) -> Exits:
    """Execute a loop from the state before it; return the states that leave it."""
    found = _unrolled(run, block, body, start.copy())
    return _SymbolicLoop(run, block, body, start).exits() if found is None else found


def _unrolled(run: Looping, block: int, body: set[int], state: State) -> Exits | None:
    mark, exits = run.mark(), []
    for count in range(MOST_ROUNDS):
        back, leaving = run.round(block, body, state, term(count), apart=False)
        if back and leaving:  # some threads go on and others do not
            break
        exits += leaving
        if not back:
            return _joined(run, exits)
        state = run.merged(block, back)
    run.forget(mark)
    return None


def _joined(run: Looping, exits: Exits) -> Exits:
    targets = dict.fromkeys(target for target, _ in exits)
    return [(target, run.merged(target, [one for to, one in exits if to == target])) for target in targets]


class _SymbolicLoop:
    def __init__(self, run: Looping, block: int, body: set[int], start: State):
        self.run, self.block, self.body, self.start = run, block, body, start
        graph, self.arena = run.graph, run.specification.arena
        self.registers = sorted(graph.written[block] & graph.live[block])
        self.count = self.arena.atom("round", f"k{block}", run.rounds, 0, None, THREAD)
        ((self.index,),) = self.count.parts
        self.statement = next(one for place in sorted(body) for one in graph.blocks[place].statements)
        self.heads = {
            name: self.arena.atom("header", f"{name}@{block}", (*run.rounds, self.count), scope=THREAD)
            for name in self.registers
            if isinstance(start.registers.get(name), Term)
        }
        self.forms: dict[str, Term] = {}
        self.facts: list[Predicate] = []
        self.epochs: tuple[Epochs, Epochs] = start.epochs, start.lane_epochs
        self.copies = {name: HeadCopies(self.count, self.index, start.queues[name].groups) for name in QUEUES}
        self.exact_copies: set[str] = set()
        self.unfenced = start.unfenced
        self.maps = start.maps

    # -- substitution in the round ------------------------------------------------------------------------------

    def at(self, value: Term | Predicate, count: Term) -> Term | Predicate:
        """Return a term or a condition of the round with another number of it."""
        return substituted(value, {self.index: count})

    def _of_heads(self, value: Term | Predicate) -> bool:
        return any(one.atom in value.deps for one in self.heads.values())

    # -- guesses ------------------------------------------------------------------------------------------------

    def _guess(self) -> None:
        """Fill in forms, facts and epochs from trial runs."""
        exact, self.run.exact = self.run.exact, False
        try:
            back = self._trial()
            for name, value in self.heads.items():
                after = back.registers.get(name)
                form = self._form(name, value, after) if isinstance(after, Term) else None
                if form is not None:
                    self.forms[name] = form
            for _ in range(2):  # a value of the round before may need another one
                back = self._trial()
                carried = {}
                for name in self.heads.keys() - self.forms.keys():
                    after = back.registers.get(name)
                    if isinstance(after, Term) and not self._of_heads(after):
                        earlier = self.at(after, self.count - 1)
                        carried[name] = choice(zero(self.count), self._first(name), earlier)  # type: ignore[arg-type]
                if not carried:
                    break
                self.forms |= {name: carried[name] for name in sorted(carried)}
            self._guess_phases()
            back = self._trial()
            self.epochs = self._guess_epochs(back)
            for name, copies in self.copies.items():
                if copies.before or self._issues(name):
                    copies.guess(self.statement, functools.partial(self._in_flight, name))
            self.facts = self._guess_facts(back)
        finally:
            self.run.exact = exact

    def _guess_phases(self) -> None:
        """Take registers that begin with 0 or 1 and have no form for parities: of rounds, or of ways round a ring."""
        found = dict.fromkeys(ring for form in self.forms.values() if (ring := remainder_of(form)))
        rings = [(place + self.count * (size * more), size) for more in range(4) for place, size in found]
        for name, _head in self.heads.items():
            first = self.start.registers.get(name)
            if name in self.forms or not isinstance(first, Term) or not first.within(0, 1):
                continue
            for place, size in [*rings, (self.count, 1)]:
                form = remainder(first + quotient(place, size), 2)
                if self.at(form, term(0)) != first:
                    continue
                self.forms[name] = form
                after = self._trial().registers.get(name)
                wanted = self.at(form, self.count + 1)
                if isinstance(after, Term) and self.run.holds(TRUE, equal(after, wanted)):  # type: ignore[arg-type]
                    break
                del self.forms[name]

    def _issues(self, name: str) -> bool:
        """Return True if the loop closes groups of a queue."""
        word = {COPIES: "cp.async.commit_group", STORES: "cp.async.bulk.commit_group"}[name]
        blocks = self.run.graph.blocks
        return any(one.opcode.startswith(word) for place in self.body for one in blocks[place].statements)

    def _in_flight(self, name: str, groups: tuple[Pending, ...]) -> Queue:
        """Return a queue after a trial round with stand-ins for what it has in flight."""
        return self._trial({name: Queue(groups)}).queues[name]

    def _in_flight_exactly(self, name: str, groups: tuple[Pending, ...]) -> Queue:
        return self._exact_trial({name: Queue(groups)}).queues[name]

    def _trial(self, queues: Mapping[str, Queue] = {}) -> State:
        """Run a round once in which registers without a form hold something of their own."""
        state = self._head()
        state.registers |= {name: value for name, value in self.heads.items() if name not in self.forms}
        mark = Epoch(TRUE, ("head", self.block))
        state.epochs, state.lane_epochs, state.queues = (mark,), (mark,), dict.fromkeys(QUEUES, Queue()) | dict(queues)
        back, _ = self.run.round(self.block, self.body, state, self.count, apart=True)
        if not back:
            raise Unknown(self.statement, "a loop that no path repeats")
        return self.run.merged(self.block, back)

    def _exact_trial(self, queues: Mapping[str, Queue]) -> State:
        """Run a round with stand-ins for the copies in flight, in which values wrap, and record nothing of it."""
        state, mark = self._head(), self.run.mark()
        state.queues |= queues
        back, _ = self.run.round(self.block, self.body, state, self.count, apart=True)
        self.run.forget(mark)
        return self.run.merged(self.block, back)

    def _first(self, name: str) -> Term:
        value = self.start.registers[name]
        assert isinstance(value, Term)  # `heads` has these
        return value

    def _form(self, name: str, head: Term, after: Term) -> Term | None:
        """Return a register's value at the head of round k, if it is a sum of steps or cycles through a ring."""
        first, step = self._first(name), after - head
        if not self._of_heads(step) and self.index not in step.deps:
            return first + self.count * step
        if not (after + head).parts.keys() - {()} and first.constant is not None:  # turns between two numbers
            total = (after + head).constant or 0
            return first + remainder(self.count, 2) * (total - 2 * first.constant)
        return self._ring(first, head, after)

    def _ring(self, first: Term, head: Term, after: Term) -> Term | None:
        atom = head.atom
        assert atom is not None
        others = after.deps - head.deps
        if any(one.kind not in ("flag", "choice", "quotient") for one in others):
            return None
        if first.constant is None:  # a step around a ring from any place of it
            low, high = first.bounds
            if low != 0 or high is None or not 0 < high < 16:
                return None
            seen = [number_of(substituted(after, {atom: term(place)})) for place in range(high + 1)]
            if seen[0] is None or any(one != (place + seen[0]) % (high + 1) for place, one in enumerate(seen)):
                return None
            return remainder(first + self.count * seen[0], high + 1)
        ring = [first.constant]
        while len(ring) < _LONGEST_RING:
            following = number_of(substituted(after, {atom: term(ring[-1])}))
            if following is None:
                return None
            if following in ring:  # some numbers come once, then others again and again
                start = ring.index(following)
                found = on_ring(self.count - start, ring[start:])
                for place in range(start):
                    found = choice(equal(self.count, place), ring[place], found)
                return found
            ring.append(following)
        return None

    def _guess_facts(self, back: State) -> list[Predicate]:
        """Return what may hold at the head of a round: that the one before went on, and that registers do not wrap."""
        facts: list[Predicate] = []
        for one in relative(back.path, self.start.path):
            if self._of_heads(one):
                continue
            facts.append(either(zero(self.count), self.at(one, self.count - 1)))  # type: ignore[arg-type]
            if one.kind == "not" and one.parts[0].kind == "zero":
                facts += self._steps_left(one.parts[0].parts[0])
        for name, form in self.forms.items():
            if self.run.graph.types[name][1:] == "32" and self.index in form.deps and form.constant is None:
                facts.append(between(-_HALF, form, _HALF - 1))
        return [one for one in dict.fromkeys(facts) if one != TRUE]

    def _steps_left(self, value: Term) -> list[Predicate]:
        """Return the condition that a value, which falls to 0 by equal steps and ends the loop there, is above 0."""
        before = self.at(value, self.count - 1)
        assert isinstance(before, Term)
        step = (value - before).constant
        if not step:
            return []
        left, size = (before, -step) if step < 0 else (-before, step)
        return [both(at_most(size, left), zero(remainder(left, size)))]

    def _guess_epochs(self, back: State) -> tuple[Epochs, Epochs]:
        return (
            self._epochs_at_head(self.start.epochs, back.epochs),
            self._epochs_at_head(self.start.lane_epochs, back.lane_epochs),
        )

    def _epochs_at_head(self, before: Epochs, after: Epochs) -> Epochs:
        own = [one for one in after if one.place != ("head", self.block)]
        if not own:
            return before
        if len(own) < len(after):  # a barrier on some paths only
            return (Epoch(TRUE, ANY),)
        first = [Epoch(both(zero(self.count), one.when), one.place, one.rounds) for one in before]
        mapping = {self.index: self.count - 1}
        shifted = [one.substituted(mapping) for one in own]
        return (*first, *(one._replace(when=both(at_most(1, self.count), one.when)) for one in shifted))

    # -- the run that counts ------------------------------------------------------------------------------------

    def _head(self) -> State:
        """Return the state at the head of a round."""
        state = self.start.copy()
        state.registers |= dict.fromkeys(self.registers)
        state.registers |= self.forms
        state.path = both(self.start.path, *self.facts)
        state.epochs, state.lane_epochs = self.epochs
        state.queues, state.touched = {name: Queue(one.groups) for name, one in self.copies.items()}, True
        state.unfenced, state.landed = self.unfenced, Landed(since=frozenset((self.index,)))
        state.maps = dict(self.maps)
        return state

    def exits(self) -> Exits:
        """Execute the loop; return the states that leave it."""
        if any(one.open for one in self.start.queues.values()):
            raise Unknown(self.statement, "copies that were not committed before a loop")
        if self.start.multiplying:
            raise Unknown(self.statement, "products that were not committed before a loop")
        self._guess()
        mark = self.run.mark()
        for _ in range(_ATTEMPTS):
            state = self._head()
            path = state.path
            back, leaving = self.run.round(self.block, self.body, state, self.count, apart=True)
            if not self.run.exact or (not back and self._begins()):
                return self._outside(leaving)
            after = self.run.merged(self.block, back) if back else None
            if after is not None and after.multiplying:
                raise Unknown(self.statement, "products that a round of a loop does not commit")
            if after is not None and self._kept(after):
                self._agree(path, after)
                self.run.go_on(self.index, both(*relative(after.path, self.start.path)))
                return self._outside(leaving)
            self.run.forget(mark)
        raise Unknown(self.statement, "a loop whose registers match no invariant that holds")

    def _begins(self) -> bool:
        """Return True if all hypotheses hold in the first round; drop those that do not."""
        before, path = (self.forms, self.facts), self.start.path
        self.forms = {name: one for name, one in self.forms.items() if self.at(one, term(0)) == self._first(name)}
        self.facts = [one for one in self.facts if self.run.holds(path, self.at(one, term(0)))]  # type: ignore[arg-type]
        return (self.forms, self.facts) == before

    def _kept(self, after: State) -> bool:
        """Return True if all hypotheses hold in the first round and are kept by each; drop those that do not."""
        run, following = self.run, self.count + 1
        kept = {}
        for name, form in self.forms.items():
            value: Value = after.registers.get(name)
            wanted = self.at(form, following)
            same = isinstance(value, Term) and self.at(form, term(0)) == self._first(name)
            if same and (value == wanted or run.holds(after.path, equal(value, wanted))):  # type: ignore[arg-type]
                kept[name] = form
        facts = [
            one
            for one in self.facts
            if run.holds(self.start.path, self.at(one, term(0)))  # type: ignore[arg-type]
            and run.holds(after.path, self.at(one, following))  # type: ignore[arg-type]
        ]
        new = self._new_facts(after, facts) if len(facts) < len(self.facts) else []
        same = len(kept) == len(self.forms) and len(facts) == len(self.facts) and not new
        self.forms, self.facts = kept, facts + new
        for place, (held, found) in enumerate(zip(self.epochs, (after.epochs, after.lane_epochs), strict=True)):
            before = (self.start.epochs, self.start.lane_epochs)[place]
            if held != before and held[0].place == ANY:
                continue
            expected = before if found == held == before else self._epochs_at_head(before, found)
            if expected != held:
                pair = [*self.epochs]
                pair[place] = (Epoch(TRUE, ANY),)
                self.epochs, same = (pair[0], pair[1]), False
        if not after.unfenced <= self.unfenced:
            self.unfenced, same = self.unfenced | after.unfenced, False
        left = {key: one for key, one in self.maps.items() if after.maps.get(key) == one}
        if len(left) < len(self.maps):
            self.maps, same = left, False
        broken = [name for name, one in self.copies.items() if not one.kept(after.queues[name], run.holds)]
        if self.exact_copies.intersection(broken):
            raise Unknown(self.statement, "copies in flight that match no rule from round to round")
        for name in broken:
            self.exact_copies, same = self.exact_copies | {name}, False
            self.copies[name].guess(self.statement, functools.partial(self._in_flight_exactly, name))
        return same

    def _new_facts(self, after: State, facts: Sequence[Predicate]) -> list[Predicate]:
        """Return conditions of the exact run, where values may wrap, in place of guessed ones that did not hold."""
        known = {*facts, *self.facts}
        found = []
        for one in relative(after.path, self._head().path):
            if self.index in one.deps and not self._of_heads(one):
                fact = either(zero(self.count), self.at(one, self.count - 1))  # type: ignore[arg-type]
                if fact not in known:
                    found.append(fact)
        return found

    def _agree(self, path: Predicate, after: State) -> None:
        """Note that the threads of a block have to run the same rounds of a loop with a barrier."""
        blocks = self.run.graph.blocks
        if any(head(one) in ("bar", "barrier", "wgmma") for place in self.body for one in blocks[place].statements):
            rounds = self.run.rounds
            self.run.meet(self.statement, path, after.reach, (*rounds, self.count))
            self.run.meet(self.statement, TRUE, self.start.reach, rounds)

    def _outside(self, leaving: Exits) -> Exits:
        """Return the states behind the loop. All threads leave it; the exit is unknown if there are several."""
        found = _joined(self.run, leaving)
        left = self.start.reach
        graph = self.run.graph
        ways = [target for target, _ in found if not graph.ends(target) and not graph.aborts(target)]
        if self._may_end([target for target, _ in found]):
            left = both(left, self._unknown(-1))
        for target, state in found:
            chosen = TRUE if ways[-1:] == [target] else self._unknown(target)
            state.reach = both(left, chosen)
            if target in ways:  # threads that end are not waited for
                left = both(left, negation(chosen))
        return found

    def _may_end(self, targets: Sequence[int]) -> bool:
        """Return True if threads that have accessed memory may end in the loop: no barrier orders that."""
        graph = self.run.graph
        several = [one for place in self.body for one in graph.blocks[place].statements]
        ending = any(head(one) in ("ret", "exit") for one in several)
        ending |= any(graph.ends(target) and not graph.aborts(target) for target in targets)
        return ending and (self.start.touched or any("[" in one.operands for one in several))

    def _unknown(self, target: int) -> Predicate:
        name = f"exit{self.block}-{target}"
        return negation(zero(self.arena.atom("unknown", name, self.run.rounds, 0, 1, THREAD)))
