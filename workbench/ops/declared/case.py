"""Cases of declared ops: named inputs with a known answer."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from workbench.errors import ArgumentError
from workbench.ops.declared.arithmetic import Arithmetic
from workbench.ops.declared.contract import Contract, Remade
from workbench.ops.declared.elsewhere import Elsewhere
from workbench.ops.declared.problem import DeclaredProblem, DeclaredTensors
from workbench.ops.declared.shapes import reshaped
from workbench.ops.declared.views import ViewedCase, views_of
from workbench.ops.tensors.data_facts import check_facts
from workbench.ops.tensors.inputs import Input, check_given, digest, make, recorded
from workbench.ops.tensors.tensor_type import TensorType
from workbench.ops.values import Check, Config


@dataclass(frozen=True, eq=False)
class DeclaredCase(Remade):
    """A case of a declared op: descriptions of its inputs, the sizes that they name, and the seed that draws them."""

    contract: Contract
    name: str
    given: Mapping[str, Any]
    sizes: Mapping[str, int]
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in self.given.items():
            check_given(name, value)
        missing = [name for name in self.contract.parameters if name not in self.given]
        if missing:
            what = f"nothing for {', '.join(missing)}"
            remedy = f"case({self.name!r}, ..., {missing[0]}=wb.randn(...))"
            raise ArgumentError(f"case {self.name!r}", what, ", ".join(self.contract.parameters), remedy)
        for name, size in self.sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                remedy = "What is not an argument of the op is a size of its inputs."
                raise ArgumentError(f"case size {name!r}", repr(size), "a whole number, or several", remedy)

    @property
    def facts(self) -> Mapping[str, str]:
        """Facts of the op about the elements of its inputs, by name."""
        return self.contract.facts

    @property
    def label(self) -> str:
        """Name of the case with the types of its tensors: ``wide x float16[256, 8192]``."""
        tensors = [f"{name} {value}" for name, value in self._types if isinstance(value, TensorType)]
        return " ".join([self.name, ", ".join(tensors)]).strip()

    def override(self, **changes: Any) -> Self:
        """Return the case with another ``name`` or ``seed``, other sizes or other inputs.

        Raises ArgumentError for a name that the case does not have.
        """
        kept = {name: changes.pop(name) for name in ("name", "seed") if name in changes}
        unknown = [name for name in changes if name not in self.sizes and name not in self.given]
        if unknown:
            known = ", ".join(["name", "seed", *self.sizes, *self.given])
            first = next(iter(self.given))
            remedy = f'A size is declared with the case: {first}=wb.randn(64, "cols"), cols=1024.'
            raise ArgumentError("override", unknown[0], known, f"Name one of these. {remedy}")
        sizes = {name: changes.get(name, size) for name, size in self.sizes.items()}
        given = {name: changes.get(name, value) for name, value in self.given.items()}
        return replace(self, sizes=sizes, given=given, **kept)

    @functools.cached_property
    def _types(self) -> tuple[tuple[str, Any], ...]:
        types = []
        for name, value in self.given.items():
            if isinstance(value, Input):
                value = value.type(self.sizes)
            elif callable(value):
                value, _ = self._made[name]
            types.append((name, value))
        return tuple(sorted(types, key=lambda item: self.contract.parameters.index(item[0])))

    @functools.cached_property
    def _made(self) -> dict[str, tuple[TensorType, int]]:
        """Types of the inputs that functions make, with digests of their elements, by name."""
        made = {name: make(one, name, self.sizes, self.seed) for name, one in self.given.items() if callable(one)}
        return {name: (TensorType.of(tensor), digest(tensor)) for name, tensor in made.items()}

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> DeclaredProblem:
        """Return the problem to solve, which no configuration changes."""
        return DeclaredProblem(self.contract.name, self._types, self.contract.output_types(self._types), arch)

    def arguments(self) -> dict[str, Any]:
        """Make the op's arguments on the CPU, with the same values each time."""
        made = {name: make(self.given[name], name, self.sizes, self.seed) for name in self.contract.parameters}
        check_facts(self.contract.facts, made)
        return made

    def inputs(self, problem: DeclaredProblem, device: str = "cpu") -> DeclaredTensors:
        """Make fresh tensors for a run; those on ``meta`` have no elements."""
        if device == "meta":
            return problem.without_memory(self.contract.in_place)
        return problem.tensors(self.arguments(), self.contract.in_place, device)

    def viewed(self) -> dict[str, ViewedCase]:
        """Return views of the case by name, with tensors transposed, sliced out of wider ones, or expanded."""
        views = views_of(self.problem(), self.contract.in_place)
        return {name: ViewedCase(self, problem) for name, problem in views.items()}

    def reshaped(self) -> dict[str, DeclaredCase]:
        """Return the case at other sizes, by the names of `workbench.ops.declared.shapes.SIZES`."""
        return reshaped(self)

    @property
    def sizes_and_inputs(self) -> tuple[Mapping[str, int], Mapping[str, Any]]:
        """All that says which shapes the inputs have."""
        return self.sizes, self.given

    def elsewhere(self, change: str) -> Elsewhere:
        """Return the case with its values changed, by one of `workbench.ops.declared.elsewhere.CHANGES`."""
        return Elsewhere(self, change)

    def __reduce__(self) -> tuple:
        """Return the init fields and the types of the tensors, which another process need not find again."""
        return *super().__reduce__(), {"_types": self._types}

    @functools.cached_property
    def _answer(self) -> tuple[dict[str, torch.Tensor], Arithmetic]:
        arguments = self.arguments()
        for name, (_, before) in self._made.items():
            if digest(arguments[name]) != before:
                remedy = f"Draw with its generator: {name}=lambda generator: torch.rand(3, generator=generator)."
                allowed = "a function that makes the same tensor each time"
                raise ArgumentError(
                    f"input {name!r}", "a function that returns other values each time", allowed, remedy
                )
        return self.contract.recorded_answer(arguments)

    def reference(self) -> dict[str, torch.Tensor]:
        """Return the reference's results in float64, by the names of the outputs."""
        return self._answer[0]

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the reference's results, which are kept."""
        return sum(one.nbytes for one in self.reference().values())

    def result_types(self) -> dict[str, torch.dtype]:
        """Return the dtype of each result by name."""
        return self.contract.result_types(self.arguments())

    @property
    def arithmetic(self) -> Arithmetic:
        """Sums that the reference takes on these inputs."""
        return self._answer[1]

    def check(self, out: Mapping[str, torch.Tensor]) -> Check:
        """Return the verdict on the results of a run, ``tensors.out``."""
        return self.contract.check(out, *self._answer)

    def minimum_bytes(self, problem: DeclaredProblem) -> int:
        """Return the bytes that must cross memory: by the op's own count, else inputs and outputs once each."""
        if self.contract.minimum_bytes is not None:
            return int(self.contract.minimum_bytes(**dict(problem.arguments)))
        read = sum(kind.nbytes for _, kind in problem.arguments if isinstance(kind, TensorType))
        written = sum(kind.nbytes for _, kind in problem.outputs)
        in_place = sum(kind.nbytes for name, kind in problem.arguments if name in self.contract.in_place)
        return read + written + in_place

    def to_dict(self) -> dict:
        """Return plain values that identify the case: a result holds for the same inputs and the same reference."""
        return {
            "op": self.contract.name,
            "name": self.name,
            "seed": self.seed,
            "sizes": dict(self.sizes),
            "inputs": {name: recorded(value) for name, value in self.given.items()},
            "reference": self.contract.stated,
        }

    def __repr__(self) -> str:
        return f"<case {self.label} of {self.contract.name}>"
