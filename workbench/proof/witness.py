"""Counterexamples: from Z3's values to a launch of the kernel, which the machine then runs with its checks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.launch.checking import check_kernel
from workbench.proof.evaluation import Values
from workbench.proof.facts import DataFact
from workbench.proof.queries import Failure
from workbench.proof.specification import Specification
from workbench.proof.tensors import TensorArgument
from workbench.proof.terms import Term, term
from workbench.proof.unknown import line_of
from workbench.proof.verdict import Counterexample
from workbench.ptx.tensor_map import TensorMap

if TYPE_CHECKING:
    from workbench.analysis.check_report import CheckReport

MOST_BYTES, MOST_THREADS = 1 << 26, 1 << 20
"""Largest launch that is run to confirm a counterexample."""
_LARGER, _DIVISIBLE = (100, 300), 64
"""Sizes that are tried where the smallest ones show nothing."""
FINDINGS = {
    "bounds": ("out-of-bounds", "misaligned", "write to read-only memory", "wrapped index"),
    "races": (
        "shared race", "warp race", "global race", "cp.async data read before wait",
        "write to global memory that a copy is reading", "write to shared memory that is being read",
        "missing fence.proxy.async", "missing fence.mbarrier_init", "async copy or product misuse",
        "missing wgmma.fence", "register of a running product touched",
    ),
    "barriers": (
        "divergent barrier", "barrier misuse", "mbarrier misuse", "deadlock",
        "missing fence.mbarrier_init", "shared race",
    ),
}  # fmt: skip
"""Findings of the machine that confirm that a property fails."""


def counterexample(
    made: Specification, failure: Failure, kernel: Any, run: bool, contents: Mapping[str, bytes] | None = None
) -> Counterexample:  # fmt: skip
    """Return the counterexample of a failure, confirmed by a run of the machine if ``run`` and it is not too large.

    If the run finds nothing, other elements are tried, as equal values hide a race, and larger sizes for the same
    reason; but not if ``contents`` says what the tensors hold.
    """
    lines = tuple(dict.fromkeys(map(line_of, failure.statements)))
    first, remark, report = Values(failure.values), "", None
    larger = [one for least in _LARGER if (one := _at_least(made, first, least)) is not None]
    tried = [(first, 0), (first, 1), *((one, 0) for one in larger)] if contents is None else [(first, 0)]
    for values, seed in tried if run else []:
        report, said = _run(made, failure, values, kernel, seed, contents or {})
        remark = remark or said
        if said.startswith("confirmed"):
            threads = _threads(failure) if values is first else ""
            return Counterexample(failure.kind, failure.text, _sizes(made, values), threads, lines, said, report)
    return Counterexample(failure.kind, failure.text, _sizes(made, first), _threads(failure), lines, remark, report)


def _sizes(made: Specification, values: Values) -> dict[str, int]:
    return {name: values.of(one) for name, one in made.sizes.items()}


def _at_least(made: Specification, values: Values, least: int) -> Values | None:
    """Return values with larger sizes for which all facts hold, perhaps about divisors; None if they do not."""
    for enough in (least, least + -least % _DIVISIBLE):
        sizes = {(one.atom, ""): max(values.of(one), enough) for one in made.sizes.values() if one.atom is not None}
        found = Values(sizes)
        if all(map(found.holds, made.facts)):
            return found
    return None


def _threads(failure: Failure) -> str:
    found: list[str] = []
    for tag in ("1", "2", ""):
        parts = []
        for kind, word in (("ctaid", "block"), ("tid", "thread")):
            shown = {place: value for place, value in failure.values.items() if place[0].kind == kind}
            own = {atom.name: value for (atom, its), value in shown.items() if its in (tag, "")}
            if own and any(its == tag for atom, its in failure.values if atom.kind in ("ctaid", "tid")):
                parts.append(f"{word} " + ", ".join(f"{name[-1]} = {value}" for name, value in sorted(own.items())))
        if parts and (tag or not found):
            found.append(" ".join(parts))
    return "; ".join(found)


def _run(
    made: Specification, failure: Failure, values: Values, kernel: Any, seed: int, contents: Mapping[str, bytes]
) -> tuple[CheckReport | None, str]:  # fmt: skip
    """Run a launch on the machine; return its report, and its message about the failure."""
    grid = tuple(values.of(one) for one in made.grid)
    total = sum(values.of(one.count) * one.element for one in made.tensors.values())
    if total > MOST_BYTES or math.prod(grid) * made.threads > MOST_THREADS:
        return None, "not run: too large"
    if any(one.apart for one in made.data.values()):
        return None, "not run: elements that are apart by lengths are not made"
    try:
        arguments = [
            _argument(made, value, stand_in, failure, values, seed, contents)
            for value, stand_in in zip(made.arguments, made.stand_ins, strict=False)
        ]
        shared = values.of(made.shared_bytes) - getattr(kernel, "compiled", kernel).dynamic_shared_bytes
        report = check_kernel(
            kernel, grid=grid, block=made.block, args=arguments, shared_bytes=shared, seconds_limit=20.0
        )
    except WorkbenchError as error:
        said = str(error).splitlines()[0][:200]
        found = next((one for one in FINDINGS[failure.kind] if re.search(rf"\b{re.escape(one)}(:| at )", said)), None)
        return None, f"confirmed by a run: {found}" if found else f"a run of it failed: {said}"
    kinds = [one.kind for one in report.findings if one.kind in FINDINGS[failure.kind]]
    return (
        report,
        f"confirmed by a run: {kinds[0]}" if kinds else "not confirmed: a run finds nothing of the kind",
    )


def _argument(
    made: Specification, value: Term | None, stand_in: Any, failure: Failure, values: Values, seed: int,
    contents: Mapping[str, bytes],
) -> Any:  # fmt: skip
    if value is None:
        return stand_in
    atom = value.atom
    if atom is not None and atom.kind == "pointer":
        mapped = made.maps.get(atom.name)
        if mapped is not None:
            tensor = _tensor(made, mapped.tensor, failure, values, seed, contents)
            return TensorMap.of(tensor, mapped.box, **mapped.options)
        tensor = made.tensors.get(atom.name)
        return None if tensor is None else _tensor(made, tensor, failure, values, seed, contents)
    return values.of(value)


def _tensor(
    made: Specification, tensor: TensorArgument, failure: Failure, values: Values, seed: int,
    contents: Mapping[str, bytes],
) -> Any:  # fmt: skip
    """Make a tensor of its content, or with elements that the counterexample needs and others for which facts hold."""
    import torch

    shape = [values.of(one) for one in tensor.shape]
    dtype = getattr(torch, tensor.dtype)
    generator = torch.Generator().manual_seed(len(tensor.name) + seed)
    count = math.prod(shape)
    content = contents.get(tensor.name, b"")
    if content and len(content) == count * dtype.itemsize:
        return torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator).to(dtype)
    chosen = {
        Values(failure.values, tag).of(atom.args[0]): value
        for (atom, tag), value in failure.values.items()
        if atom.kind == "load" and atom.name == tensor.name and atom.args[1] == tensor.element
    }
    fact = made.data.get(tensor.name)
    if fact is not None:
        flat = torch.tensor(_filled(fact, values, count, chosen)).to(dtype)
    else:
        flat = torch.randint(0, 2 if seed else 100, (count,), generator=generator).to(dtype)
    for index, value in chosen.items():
        if 0 <= index < count:
            flat[index] = _wrapped(value, tensor.element, dtype)
    return flat.reshape(shape)


def _wrapped(value: int, size: int, dtype: Any) -> int:
    half = 1 << 8 * size - 1
    return (value + half) % (2 * half) - half if str(dtype).startswith("torch.int") else value % (2 * half)


def _filled(fact: DataFact, values: Values, count: int, chosen: Mapping[int, int]) -> list[int]:
    """Return elements for which a fact holds, beside those of the counterexample."""
    taken = {value for index, value in chosen.items() if 0 <= index < count}
    found = [0] * count
    for index in range(count):
        for value in (*range(count + len(taken) + 2), -1):
            fits = not fact.distinct or value in fact.free or value not in taken
            if fits and values.holds(fact.condition(term(index), term(value))):
                found[index] = value
                taken.add(value)
                break
    return found
