"""Problems of declared ops, for which kernels are compiled and launched, and the tensors of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch

from workbench.ops.declared.contract import Contract
from workbench.ops.tensors.layout import placed
from workbench.ops.tensors.poison import poison
from workbench.ops.tensors.run_tensors import RunTensors
from workbench.ops.tensors.tensor_type import TensorType


@dataclass(frozen=True)
class DeclaredProblem:
    """Problem of a declared op: the types of its tensors, the values of its other arguments, and the architecture."""

    op: str
    arguments: tuple[tuple[str, Any], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    arch: str = "sm_80"

    layout = "any"
    features = ()

    @classmethod
    def of(cls, contract: Contract, arguments: Mapping[str, Any], arch: str = "sm_80") -> DeclaredProblem:
        """Return the problem of a call's arguments."""
        types = tuple(
            (name, TensorType.of(value) if isinstance(value, torch.Tensor) else value)
            for name, value in arguments.items()
        )
        return cls(contract.name, types, contract.output_types(types), arch)

    def tensors(self, arguments: Mapping[str, Any], in_place: tuple[str, ...], device: str = "cpu") -> DeclaredTensors:
        """Return the tensors of a run: the arguments copied to the device, and outputs that are yet to be written."""
        moved = {name: placed(one, device) if isinstance(one, torch.Tensor) else one for name, one in arguments.items()}
        tensors = DeclaredTensors(moved, {name: kind.empty(device) for name, kind in self.outputs}, in_place)
        tensors.renew()
        return tensors

    def without_memory(self, in_place: tuple[str, ...]) -> DeclaredTensors:
        """Return the tensors of a run on the ``meta`` device, which have types and no elements."""
        given = {name: kind.empty("meta") if isinstance(kind, TensorType) else kind for name, kind in self.arguments}
        return DeclaredTensors(given, {name: kind.empty("meta") for name, kind in self.outputs}, in_place)

    @property
    def dtype(self) -> str:
        """Dtype of the first tensor; ``"any"`` without a tensor."""
        tensors = [value for _, value in (*self.arguments, *self.outputs) if isinstance(value, TensorType)]
        return tensors[0].dtype if tensors else "any"

    @property
    def known(self) -> dict[str, Any]:
        """Arguments and outputs by name, for expressions."""
        return dict(self.outputs) | dict(self.arguments)

    def to_dict(self) -> dict:
        """Return plain values for a table of tuned configurations.

        Every size has an entry of its own; strides have one unless the tensor is contiguous. Real numbers are left out:
        no kernel is faster for another epsilon.
        """
        record: dict[str, Any] = {"arch": self.arch}
        for name, value in self.arguments:
            if isinstance(value, TensorType):
                record[f"{name}.dtype"] = value.dtype
                record |= {f"{name}.shape[{i}]": size for i, size in enumerate(value.shape)}
                if not value.is_contiguous():
                    record[f"{name}.stride"] = list(value.strides)
            elif not isinstance(value, float):
                record[name] = value
        return record


@dataclass
class DeclaredTensors(RunTensors):
    """Tensors of one run: arguments and outputs by name, and the ``workspace`` in which kernels pass values on."""

    arguments: dict[str, Any]
    outputs: dict[str, torch.Tensor]
    in_place: tuple[str, ...] = ()
    workspace: SimpleNamespace | None = None
    _before: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)

    @property
    def out(self) -> dict[str, torch.Tensor]:
        """Tensors that a variant writes, by name: outputs, then arguments in place."""
        return self.outputs | {name: self.arguments[name] for name in self.in_place}

    def by_name(self, name: str) -> Any:
        """Return an argument, an output, or a part of the workspace."""
        if self.workspace is not None and name in vars(self.workspace):
            return getattr(self.workspace, name)
        return self.outputs[name] if name in self.outputs else self.arguments[name]

    def members(self) -> list[Any]:
        """Return the values of all arguments and outputs."""
        return [*self.arguments.values(), *self.outputs.values()]

    def named(self) -> dict[str, torch.Tensor]:
        """Return the tensors among arguments and outputs by name, arguments first."""
        both = self.arguments | self.outputs
        return {name: one for name, one in both.items() if isinstance(one, torch.Tensor)}

    def judged(self) -> dict[str, torch.Tensor]:
        """Return the tensors that a case judges: outputs, then arguments in place."""
        return self.out

    def fresh(self) -> frozenset[str]:
        """Return the names of the outputs, which hold nothing before a run, unlike arguments in place."""
        return frozenset(self.outputs)

    def contiguous(self, names: Iterable[str]) -> DeclaredTensors:
        """Return these tensors with contiguous copies of those named arguments that are not contiguous."""
        copied = {
            name: one.contiguous()
            for name in names
            if isinstance(one := self.arguments[name], torch.Tensor) and not one.is_contiguous()
        }
        return replace(self, arguments=self.arguments | copied) if copied else self

    def renew(self) -> None:
        """Prepare a run: fill outputs with values that no correct kernel leaves, and reset arguments that it writes."""
        for name in self.in_place:
            if name in self._before:
                self.arguments[name].copy_(self._before[name])
            else:
                self._before[name] = self.arguments[name].clone()
        for out in self.outputs.values():
            poison(out)
