"""Values that threads pass through shared memory: what a load finds there, as a term of the thread that stored it.

A run of the kernel records all stores to an array. In the next run a load, whose latest barrier is B, gets the value
of a store S if the following holds; else it may be anything.

* Neither the load nor a store to the array is volatile or atomic: such accesses need no order among each other.
* S is executed before B: in the control flow of one round of the loops around both, S is not reachable from B.
* No store that the load's own thread executes after B comes before the load.
* Whenever a store before B touches the bytes that S writes, in the same round, it writes the same value to the same
  place. Stores of earlier rounds come before S, for such accesses do not race, which is proved for all of them.
* There is a thread that executes S at the place of the load. Its indices are guessed by inverting the address; that
  they are right, and that S is executed for them, is proved, or is the condition of the value. So are the rounds of
  loops that are not around the load. A path says what holds in a round, not that there is one: that each round before
  goes on to the next is proved to follow from the last one, which goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from workbench.proof.access import ANY, Epochs, Pending, ThreadAccess
from workbench.proof.conditions import Predicate, between, both, choice, conjuncts, either, equal, substituted, zero
from workbench.proof.graph import head
from workbench.proof.memory import element, is_pointer
from workbench.proof.solver import QUICK, Question
from workbench.proof.solver_texts import all_of, any_of
from workbench.proof.state import Value
from workbench.proof.terms import THREAD, Atom, Term, quotient, term
from workbench.proof.thread import Thread

_MOST_STORES = 24
"""Stores to one array above which its values may be anything."""
_MOST_WAYS = 3
"""Stores of which a load may find the value where no single one is sure."""


@dataclass(frozen=True, eq=False)
class Stored:
    """A store of one element: ``value`` is None for any."""

    access: ThreadAccess
    offset: Term
    size: int
    value: Term | None

    @property
    def thread_atoms(self) -> set[Atom]:
        """Atoms that each thread has for itself, without those computed from others."""
        parts = [one for one in (self.offset, self.access.path, self.value) if one is not None]
        return set().union(*(_own_atoms(one.deps) for one in parts))


@dataclass(frozen=True)
class Seen:
    """Stores before a load: those that are ``sure`` to be before its barrier, and others that may come behind it.

    ``rounds`` are those of the loops around the load and its barrier.
    """

    sure: tuple[Stored, ...]
    others: tuple[Stored, ...]
    rounds: tuple[Term, ...]


class Executing(Thread, Protocol):
    """Interface of an execution for shared arrays, beside that of `Thread`."""

    accesses: list[ThreadAccess]
    stored: dict[ThreadAccess, tuple[Value, ...]]
    going_on: dict[Atom, Predicate]

    def question(self, path: Sequence[Predicate] = ()) -> Question:
        """Return a question with the facts about sizes and some conditions."""


class SharedValues:
    """Knowledge of the values in shared arrays from the stores of the run before."""

    def __init__(self, run: Executing):
        self.run = run
        self._stores: dict[str, list[Stored]] = {}
        self._before: dict[str, tuple] = {}
        self._flow = _Flow(run)
        self._agreed: dict[tuple, bool] = {}
        self._open: dict[str, set[Atom]] = {}
        self._going_on: dict[Atom, Predicate] = {}
        self._lasting: dict[Atom, bool] = {}

    def learn(self) -> bool:
        """Take the stores of a complete run; return True if a run that knows them may find more."""
        needed = self._needed()
        self._open = {}
        stores: dict[str, list[Stored]] = {}
        for one in self.run.accesses:
            if one.writes and one.base in needed:
                stores.setdefault(one.base, []).extend(_elements(one, self.run.stored.get(one)))
        known = {
            base: tuple(
                (one.access.statement.start, one.offset, one.size, one.value, one.access.path) for one in several
            )
            for base, several in stores.items()
        }
        found = any(self._before.get(base) != several and any(one[3] is not None for one in several)
                    for base, several in known.items())  # fmt: skip
        found |= any(one.access.copy for base in stores.keys() - self._stores.keys() for one in stores[base])
        self._stores.update(stores)
        self._before.update(known)
        self._agreed, self._lasting, self._going_on = {}, {}, dict(self.run.going_on)
        return found

    def _needed(self) -> set[str]:
        """Return the arrays of which a value that may be anything decides where or whether an access happens."""
        deps: set[Atom] = set()
        for one in self.run.accesses:
            deps |= one.offset.deps | one.path.deps
        stored = [value for values in self.run.stored.values() for value in values if isinstance(value, Term)]
        needed: set[str] = set()
        while True:
            new = {base for base, atoms in self._open.items() if base not in needed and not atoms.isdisjoint(deps)}
            if not new:
                return needed
            needed |= new
            for value in stored:  # a value that goes through several arrays
                deps |= value.deps

    def load(
        self, access: ThreadAccess, shift: int, size: int, limits: tuple[int, int], landed: Pending
    ) -> Value:  # fmt: skip
        """Return the value of a load, of which ``limits`` are those of its type; ``landed`` are copies before it."""
        run, low, high = self.run, *limits
        anything = run.fresh(access.statement, f"shared{shift}", low, high)
        offset = access.offset + shift
        several = self._stores.get(access.base, [])
        ways = list(self._ways(several, access, offset, size, limits)) if len(several) <= _MOST_STORES else []
        copied = list(self._copied(landed, access, offset, size, limits)) if several and not ways else []
        if copied and (not run.exact or run.holds(access.path, either(*(condition for condition, _ in copied)))):
            result = copied[-1][1]
            for condition, value in copied[-2::-1]:
                result = choice(condition, value, result)
            return result
        if not run.exact:
            return ways[0][1] if ways else anything
        for value in dict.fromkeys(value for _, value in ways):  # of several stores, such as on paths without a join
            if run.holds(access.path, either(*(condition for condition, other in ways if other == value))):
                return value
        found: Term = anything
        self._open.setdefault(access.base, set()).update(anything.deps)
        if 0 < len(ways) <= _MOST_WAYS:
            for condition, value in reversed(ways):
                found = choice(condition, value, found)
        return found

    def _copied(
        self, landed: Pending, access: ThreadAccess, offset: Term, size: int, limits: tuple[int, int]
    ) -> Iterator[tuple[Predicate, Term]]:  # fmt: skip
        """Yield elements that copies brought to a place, each with the condition under which a load finds it.

        That nothing is written there after such a copy follows from what is proved of all accesses: copies that begin
        before it is over, or end behind the load, race with it or with the load. All others since the head of the loop
        are among ``landed``; and no store of the kernel touches its bytes.
        """
        copies = [_stored_copy(when, one) for when, one in landed if one.base == access.base]
        for one in copies:
            brought = one.access.brought
            writer = None if brought is None else _writer(one, offset, access.rounds)
            if brought is None or writer is None or any(atom.kind == "round" for atom in writer):
                continue
            if not self._alone(one, copies, access.rounds):
                continue
            read, count = brought.substituted(writer)
            shift = offset - substituted(one.offset, writer)
            data = element(self.run, read, read.offset + shift, size, signed=limits[0] < 0)
            if data is None or (size < 4 and not data.within(*limits)):
                continue
            whole = both(
                between(0, shift, one.size - size), substituted(one.access.path, writer),
                *(between(0, index, index if atom.high is None else atom.high) for atom, index in writer.items()),
            )  # fmt: skip
            if whole.kind != "false":
                yield whole, choice(zero(count), 0, data)

    def _alone(self, one: Stored, copies: Sequence[Stored], rounds: tuple[Term, ...]) -> bool:
        """Return True if all copies of an interval that touch bytes of a copy bring the same, and no store does."""
        if not self.run.exact:
            return True
        key = (_described(one), *map(_described, copies), rounds)
        if key not in self._agreed:
            stores = [it for it in self._stores[one.access.base] if not it.access.copy]
            self._agreed[key] = all(
                self._pair_agrees(one, other, rounds, sure=_brought_from(one) == _brought_from(other))
                for other in copies
            ) and all(self._pair_agrees(one, other, (), sure=False) for other in stores)
        return self._agreed[key]

    def _ways(
        self, several: Sequence[Stored], access: ThreadAccess, offset: Term, size: int, limits: tuple[int, int]
    ) -> Iterator[tuple[Predicate, Term]]:  # fmt: skip
        """Yield values that a load may find, each with the condition under which it does."""
        seen = self._flow.seen_by(access, several)
        if seen is None:
            return
        for one in seen.sure:
            value = one.value
            if one.size != size or value is None or is_pointer(value) or (size < 4 and not value.within(*limits)):
                continue
            writer = _writer(one, offset, seen.rounds)
            coming = None if writer is None else self._coming(writer)
            if writer is None or coming is None or not self._agree(one, seen):
                continue
            conditions = [equal(substituted(one.offset, writer), offset), substituted(one.access.path, writer), coming]
            for atom, index in writer.items():
                conditions.append(between(0, index, index if atom.high is None else atom.high))
            whole = both(*conditions)
            if whole.kind != "false":
                yield whole, substituted(value, writer)

    def _coming(self, writer: Mapping[Atom, Term]) -> Predicate | None:
        """Return the condition that a store's thread comes to the rounds of its writer; None if it is not known."""
        found = []
        for count in writer:
            if count.kind == "round":
                condition = self._going_on.get(count)
                if condition is None or not self._only_last_ends(count, condition):
                    return None
                number = Term({(count,): 1})
                found.append(either(zero(number), substituted(condition, {count: number - 1})))
        return substituted(both(*found), writer)

    def _only_last_ends(self, count: Atom, condition: Predicate) -> bool:
        """Return True if a round of a loop goes on wherever the one behind it does, and the thread's indices decide."""
        if not self.run.exact:
            return True
        if count not in self._lasting:
            following = substituted(condition, {count: Term({(count,): 1}) + 1})
            known = all(atom.kind == "tid" or atom in count.deps for atom in _own_atoms(condition.deps))
            self._lasting[count] = known and self.run.holds(following, condition)
        return self._lasting[count]

    def _agree(self, one: Stored, seen: Seen) -> bool:
        """Return True if all stores that touch the bytes of one in the same rounds write its value there."""
        if not self.run.exact:
            return True
        key = (one, seen.sure, seen.others, seen.rounds)
        if key not in self._agreed:
            pairs = [*((other, True) for other in seen.sure), *((other, False) for other in seen.others)]
            self._agreed[key] = all(self._pair_agrees(one, other, seen.rounds, sure) for other, sure in pairs)
        return self._agreed[key]

    def _pair_agrees(self, one: Stored, other: Stored, rounds: tuple[Term, ...], sure: bool) -> bool:
        (low, high), (least, most) = one.offset.bounds, other.offset.bounds
        if high is not None and least is not None and high + one.size <= least:
            return True
        if most is not None and low is not None and most + other.size <= low:
            return True
        question = self.run.question()
        question.suppose(one.access.path, "1")
        question.suppose(other.access.path, "2")
        distance = question.value(question.linear(one.offset, "1", other.offset, "2"))
        extra = [f"(< {distance} {other.size})", f"(> (+ {distance} {one.size}) 0)"]
        extra += [question.same(count) for count in rounds]
        if one is other:
            extra.append(any_of([f"(not {question.same(Term({(atom,): 1}))})" for atom in sorted(one.thread_atoms)]))
        if sure and other.value is not None and one.value is not None and other.size == one.size:
            same = f"(= {question.term(one.value, '1')} {question.term(other.value, '2')})"
            extra.append(f"(not {all_of([f'(= {distance} 0)', same])})")
        return question.ask(extra, QUICK, model=False, lemmas=1).contradiction


