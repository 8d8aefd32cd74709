"""Proofs of a description's kernels, from PTX and numbers, in the process that no candidate's code enters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from workbench.analysis.seen_launches import RESERVED, PassedArray, SeenLaunch, with_triton
from workbench.errors import WorkbenchError
from workbench.judge.description import BYTES, Argument, Description, KernelLaunch
from workbench.ops.tensors.checks import dtype_name
from workbench.ptx import Program
from workbench.toolchain.kernel import CompiledKernel

if TYPE_CHECKING:
    from workbench.proof.launches import LaunchProof

EFFORT = 12_000_000
"""Resources of one proof, in Z3's own count: about six seconds."""
_MOST_KNOWN = 256
_APART = 1 << 44
"""Distance of the addresses that stand for allocations."""


class LoadedPrograms(Protocol):
    """Protocol of the decoded programs of a description."""

    @property
    def programs(self) -> Sequence[Program]:
        """Decoded programs, in the description's order."""

    def kernel(self, one: KernelLaunch) -> CompiledKernel:
        """Return the kernel of a launch."""


_known: dict[tuple[object, ...], Any] = {}
"""Proofs of families of launches, for the cases and candidates to come."""


def proved(
    description: Description, loaded: LoadedPrograms, shapes: Mapping[str, Mapping[str, Any]], facts: Mapping[str, str]
) -> list[dict]:
    """Prove the kernels of a description; return what a verdict tells of each.

    ``shapes`` has, by the name of other sizes, tensors without elements by
    their names; "" stands for the case's own. ``facts`` are those of the op, by argument. Raises MissingToolError
    without Z3.
    """
    from workbench.proof.launches import prove_launches

    if len(_known) > _MOST_KNOWN:
        _known.clear()
    launches = [
        one for name, tensors in shapes.items()
        for one in _seen(description if not name else description.sizes[name], loaded, tensors)
    ]  # fmt: skip
    found = prove_launches(launches, effort=EFFORT, known=_known, facts=facts)
    return records(found)


def records(proofs: Iterable[LaunchProof]) -> list[dict[str, str]]:
    """Return proofs as plain values, for a verdict."""
    return [
        {"kernel": one.kernel, "status": one.status, "scope": one.scope, "text": str(one), "line": one.line,
         "example": str(one.counterexample or "")}
        for one in proofs
    ]  # fmt: skip


def unproved(message: str) -> list[dict[str, str]]:
    """Return the record of proofs that ended with an error."""
    text = f"no proof: {message}"
    return [{"kernel": "", "status": "unknown", "scope": "", "text": text, "line": text, "example": ""}]


def refuted(proofs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the fields of the verdict on a kernel that a proof refutes, or None."""
    first = next((one for one in proofs if one["status"] == "refuted"), None)
    if first is None:
        return None
    return {
        "outcome": "refuted",
        "message": f"right on the case's own inputs, but {first['kernel']}: {first['example']}",
    }


def _seen(description: Description, loaded: LoadedPrograms, tensors: Mapping[str, Any]) -> Iterator[SeenLaunch]:
    """Yield the launches of a description, with what is known of the tensors."""
    arrays = dict(_arrays(description, tensors))
    for one in description.launches:
        kernel = loaded.kernel(one)
        values = [_value(argument, parameter.type, arrays) for argument, parameter in _pairs(one, kernel)]
        values += [0] * (len(kernel.parameters) - len(values))  # scratch memory
        named = _named(kernel, one)
        by_llvm = loaded.programs[one.program].module.by_llvm
        made, shared = with_triton(replace(kernel, parameters=named), by_llvm, one.block, one.shared_bytes)
        yield SeenLaunch(made, _three(one.grid), _three(one.block), shared, tuple(values))


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = [*sizes, 1, 1][:3]
    return x, y, z


def _pairs(one: KernelLaunch, kernel: CompiledKernel) -> Iterator[tuple[Argument, Any]]:
    return zip(one.arguments, kernel.parameters, strict=False)


def _named(kernel: CompiledKernel, one: KernelLaunch) -> tuple[Any, ...]:
    """Return the parameters with names, each used once: tensors have theirs, numbers those that the candidate says."""
    tensors = {argument.name for argument in one.arguments}
    found, taken = [], {*RESERVED}
    for at, parameter in enumerate(kernel.parameters):
        name = one.arguments[at].name if at < len(one.arguments) else None
        if name is None and at < len(one.names) and one.names[at] not in tensors:
            name = one.names[at]
        chosen = name if name is not None and name.isidentifier() and name not in taken else f"p{at}"
        taken.add(chosen)
        found.append(replace(parameter, name=chosen))
    return tuple(found)


def _arrays(description: Description, tensors: Mapping[str, Any]) -> Iterator[tuple[str, PassedArray]]:
    """Yield the tensors and workspaces by name; tensors of one storage have addresses in one allocation."""
    storages: dict[int, int] = {}
    for name, one in tensors.items():
        number = storages.setdefault(one.untyped_storage()._cdata, len(storages) + 1)
        whole = one.is_contiguous() or name in description.contiguous
        size = (
            one.numel() if whole else 1 + sum((n - 1) * step for n, step in zip(one.shape, one.stride(), strict=True))
        )
        address = _APART * number + one.storage_offset() * one.element_size()
        shape = tuple(map(int, one.shape)) if whole else ()
        yield name, PassedArray(address, size * one.element_size(), dtype_name(one.dtype), shape)
    for number, part in enumerate(description.workspace, len(storages) + 1):
        count = math.prod(part.shape)
        yield part.name, PassedArray(_APART * number, count * BYTES[part.dtype], part.dtype, part.shape)


def _value(
    argument: Argument, kind: str, arrays: Mapping[str, PassedArray]
) -> int | float | bytes | PassedArray | None:
    if argument.kind == "tensor":
        if argument.value not in arrays:
            raise WorkbenchError(f"no tensor has the name {argument.value[:60]!r}")
        return arrays[argument.value]
    if argument.kind == "number":
        return float(argument.value) if kind[0] == "f" else int(argument.value)
    return None if argument.kind == "null" else argument.value if argument.kind == "bytes" else b""
