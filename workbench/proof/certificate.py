"""From a proof to `ProvedAccesses`, a plain value by which the PTX machine leaves proved accesses out of its checks."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.proof.conditions import Predicate
from workbench.proof.execution import Execution
from workbench.proof.facts import DataFact
from workbench.proof.queries import MOST_FAILURES, Failure
from workbench.proof.specification import Specification
from workbench.proof.tensors import TensorArgument
from workbench.proof.terms import Atom, Term
from workbench.ptx.proved import (
    ELEMENT,
    INDEX,
    POINTER,
    Formula,
    ProvedAccesses,
    ProvedElements,
    ProvedTensor,
    digest_of,
)
from workbench.toolchain import CompiledKernel


def certificate(
    kernel: CompiledKernel, specification: Specification, execution: Execution, failures: Sequence[Failure]
) -> ProvedAccesses | None:
    """Return the accesses that are proved; None if barriers, copies or all arrays are left open.

    Arrays of which an access may be out of bounds or in a race stay with the checks, and so do those with atomics and
    other strong accesses, which order threads.
    """
    if specification.maps or any(one.proxy for one in execution.accesses):
        return None  # bulk and tensor copies keep their checks, which need all others
    accesses: dict[int, set[str]] = {}
    left = {one.base for one in execution.accesses if one.strong}
    for one in execution.accesses:
        accesses.setdefault(one.statement.start, set()).add(one.base)
    for failure in failures:
        if sum(one.kind == failure.kind for one in failures) >= MOST_FAILURES:
            return None  # others were not looked for
        starts = {one.start for one in failure.statements}
        if failure.kind == "barriers" or any(one.copy for one in execution.accesses if one.statement.start in starts):
            return None
        left |= {base for start in starts for base in accesses.get(start, ())}
    arrays = {base for bases in accesses.values() for base in bases}
    if not arrays - left:
        return None
    made = specification
    return ProvedAccesses(
        digest=digest_of(kernel.ptx),
        kernel=kernel.name,
        block=made.block,
        grid=tuple(map(formula_of, made.grid)),
        arguments=tuple(map(_argument, made.arguments)),
        tensors=tuple(map(_tensor, made.tensors.values())),
        shared_bytes=formula_of(made.shared_bytes),
        sizes=tuple(_size(name, one) for name, one in made.sizes.items()),
        conditions=tuple((_words(made, at), condition_of(one)) for at, one in enumerate(made.facts)),
        elements=tuple(_elements(made, one) for one in made.data.values()),
        accesses=tuple((start, tuple(sorted(bases))) for start, bases in sorted(accesses.items())),
        arrays=tuple(sorted(arrays - left)),
        open_arrays=tuple(sorted(arrays & left)),
        repeats=made.repeats,
    )


def _words(made: Specification, at: int) -> str:
    """Return a condition in words."""
    return repr(made.facts[at])


def _size(name: str, size: Term) -> tuple[str, int | None, int | None]:
    atom = size.atom
    assert atom is not None
    assert not isinstance(atom.high, Term)
    return name, atom.low, atom.high


def _argument(value: Term | None) -> Formula:
    atom = None if value is None else value.atom
    if atom is not None and atom.kind == "pointer":
        return POINTER, atom.name
    return None if value is None else formula_of(value)


def _tensor(one: TensorArgument) -> ProvedTensor:
    return ProvedTensor(one.name, tuple(map(formula_of, one.shape)), one.element)


def _elements(made: Specification, fact: DataFact) -> ProvedElements:
    condition = condition_of(fact.condition(made.arena.atom("fact", "i"), made.arena.atom("fact", "v")))
    signed = not fact.apart or not made.tensors[fact.apart].dtype.startswith("u")
    return ProvedElements(fact.tensor, fact.text, condition, fact.distinct, fact.free, fact.signed, fact.apart, signed)


def formula_of(value: Term) -> Formula:
    """Return a term over sizes as a formula of `workbench.ptx.proved`. Raises TypeError for one of threads."""
    found: list[Formula] = []
    for key, factor in value.parts.items():
        product = [*([factor] if factor != 1 or not key else []), *map(_atom, key)]
        found.append(product[0] if len(product) == 1 else ("*", *product))
    return 0 if not found else found[0] if len(found) == 1 else ("+", *found)


def _atom(atom: Atom) -> Formula:
    if atom.kind == "param":
        return atom.name
    if atom.kind == "fact":
        return {"i": INDEX, "v": ELEMENT}[atom.name]
    if atom.kind == "quotient":
        return "//", formula_of(atom.args[0]), atom.args[1]
    if atom.kind == "ratio":
        return "ratio", formula_of(atom.args[0]), formula_of(atom.args[1])
    if atom.kind == "choice":
        return "if", condition_of(atom.args[0]), formula_of(atom.args[1]), formula_of(atom.args[2])
    if atom.kind == "flag":
        return "number", condition_of(atom.args[0])
    raise TypeError(f"{atom} is no size")


def condition_of(one: Predicate) -> Formula:
    """Return a condition over sizes as a formula."""
    kind, parts = one.kind, one.parts
    if kind in ("less", "zero"):
        return "negative" if kind == "less" else "zero", formula_of(parts[0])
    return kind, *map(condition_of, parts)