class _Flow:
    """The order of stores, barriers and loads in the control flow."""

    def __init__(self, run: Executing):
        self.graph = run.graph
        self.place = {one.start: block for block in self.graph.order for one in self.graph.blocks[block].statements}
        self.barriers = {
            one.start for block in self.graph.order for one in self.graph.blocks[block].statements
            if head(one) in ("bar", "barrier") and "warp" not in one.opcode.split(".")
        }  # fmt: skip
        self._reached: dict[tuple[int, frozenset[int]], set[int]] = {}

    def seen_by(self, access: ThreadAccess, several: Sequence[Stored]) -> Seen | None:
        """Return the stores before the load's barrier in the same round of common loops, with the rounds of these.

        None if a store may come between, or if the barrier is not known.
        """
        if access.strong or any(one.access.strong for one in several):
            return None
        start = access.statement.start
        around = self._loops(start)
        barriers: list[int] = []
        for epoch in access.epochs:
            if not isinstance(epoch.place, int) or epoch.place not in self.barriers:
                return None
            barriers.append(epoch.place)
            around &= self._loops(epoch.place)
        relevant = [one for one in several if around <= self._loops(one.access.statement.start)]
        rounds = access.rounds[: len(around)]
        if any(epoch.rounds[: len(around)] != rounds for epoch in access.epochs):
            return None
        sure: list[Stored] = []
        others: list[Stored] = []
        for one in several:
            at = one.access.statement.start
            if _may_meet(one.access.epochs, access.epochs) and self._after(at, start, around):
                return None
        for one in relevant:
            at = one.access.statement.start
            before = [self._after(at, barrier, around) for barrier in barriers]
            behind = [self._after(barrier, at, around) for barrier in barriers]
            if not any(before):
                continue  # behind the barrier, and so behind the load
            if one.access.rounds[: len(around)] != rounds:
                return None
            (sure if all(before) and not any(behind) else others).append(one)
        return Seen(tuple(sure), tuple(others), rounds) if sure else None

    def _loops(self, start: int) -> frozenset[int]:
        return frozenset(head for head, body in self.graph.loops.items() if self.place[start] in body)

    def _after(self, start: int, other: int, around: frozenset[int]) -> bool:
        """Return True if a statement can be executed after another one in the same round of the loops around both."""
        here, there = self.place[start], self.place[other]
        if here == there and other > start:
            return True
        key = (here, around)
        if key not in self._reached:
            reached: set[int] = set()
            waiting = [here]
            while waiting:
                for following in self.graph.blocks[waiting.pop()].after:
                    if following not in reached and following not in around:
                        reached.add(following)
                        waiting.append(following)
            self._reached[key] = reached
        return there in self._reached[key]


