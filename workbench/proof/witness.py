"""Counterexamples: from Z3's values to a launch of the kernel, which the machine then runs with its checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.launch.checking import check_kernel
from workbench.proof.conditions import Predicate
from workbench.proof.queries import Failure
from workbench.proof.specification import Specification
from workbench.proof.tensors import TensorArgument
from workbench.proof.terms import Atom, Term, term
from workbench.proof.unknown import line_of
from workbench.proof.verdict import Counterexample

if TYPE_CHECKING:
    from workbench.analysis.check_report import CheckReport
    from workbench.proof.solver import Place

MOST_BYTES, MOST_THREADS = 1 << 26, 1 << 20
"""Largest launch that is run to confirm a counterexample."""
_KINDS = {
    "bounds": ("out-of-bounds", "misaligned", "write to read-only memory", "wrapped index"),
    "races": (
        "shared race", "warp race", "global race", "cp.async data read before wait",
        "write to global memory that a copy is reading", "write to shared memory that is being read",
    ),
    "barriers": ("divergent barrier", "barrier misuse", "deadlock", "absent lane", "mismatched mask"),
}  # fmt: skip
"""Findings of the machine that confirm that a property fails."""


class Values:
    """The values that atoms of the grid have in a counterexample; what it leaves open has its least value."""

    def __init__(self, known: Mapping[Place, int], tag: str = ""):
        self._known = {atom: value for (atom, its), value in known.items() if its in (tag, "")}

    def of(self, value: Term) -> int:
        """Return the value of a term."""
        return sum(factor * math.prod(map(self._atom, key)) for key, factor in value.parts.items())

    def _atom(self, atom: Atom) -> int:
        if atom not in self._known:
            self._known[atom] = self._compute(atom)
        return self._known[atom]

    def _compute(self, atom: Atom) -> int:
        if atom.kind == "quotient":
            return self.of(atom.args[0]) // atom.args[1]
        if atom.kind == "ratio":
            dividend, divisor = self.of(atom.args[0]), self.of(atom.args[1])
            return dividend // divisor if divisor >= 1 and dividend >= 0 else 0
        if atom.kind == "choice":
            return self.of(atom.args[1] if self.holds(atom.args[0]) else atom.args[2])
        if atom.kind == "flag":
            return int(self.holds(atom.args[0]))
        return max(atom.low or 0, 0)

    def holds(self, condition: Predicate) -> bool:
        """Return whether a condition holds."""
        parts = condition.parts
        if condition.kind in ("less", "zero"):
            value = self.of(parts[0])
            return value < 0 if condition.kind == "less" else value == 0
        if condition.kind == "not":
            return not self.holds(parts[0])
        if condition.kind in ("and", "or"):
            return (all if condition.kind == "and" else any)(map(self.holds, parts))
        return condition.kind == "true"


def counterexample(specification: Specification, failure: Failure, kernel: Any, run: bool) -> Counterexample:
    """Return the counterexample of a failure, confirmed by a run of the machine if ``run`` and it is not too large."""
    values = Values(failure.values)
    sizes = {name: values.of(one) for name, one in specification.sizes.items()}
    lines = tuple(dict.fromkeys(map(line_of, failure.statements)))
    report, remark = _confirm(specification, failure, values, kernel) if run else (None, "")
    return Counterexample(failure.property, failure.text, sizes, _threads(failure), lines, remark, report)


def _threads(failure: Failure) -> str:
    found = []
    for tag in ("1", "2", ""):
        parts = []
        for kind, word in (("ctaid", "block"), ("tid", "thread")):
            shown = {place: value for place, value in failure.values.items() if place[0].kind == kind}
            own = {atom.name: value for (atom, its), value in shown.items() if its in (tag, "")}
            if own and any(its == tag for atom, its in failure.values if atom.kind in ("ctaid", "tid")):
                parts.append(f"{word} " + ", ".join(f"{name[-1]} = {value}" for name, value in sorted(own.items())))
        if parts:
            found.append(" ".join(parts))
    return "; ".join(found)


def _confirm(
    specification: Specification, failure: Failure, values: Values, kernel: Any
) -> tuple[CheckReport | None, str]:  # fmt: skip
    grid = tuple(values.of(one) for one in specification.grid)
    total = sum(values.of(one.count) * one.element for one in specification.tensors.values())
    if total > MOST_BYTES or math.prod(grid) * specification.threads > MOST_THREADS:
        return None, "not run: too large"
    report: CheckReport | None = None
    for other_data in (False, True):
        try:
            arguments = [
                _argument(specification, value, stand_in, failure, values, other_data)
                for value, stand_in in zip(specification.arguments, specification.stand_ins, strict=False)
            ]
            shared = values.of(specification.shared_bytes) - getattr(kernel, "compiled", kernel).dynamic_shared_bytes
            report = check_kernel(
                kernel, grid=grid, block=specification.block, args=arguments, shared_bytes=shared, seconds_limit=20.0
            )
        except WorkbenchError as error:
            return None, f"a run of it failed: {str(error).splitlines()[0][:200]}"
        found = [one for one in report.findings if one.kind in _KINDS[failure.property]]
        if found:
            return report, f"confirmed by a run: {found[0].kind}"
    return report, "not confirmed: a run of it found nothing of the kind"


def _argument(
    specification: Specification, value: Term | None, stand_in: Any, failure: Failure, values: Values, other: bool
) -> Any:  # fmt: skip
    if value is None:
        return stand_in
    atom = value.atom
    if atom is not None and atom.kind == "pointer":
        tensor = specification.tensors.get(atom.name)
        return None if tensor is None else _tensor(specification, tensor, failure, values, other)
    return values.of(value)


def _tensor(
    specification: Specification, tensor: TensorArgument, failure: Failure, values: Values, other: bool
) -> Any:  # fmt: skip
    import torch

    shape = [values.of(one) for one in tensor.shape]
    dtype = getattr(torch, tensor.dtype)
    generator = torch.Generator().manual_seed(len(tensor.name) + other)
    fact = specification.data.get(tensor.name)
    chosen = {
        Values(failure.values, tag).of(atom.args[0]): value
        for (atom, tag), value in failure.values.items()
        if atom.kind == "load" and atom.name == tensor.name and atom.args[1] == tensor.element
    }
    count = math.prod(shape)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator).to(dtype)
    flat = torch.randint(0, 2 if other else 100, (count,), generator=generator).to(dtype)
    if fact is not None:
        flat = _filled(fact, values, count, chosen).to(dtype)
    for index, value in chosen.items():
        if 0 <= index < count:
            flat[index] = _wrapped(value, tensor.element, dtype)
    return flat.reshape(shape)


def _wrapped(value: int, size: int, dtype: Any) -> int:
    half = 1 << 8 * size - 1
    return (value + half) % (2 * half) - half if str(dtype).startswith("torch.int") else value % (2 * half)


def _filled(fact: Any, values: Values, count: int, chosen: Mapping[int, int]) -> Any:
    """Return elements for which a fact holds, with those of the counterexample."""
    import torch

    taken = {value for index, value in chosen.items() if 0 <= index < count}
    found = torch.zeros(count, dtype=torch.int64)
    for index in range(count):
        for value in (*range(count + len(taken) + 2), -1):
            fits = values.holds(fact.condition(term(index), term(value)))
            if fits and (not fact.distinct or value in fact.free or value not in taken):
                found[index] = value
                taken.add(value)
                break
    return found
