"""The questions of a proof: bounds of each access, pairs of accesses that may race, barriers that only some reach."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.proof.access import ANY, Epochs, Hazard, Meeting, ThreadAccess
from workbench.proof.conditions import (
    TRUE,
    Predicate,
    at_most,
    between,
    both,
    either,
    narrowed,
    negation,
    negative,
    zero,
)
from workbench.proof.descriptors import alignment
from workbench.proof.digits import zero_parts
from workbench.proof.execution import Execution
from workbench.proof.indices import block_index, flat_index, thread_index
from workbench.proof.memory import size_of
from workbench.proof.series import in_series
from workbench.proof.solver import THOROUGH, USUAL, Answer, Linear, Place, Question
from workbench.proof.solver_texts import all_of, any_of
from workbench.proof.terms import GRID, Term, quotient, remainder, term
from workbench.proof.unknown import line_of
from workbench.ptx.decode import short_name
from workbench.ptx.parse import Statement

_TOGETHER = 24
"""Pairs of accesses that are asked about at once; only if the answer is not that none can race, one by one."""
MOST_FAILURES = 3
"""Counterexamples, or questions without an answer, after which a property is given up."""
REPLICAS = "%global_smem"
"""The shared array of Triton's kernels, in which threads that hold the same element store it. No other compiler
promises that."""
Pair = tuple[ThreadAccess, ThreadAccess, bool | None]
"""Two accesses and True for threads of one block, False for two blocks, None for any threads, or the same one twice."""


@dataclass(frozen=True)
class Failure:
    """Something that could not be proved, of the ``kind`` bounds, races or barriers.

    ``values`` is Z3's counterexample, by atom and thread; empty if the question had no answer.
    """

    kind: str
    text: str
    statements: tuple[Statement, ...]
    values: dict[Place, int]


class Queries:
    """The questions about one execution."""

    def __init__(self, execution: Execution):
        self.execution, self.specification = execution, execution.specification
        self.facts = self.specification.facts
        self._rows: dict[tuple, tuple[Term, Term] | None] = {}
        self._members: dict[ThreadAccess, list[ThreadAccess]] = {}

    def failures(self) -> Iterator[Failure]:
        """Yield what could not be proved."""
        yield from self._bounds()
        yield from self._barriers()
        yield from self._hazards()
        yield from self._stale()
        yield from self._races()

    def question(self, *, one_block: bool = True) -> Question:
        """Return a question with the facts about sizes."""
        return Question(self.execution.budget, self.specification.data, self.facts, one_block=one_block)

    # -- bounds -------------------------------------------------------------------------------------------------

    def _bounds(self) -> Iterator[Failure]:
        seen, failures = set(), 0
        for one in self.execution.accesses:
            key = (one.base, one.offset, one.width, one.unit, one.path)
            if key in seen or one.clipped:
                continue
            seen.add(key)
            one = self._unwrapped(one)
            size = size_of(self.execution, one.base)
            if size is None:
                name = _name(one.base)
                text = f'{does(one)}, whose size is unknown: give it in args, as "float32[rows, cols]"'
                yield Failure("bounds", text.replace("{}", name), (one.statement,), {})
                failures += 1
            else:
                outside = either(negative(one.offset), negative(size - one.offset - one.width))
                broken = either(outside, self._misaligned(one))
                if broken.kind == "false":
                    continue
                question = self.question()
                question.suppose(one.path)
                question.about(one.offset, "")
                for room in (one.offset, size - one.offset):
                    self._offer_factors(question, question.linear(room, ""))
                answer = question.ask([question.condition(broken, "")])
                if not answer.contradiction:
                    failures += 1
                    yield Failure("bounds", f"{does(one)} out of bounds", (one.statement,), dict(answer.values))
            if failures >= MOST_FAILURES:
                return

    def _misaligned(self, one: ThreadAccess) -> Predicate:
        tensor = self.specification.tensors.get(one.base)
        array = tensor if tensor is not None else self.execution.graph.variables.get(_variable(one.base))
        declared = 0 if array is None else array.align
        if tensor is None and (one.proxy or one.align):  # bulk copies and products rely on where a launch puts them
            declared = max(declared, alignment(self.execution, one.base))
        if array is not None and declared % one.unit:
            return TRUE  # by luck only
        return _misaligned_offset(one)

    # -- barriers -----------------------------------------------------------------------------------------------

    def _barriers(self) -> Iterator[Failure]:
        known = {(one.path, one.reach, one.lanes, one.rounds): one for one in self.execution.meetings}
        for one in known.values():
            if one.reach == TRUE or not any(atom.scope > GRID for atom in one.reach.deps):
                continue
            question = self.question()
            for tag in ("1", "2"):
                question.suppose(one.path, tag)
            extra = [question.condition(one.reach, "1"), question.condition(negation(one.reach), "2")]
            extra += [question.same(count) for count in one.rounds]
            extra += self._same_warp(question, one)
            answer = question.ask(extra)
            if not answer.contradiction:
                who = "a warp" if one.lanes else "a block"
                text = f"not all threads of {who} reach the barrier together"
                yield Failure("barriers", text, (one.statement,), dict(answer.values))
                return

    def _same_warp(self, question: Question, one: Meeting) -> list[str]:
        if not one.lanes:
            return []
        warp = self._warp()
        return [question.same(warp)]

    def _warp(self) -> Term:
        return quotient(flat_index(self.specification), 32)

    # -- copies of the same thread --------------------------------------------------------------------------------

    def _hazards(self) -> Iterator[Failure]:
        for one in self.execution.hazards:
            question = self.question()
            question.suppose(both(one.access.path, one.when, one.copy.path))
            distance = one.access.offset - one.copy.offset
            meets = both(negative(distance - one.copy.width), negative(-distance - one.access.width))
            answer = question.ask([question.condition(meets, "")])
            if not answer.contradiction:
                yield Failure("races", *_copy_text(one), dict(answer.values))
                return

    # -- memory that has to stay as it is -------------------------------------------------------------------------

    def _stale(self) -> Iterator[Failure]:
        """Yield loads by an instruction for memory that the launch does not write, where it does."""
        writes = {one.key: one for one in self.execution.accesses if one.writes}
        for one in {one.key: one for one in self.execution.accesses if one.fixed}.values():
            for other in writes.values():
                if other.base != one.base or never_overlap(one, other):
                    continue
                for failure in self._some([(one, other, None)]):
                    text = f"{does(one)} by {one.statement.opcode}, for memory that stays as it is, but {does(other)}"
                    yield replace(failure, text=text)
                    return

    # -- races --------------------------------------------------------------------------------------------------

    def _races(self) -> Iterator[Failure]:
        failures = 0
        groups: dict[tuple[str, bool | None], list[Pair]] = {}
        for pair in self._pairs():
            groups.setdefault((pair[0].base, pair[2]), []).append(pair)
        for pairs in groups.values():
            for failure in self._each(pairs):
                yield failure
                failures += 1
                if failures >= MOST_FAILURES:
                    return

    def _each(self, pairs: Sequence[Pair]) -> Iterator[Failure]:
        for start in range(0, len(pairs), _TOGETHER):
            yield from self._some(pairs[start : start + _TOGETHER])

    def _pairs(self) -> Iterator[Pair]:
        unique: dict[tuple, ThreadAccess] = {}
        for one in self.execution.accesses:
            unique.setdefault(one.key, one)
        bases: dict[str, list[ThreadAccess]] = {}
        for one in unique.values():
            bases.setdefault(one.base, []).append(one)
        for base, several in bases.items():
            variable = self.execution.graph.variables.get(_variable(base))
            space = variable.space if variable is not None else "global"
            if space in ("local", "const") or not any(one.writes for one in several):
                continue
            if not (self.specification.repeats and base == REPLICAS):
                several, members = in_series(several)
                self._members |= members
            for place, one in enumerate(several):
                for other in several[place:]:
                    if not (one.writes or other.writes) or never_overlap(one, other):
                        continue
                    strong = one.strong and other.strong and one.element == other.element
                    alone = strong and not (one.in_block or other.in_block)
                    if self.specification.threads > 1 and not strong and self.may_meet(one, other):
                        yield one, other, True
                    if space != "shared" and not alone and any(size.constant != 1 for size in self.specification.grid):
                        yield one, other, False

    def _some(self, pairs: Sequence[Pair]) -> Iterator[Failure]:
        """Ask about several pairs at once, and about parts of them if the answer is not that none can race."""
        question = self.question(one_block=bool(pairs[0][2]))
        if len(pairs) > 1:
            cases = [all_of(self._race(question, *pair)) for pair in pairs]
            if not question.ask([any_of(cases)], model=False, lemmas=1).contradiction:
                part = max(1, len(pairs) // 4)
                for start in range(0, len(pairs), part):
                    yield from self._some(pairs[start : start + part])
            return
        ((one, other, in_block),) = pairs
        single = one not in self._members and other not in self._members
        answer: Answer = question.ask(self._race(question, one, other, in_block), USUAL, model=single)
        if answer.contradiction:
            return
        simpler = self._simpler(one), self._simpler(other)
        if simpler != (one, other):
            without = self.question(one_block=bool(in_block))
            if without.ask(self._race(without, *simpler, in_block), THOROUGH, model=False).contradiction:
                return
        if not single:
            ones, others = (self._members.get(access, [access]) for access in (one, other))
            yield from self._each([(mine, its, in_block) for place, mine in enumerate(ones)
                                   for its in (others[place:] if one is other else others)])  # fmt: skip
            return
        where = "two threads of a block" if in_block else "two blocks"
        what = f"{where} race: {does(one)}, {does(other)}" if one.statement is not other.statement else (
            f"{where} race: each {does(one)}"
        )  # fmt: skip
        yield Failure("races", what, (one.statement, other.statement), dict(answer.values))

    def _simpler(self, one: ThreadAccess) -> ThreadAccess:
        """Return an access without choices that its path decides, and without wraps."""
        offset, path = (narrowed(value, one.path) for value in (one.offset, one.path))
        same = offset == one.offset and path == one.path
        return self._unwrapped(one if same else replace(one, offset=offset, path=path))

    def _unwrapped(self, one: ThreadAccess) -> ThreadAccess:
        """Return an access without the wraps of an index that may wrap only in threads that do not make it."""
        offset = one.offset
        for key, factor in offset.parts.items():
            if len(key) == 1 and key[0].kind == "quotient" and key[0].args[1] >= 1 << 32:
                dividend, divisor = key[0].args
                if self.execution.holds(one.path, between(0, dividend, divisor - 1)):
                    offset = offset - Term({key: factor})
        return one if offset is one.offset else replace(one, offset=offset)

    def _race(self, question: Question, one: ThreadAccess, other: ThreadAccess, in_block: bool | None) -> list[str]:
        """Return hypotheses under which two threads of a `Pair` access the same bytes in no order."""
        found = [question.condition(one.path, "1"), question.condition(other.path, "2")]
        question.about(one.offset, "1")
        question.about(other.offset, "2")
        distance = question.linear(one.offset, "1", other.offset, "2")
        value = question.value(distance)
        found += [f"(< {value} {other.width})", f"(> (+ {value} {one.width}) 0)"]
        found += [f"(= {question.value(part)} 0)" for part in zero_parts(distance, 1 - one.width, other.width - 1)]
        same = one.statement.start == other.statement.start
        repeats = self.specification.repeats and same and one.writes and not one.proxy
        if repeats and one.base == REPLICAS:
            again = [f"(= {question.term(mine, '1')} {question.term(its, '2')})" for mine, its in _repeated(one, other)]
            found.append(f"(not {all_of([f'(= {value} 0)', *again])})")
        if in_block:
            indices = [thread_index(self.specification, axis) for axis in range(3)]
            found += [
                question.condition(at_most(0, index), tag) for index in indices for tag in ("1", "2") if index.parts
            ]
            found += self.unordered(question, one, other)
        elif in_block is not None:
            found.append(differ(question, [block_index(self.specification, axis) for axis in range(3)]))
        self._offer_factors(question, distance)
        for size in _sizes_in(distance):
            for access, tag in ((one, "1"), (other, "2")):
                for room in self._row(access, size[0]) or ():
                    question.literal(question.linear(room, tag))
                    found.append(f"(>= {question.term(room, tag)} 0)")
        return found

    def unordered(self, question: Question, one: ThreadAccess, other: ThreadAccess) -> list[str]:
        """Return hypotheses under which two threads of a block make two accesses in no order."""
        found = [differ(question, [thread_index(self.specification, axis) for axis in range(3)])]
        found.append(_meeting(question, one.epochs, other.epochs))
        if one.lane_epochs != one.epochs or other.lane_epochs != other.epochs:
            warp = self._warp()
            apart = f"(not {question.same(warp)})"
            found.append(any_of([apart, _meeting(question, one.lane_epochs, other.lane_epochs)]))
        return found

    def may_meet(self, one: ThreadAccess, other: ThreadAccess) -> bool:
        """Return False for accesses that are never in one interval between barriers."""
        return any(
            here.place == there.place or ANY in (here.place, there.place)
            for here in one.epochs
            for there in other.epochs
        )

    def _offer_factors(self, question: Question, distance: Linear) -> None:
        """Offer the factors of sizes in a distance to lemmas, and the factors of sizes in these."""
        for size in _sizes_in(distance):
            common = question.common_factor(distance, size)
            if common is not None:
                question.literal(common)
                question.literal({key: -scale for key, scale in common.items()})
                self._offer_factors(question, common)

    def _row(self, access: ThreadAccess, size: Any) -> tuple[Term, Term] | None:
        """Return two terms that are at least 0: the elements left and right of an access in its row.

        That is proved for one thread, and helps to tell two threads apart.
        """
        key = (access.offset, access.path, access.width, size)
        if key not in self._rows:
            self._rows[key] = None
            factors = [scale for monomial, scale in access.offset.parts.items() if size in monomial]
            if factors:
                unit = math.gcd(*factors)
                left = Term({one: scale for one, scale in access.offset.parts.items() if size not in one})
                right = Term({(size,): unit}) - left - access.width
                if self.execution.holds(access.path, both(at_most(0, left), at_most(0, right)), USUAL, 2):
                    self._rows[key] = (left, right)
        return self._rows[key]


def _repeated(one: ThreadAccess, other: ThreadAccess) -> Iterator[tuple[Term, Term]]:
    """Yield what is the same where one store repeats another one: rounds, and values as far as they are followed."""
    yield from zip(one.rounds, other.rounds, strict=True)
    if one.copy and len(one.values) != 1:
        yield term(0), term(1)  # from one array or another
    for mine, its in zip(one.values, other.values, strict=True):
        if _is_followed(mine) and _is_followed(its):
            yield mine, its


def _is_followed(value: Any) -> bool:
    return isinstance(value, Term) and not any(atom.kind in ("unknown", "header") for atom in value.deps)


def _sizes_in(distance: Linear) -> list[Place]:
    """Return the sizes by which something is multiplied."""
    return sorted({place for key in distance if len(key) > 1 for place in key if place[0].scope == GRID})


def differ(question: Question, indices: Sequence[Term]) -> str:
    """Return the condition that not all indices of two threads are the same."""
    return any_of([f"(not {question.same(one)})" for one in indices if one.parts])


def _meeting(question: Question, one: Epochs, other: Epochs) -> str:
    """Return that two accesses happen in the same interval between barriers."""
    ways = []
    for here in one:
        for there in other:
            if ANY in (here.place, there.place):
                rounds = []
            elif here.place == there.place:
                rounds = [
                    f"(= {question.term(mine, '1')} {question.term(its, '2')})"
                    for mine, its in zip(here.rounds, there.rounds, strict=True)
                ]
            else:
                continue
            ways.append(all_of([question.condition(here.when, "1"), question.condition(there.when, "2"), *rounds]))
    return any_of(ways)


def never_overlap(one: ThreadAccess, other: ThreadAccess) -> bool:
    """Return True if the bounds of two offsets do not meet."""
    (low, high), (least, most) = one.offset.bounds, other.offset.bounds
    return (high is not None and least is not None and high + one.width <= least) or (
        most is not None and low is not None and most + other.width <= low
    )


def _misaligned_offset(one: ThreadAccess) -> Predicate:
    rest = one.offset if any(scale % one.unit for scale in one.offset.parts.values()) else term(0)
    return negation(zero(remainder(rest, one.unit)))


def _variable(base: str) -> str:
    """Return the name of the variable of which a base is the address, or an empty text."""
    return base[1:] if base.startswith("%") else ""


def _name(base: str) -> str:
    return short_name(base.removeprefix("%"))


def does(one: ThreadAccess) -> str:
    """Return what an access does, with its line."""
    return f"{line_of(one.statement)} {one.verb} {_name(one.base)}"


def _copy_text(hazard: Hazard) -> tuple[str, tuple[Statement, ...]]:
    text = f"{does(hazard.access)} before its thread has waited for the copy of {line_of(hazard.copy.statement)}"
    return text, (hazard.access.statement, hazard.copy.statement)