def _elements(access: ThreadAccess, values: Sequence[Value] | None) -> Iterator[Stored]:
    """Yield the stores of an access that writes: one for each element, or one of any value."""
    if not values or access.copy:
        yield Stored(access, access.offset, access.width, None)
        return
    size = access.width // len(values)
    for place, value in enumerate(values):
        yield Stored(access, access.offset + place * size, size, value if isinstance(value, Term) else None)


def _stored_copy(when: Predicate, copy: ThreadAccess) -> Stored:
    """Return a copy as a store of what tells its bytes: their place in the tensor, or a place outside for zeros."""
    value = None if copy.brought is None else choice(zero(copy.brought.size), -1, copy.brought.read.offset)
    return Stored(replace(copy, path=both(when, copy.path)), copy.offset, copy.width, value)


def _brought_from(one: Stored) -> str:
    return "" if one.access.brought is None else one.access.brought.read.base


def _described(one: Stored) -> tuple:
    return one.access.statement.start, one.offset, one.access.path, one.value


def _own_atoms(deps: Iterable[Atom]) -> set[Atom]:
    computed = ("load", "bit", "flag", "choice", "quotient", "ratio")
    return {atom for atom in deps if atom.scope == THREAD and atom.kind not in computed}


def _writer(one: Stored, place: Term, rounds: Sequence[Term]) -> dict[Atom, Term] | None:
    """Guess the thread that stores to a place; None if there is no guess.

    Its indices are taken as the digits of the place.
    """
    common = {count.atom for count in rounds}
    own = {atom for atom in one.thread_atoms if atom not in common}
    if any(atom.kind not in ("tid", "round") for atom in own):
        return None
    factors: dict[Atom, int] = {}
    rest = place
    for key, factor in one.offset.parts.items():
        mine = [atom for atom in key if not atom.deps.isdisjoint(own)]
        if not mine:
            rest = rest - Term({key: factor})
        elif len(key) > 1 or (mine[0] not in own and mine[0].kind != "bit") or factor < 1:
            return None
        else:
            factors[mine[0]] = factor
    found: dict[Atom, Term] = {}
    for atom in sorted(factors, key=lambda atom: -factors[atom]):
        digit = quotient(rest, factors[atom])
        rest = rest - digit * factors[atom]
        whole, unit = (atom.args[0].atom, 1 << atom.args[1]) if atom.kind == "bit" else (atom, 1)
        found[whole] = found.get(whole, term(0)) + digit * unit
    for atom in own - found.keys():
        found[atom] = _only(atom, one.access.path, own)
    return found


def _only(atom: Atom, path: Predicate, own: set[Atom]) -> Term:
    """Return the value of an index for which a path demands one, else 0."""
    for one in conjuncts(path):
        if one.kind == "zero":
            factor = one.parts[0].parts.get((atom,), 0)
            rest = one.parts[0] - Term({(atom,): factor}) if factor else one.parts[0]
            if abs(factor) == 1 and rest.deps.isdisjoint(own):
                return rest * -factor
    return term(0)


def _may_meet(one: Epochs, other: Epochs) -> bool:
    return any(here.place == there.place or ANY in (here.place, there.place) for here in one for there in other)
