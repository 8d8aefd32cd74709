"""Threads of a block by their numbers, and what these decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from workbench.proof.conditions import FALSE, TRUE, Predicate, between, both, either, negation
from workbench.proof.evaluation import Values
from workbench.proof.indices import flat_index
from workbench.proof.specification import Specification
from workbench.proof.terms import Atom, Term

_COMPUTED = ("quotient", "ratio", "bit", "flag", "choice")


def decided(condition: Predicate, members: Iterable[int], specification: Specification) -> Predicate:
    """Return a condition without the parts that are the same for all of some threads, whatever the sizes."""
    if condition.kind in ("true", "false"):
        return condition
    if of_threads(condition):
        known = {holds_for(condition, one, specification) for one in members}
        if len(known) == 1:
            return TRUE if known == {True} else FALSE
    if condition.kind == "not":
        return negation(decided(condition.parts[0], members, specification))
    if condition.kind in ("and", "or"):
        join = both if condition.kind == "and" else either
        own = [one for one in condition.parts if of_threads(one)]
        if 1 < len(own) < len(condition.parts):  # together they may decide what none of them does
            rest = [one for one in condition.parts if not of_threads(one)]
            return join(decided(join(*own), members, specification),
                        *(decided(one, members, specification) for one in rest))  # fmt: skip
        return join(*(decided(one, members, specification) for one in condition.parts))
    return condition


def of_threads(condition: Predicate | Term) -> bool:
    """Return True for a condition, or a term, that depends on nothing but the thread's number."""
    return bool(condition.deps) and all(one.kind == "tid" or one.kind in _COMPUTED for one in condition.deps)


def holds_for(condition: Predicate, thread: int, specification: Specification) -> bool:
    """Return whether a condition `of_threads` holds for a thread of the block."""
    return _values(condition.deps, thread, specification).holds(condition)


def value_for(value: Term, thread: int, specification: Specification) -> int:
    """Return the value that a term `of_threads` has for a thread of the block."""
    return _values(value.deps, thread, specification).of(value)


def _values(atoms: Iterable[Atom], thread: int, specification: Specification) -> Values:
    x, y, _ = specification.block
    places = {"x": thread % x, "y": thread // x % y, "z": thread // (x * y)}
    known: dict[tuple[Atom, str], int] = {(one, ""): places[one.name[-1]] for one in atoms if one.kind == "tid"}
    return Values(known)


def same_in_warps(value: Term, specification: Specification) -> bool:
    """Return True if a term has one value for all lanes of a warp, which their numbers alone decide."""
    if value.constant is not None:
        return True
    found: dict[int, int] = {}
    return of_threads(value) and all(
        found.setdefault(one // 32, its) == its
        for one in range(specification.threads)
        for its in (value_for(value, one, specification),)
    )


def leaves(condition: Predicate) -> Iterator[Predicate]:
    """Yield the largest parts of a condition that depend on nothing but the thread's number."""
    if of_threads(condition):
        yield condition
    elif condition.kind in ("and", "or", "not"):
        own = [one for one in condition.parts if of_threads(one)]
        if own:
            yield (both if condition.kind == "and" else either)(*own)
        for one in condition.parts:
            if not of_threads(one):
                yield from leaves(one)


def divided(conditions: Iterable[Predicate], specification: Specification) -> list[tuple[frozenset[int], Predicate]]:
    """Divide the threads of a block so that each condition is the same for all threads of a part."""
    several = list(dict.fromkeys(conditions))
    groups: dict[tuple[bool, ...], list[int]] = {}
    for thread in range(specification.threads):
        groups.setdefault(tuple(holds_for(one, thread, specification) for one in several), []).append(thread)
    return [
        (frozenset(threads), _described(threads, several, truth, specification)) for truth, threads in groups.items()
    ]


def _described(
    threads: Sequence[int], several: Sequence[Predicate], truth: Sequence[bool], specification: Specification
) -> Predicate:
    """Return the condition of some threads: their range, if they follow each other."""
    if len(threads) == threads[-1] - threads[0] + 1:
        return between(threads[0], flat_index(specification), threads[-1])
    return both(*(one if known else negation(one) for one, known in zip(several, truth, strict=True)))
