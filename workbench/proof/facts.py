"""Facts about sizes and about the elements of tensors, which proofs may use and every run can check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import ArgumentError
from workbench.ops.tensors.data_facts import APART, DISTINCT, parts_of
from workbench.proof.conditions import FALSE, TRUE, Predicate, at_most, both, conjuncts, substituted
from workbench.proof.formulas import formula
from workbench.proof.tensors import TensorArgument
from workbench.proof.terms import Arena, Atom, Term, term

_MOST_TRIED = 1 << 12
"""Values of which each is tried whether a fact allows it."""
_EXAMPLE = '{"block_tables": "0 <= v < num_blocks", "slot_mapping": "distinct or -1"}'


@dataclass(frozen=True)
class DataFact:
    """A fact about the elements of one tensor.

    ``text`` has one or several parts, separated by commas: ``distinct`` (``distinct or -1`` leaves out elements of that
    value), ``apart by lengths`` (see `APART`), and conditions on an element ``v`` and its index ``i``, such as ``0 <= v
    < rows`` or ``v == 4 * i``. ``count`` is the number of elements, ``size`` the bytes of one. ``value`` returns the
    element at an index where a part gives it, such as ``v == 4 * i``, else None. ``apart`` is the name of the tensor of
    lengths, or "", and ``length`` returns the one at an index.
    """

    tensor: str
    text: str
    count: Term
    size: int
    distinct: bool
    free: tuple[int, ...]
    signed: bool
    condition: Callable[[Term, Term], Predicate]
    value: Callable[[Term], Term | None]
    apart: str
    length: Callable[[Term], Term]

    @classmethod
    def of(
        cls, tensor: TensorArgument, text: str, names: Mapping[str, Any], arena: Arena,
        tensors: Mapping[str, TensorArgument],
    ) -> DataFact:  # fmt: skip
        """Read a fact about a tensor. Raises ArgumentError for text that is none."""
        where = f"facts[{tensor.name!r}]"
        if not isinstance(text, str):
            raise ArgumentError(where, repr(text), f"text such as in {_EXAMPLE}", "Write it as text.")
        index, value = arena.atom("fact", "i"), arena.atom("fact", "v")
        distinct, free, conditions = False, [], []
        lengths: TensorArgument | None = None
        for part in parts_of(text):
            found = DISTINCT.fullmatch(part)
            if found:
                distinct = True
                free += [int(found[1])] if found[1] else []
                continue
            by = APART.fullmatch(part)
            if by:
                lengths = tensors.get(by[1])
                if lengths is None or lengths.count != tensor.count:
                    known = ", ".join(one for one in tensors if tensors[one].count == tensor.count)
                    raise ArgumentError(
                        where, repr(part), f"a tensor of as many elements: {known}", "Name the lengths."
                    )
                continue
            one = formula(where, part, {**names, "v": value, "i": index})
            if not isinstance(one, Predicate):
                raise ArgumentError(where, repr(part), "distinct, or a comparison of v", f"Write as {_EXAMPLE}.")
            conditions.append(one)
        for one in (tensor, lengths or tensor):
            if not one.is_whole:
                got, allowed = f"{one.name} of {one.dtype}", "a tensor of whole numbers"
                raise ArgumentError(where, got, allowed, "Kernels may read the bits of floats.")
        whole = both(*conditions) if conditions else TRUE
        first, second = index.atom, value.atom
        assert first is not None
        assert second is not None
        given = next(filter(None, (_given(one, second) for one in conjuncts(whole))), None)
        return cls(
            tensor.name, text, tensor.count, tensor.element, distinct, tuple(free), not tensor.dtype.startswith("u"),
            lambda at, element: substituted(whole, {first: at, second: element}),
            lambda at: None if given is None else substituted(given, {first: at}),
            lengths.name if lengths is not None else "",
            lambda at: term(0) if lengths is None else element_of(arena, lengths, at),
        )  # fmt: skip


def element_of(arena: Arena, tensor: TensorArgument, place: Term) -> Term:
    """Return an element of a tensor of whole numbers as a load of it is."""
    signed, half = not tensor.dtype.startswith("u"), 1 << 8 * tensor.element - 1
    low, high = (-half, half - 1) if signed else (0, 2 * half - 1)
    return arena.atom("load", tensor.name, (place, tensor.element, signed and tensor.element < 4), low, high)


def _given(condition: Predicate, value: Atom) -> Term | None:
    """Return the term that a condition says a value is equal to, else None."""
    if condition.kind != "zero":
        return None
    factor = condition.parts[0].parts.get((value,), 0)
    rest = condition.parts[0] - Term({(value,): factor} if factor else {})
    return rest * -factor if abs(factor) == 1 and value not in rest.deps else None


def enough_values(fact: DataFact, data: Mapping[str, DataFact], arena: Arena) -> Predicate:
    """Return a condition on sizes without which a tensor has more elements than its fact leaves values.

    Each element takes one value, or as many places as its length is at least, but for the last.
    """
    index, value = arena.atom("fact", "i"), arena.atom("fact", "v")
    second = value.atom
    assert second is not None
    if not (fact.distinct or fact.apart) or any(fact.condition(index, term(one)) != FALSE for one in fact.free):
        return TRUE
    (low, high), whole = _limits(fact, index, value), fact.condition(index, value)
    least, most = low.constant, high.constant
    each = 1
    if fact.apart in data:
        shortest, _ = _limits(data[fact.apart], index, value)
        each = max(shortest.constant or 0, 0)
    elif (
        least is not None
        and most is not None
        and most - least < _MOST_TRIED
        and all(second in one.deps for one in whole.deps)
    ):
        fitting = sum(fact.condition(index, term(one)) == TRUE for one in range(least, most + 1))
        return at_most(fact.count, fitting)
    return at_most((fact.count - 1) * each, high - low)


def _limits(fact: DataFact, index: Term, value: Term) -> tuple[Term, Term]:
    """Return the least and the largest value of an element by its type, and by comparisons with sizes."""
    half, own = 1 << 8 * fact.size - 1, value.atom
    assert own is not None
    low, high = (term(-half), term(half - 1)) if fact.signed else (term(0), term(2 * half - 1))
    for one in conjuncts(fact.condition(index, value)):
        factor = one.parts[0].parts.get((own,), 0) if one.kind == "less" else 0
        rest = one.parts[0] - value * factor if factor else term(0)
        if abs(factor) == 1 and rest.deps.isdisjoint(value.deps | index.deps):
            low, high = (low, -rest - 1) if factor > 0 else (rest + 1, high)
    return low, high


def split_facts(facts: Any) -> tuple[list[str], dict[str, str]]:
    """Return the facts about sizes and those about tensors. Raises ArgumentError for any other fact."""
    several: Sequence[Any] = [facts] if isinstance(facts, str | Mapping) else list(facts)
    sizes: list[str] = []
    tensors: dict[str, str] = {}
    for one in several:
        if isinstance(one, str):
            sizes.append(one)
        elif isinstance(one, Mapping):
            tensors.update(one)
        else:
            raise ArgumentError("facts", repr(one), f'"rows * cols < 2**31", or {_EXAMPLE}', "Write it as text.")
    return sizes, tensors
