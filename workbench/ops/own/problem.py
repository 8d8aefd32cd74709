"""What the kernels of an own op are compiled and launched for, and the tensors of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch

from workbench.ops.element_types import poison
from workbench.ops.own.contract import Contract
from workbench.ops.own.layout import placed
from workbench.ops.own.tensor_type import TensorType
from workbench.ops.run_tensors import RunTensors


@dataclass(frozen=True)
class Problem:
    """Types of the arguments (tensors described, others as values) and of the outputs, and the architecture."""

    op: str
    arguments: tuple[tuple[str, Any], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    arch: str = "sm_80"

    layout = "any"
    features = ()

    @classmethod
    def of(cls, contract: Contract, arguments: Mapping[str, Any], arch: str = "sm_80") -> Problem:
        """The problem of a call's arguments."""
        types = tuple(
            (name, TensorType.of(value) if isinstance(value, torch.Tensor) else value)
            for name, value in arguments.items()
        )
        return cls(contract.name, types, contract.output_types(types), arch)

    def tensors(self, arguments: Mapping[str, Any], in_place: tuple[str, ...], device: str = "cpu") -> Tensors:
        """Return the tensors of a run on these arguments, copied to the device, with outputs that are yet to be
        written."""
        moved = {name: placed(one, device) if isinstance(one, torch.Tensor) else one for name, one in arguments.items()}
        tensors = Tensors(moved, {name: kind.empty(device) for name, kind in self.outputs}, in_place)
        tensors.renew()
        return tensors

    def without_memory(self, in_place: tuple[str, ...]) -> Tensors:
        """Return the tensors of a run that have types and no elements."""
        given = {name: kind.empty("meta") if isinstance(kind, TensorType) else kind for name, kind in self.arguments}
        return Tensors(given, {name: kind.empty("meta") for name, kind in self.outputs}, in_place)

    @property
    def dtype(self) -> str:
        """That of the first tensor."""
        tensors = [value for _, value in (*self.arguments, *self.outputs) if isinstance(value, TensorType)]
        return tensors[0].dtype if tensors else "any"

    @property
    def known(self) -> dict[str, Any]:
        """What expressions may name of it: arguments and outputs."""
        return dict(self.outputs) | dict(self.arguments)

    def to_dict(self) -> dict:
        """Plain values for a table of tuned configurations: every size by itself, strides where they are not those of
        a contiguous tensor. Real numbers are left out: no kernel is faster for another epsilon."""
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
class Tensors(RunTensors):
    """The arguments of one run by name, its outputs, and what its kernels leave for each other in ``workspace``."""

    arguments: dict[str, Any]
    outputs: dict[str, torch.Tensor]
    in_place: tuple[str, ...] = ()
    workspace: SimpleNamespace | None = None
    _before: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)

    @property
    def out(self) -> dict[str, torch.Tensor]:
        """Everything that a variant writes: outputs, then arguments in place."""
        return self.outputs | {name: self.arguments[name] for name in self.in_place}

    def by_name(self, name: str) -> Any:
        """An argument, output, or part of the workspace."""
        if self.workspace is not None and name in vars(self.workspace):
            return getattr(self.workspace, name)
        return self.outputs[name] if name in self.outputs else self.arguments[name]

    def members(self) -> list[Any]:
        """Every tensor and number."""
        return [*self.arguments.values(), *self.outputs.values()]

    def named(self) -> dict[str, torch.Tensor]:
        """Every tensor by its name, arguments first."""
        both = self.arguments | self.outputs
        return {name: one for name, one in both.items() if isinstance(one, torch.Tensor)}

    def judged(self) -> dict[str, torch.Tensor]:
        """Outputs, then arguments in place."""
        return self.out

    def fresh(self) -> frozenset[str]:
        """The outputs: arguments in place hold what they are given."""
        return frozenset(self.outputs)

    def contiguous(self, names: Iterable[str]) -> Tensors:
        """These tensors, of the named arguments contiguous copies where they are not contiguous."""
        copied = {
            name: one.contiguous()
            for name in names
            if isinstance(one := self.arguments[name], torch.Tensor) and not one.is_contiguous()
        }
        return replace(self, arguments=self.arguments | copied) if copied else self

    def renew(self) -> None:
        """What a run finds: outputs that no right kernel leaves so, and the arguments that it writes as they were."""
        for name in self.in_place:
            if name in self._before:
                self.arguments[name].copy_(self._before[name])
            else:
                self._before[name] = self.arguments[name].clone()
        for out in self.outputs.values():
            poison(out)
