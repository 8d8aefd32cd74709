"""Calls of an op that is declared by its reference: schema, problem and outputs from the types of its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from workbench.errors import ArgumentError
from workbench.ops.declared.contract import Contract, several_of
from workbench.ops.declared.problem import DeclaredProblem, DeclaredTensors
from workbench.ops.dispatch import arch_of
from workbench.ops.library_op import Call
from workbench.ops.tensors.run_tensors import RunTensors
from workbench.ops.tensors.tensor_type import TensorType

_KINDS = {torch.Tensor | TensorType: "Tensor", bool: "bool", int | torch.SymInt: "SymInt", float: "float", str: "str"}
_KINDS |= {type(None): "Tensor?"}


class Calls:
    """The `workbench.ops.library_op.OpContract` of an op that is declared by its reference."""

    def __init__(self, contract: Contract):
        self._contract = contract
        self.name, self.in_place = contract.name, contract.in_place

    @property
    def parameters(self) -> tuple[str, ...]:
        """Parameters of the reference."""
        return self._contract.parameters

    def kinds(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the type of each argument in a ``torch.library`` schema, such as ``"Tensor"``."""
        return tuple(_torch_type(name, value) for name, value in arguments.items())

    def schema(self, arguments: Mapping[str, Any], outputs: int | None) -> str:
        """Return the ``torch.library`` schema for these arguments, which may have types in place of tensors."""
        if outputs is None:
            outputs = len(DeclaredProblem.of(self._contract, arguments).outputs)
        given = [
            f"Tensor(a{i}!) {name}" if name in self.in_place else f"{kind} {name}"
            for i, (name, kind) in enumerate(zip(arguments, self.kinds(arguments), strict=True))
        ]
        returned = {0: "()", 1: "Tensor"}.get(outputs, f"({', '.join(['Tensor'] * outputs)})")
        return f"({', '.join([*given, 'str variant', 'str? config'])}) -> {returned}"

    def call(self, arguments: Mapping[str, Any]) -> Call:
        """Return a call with new outputs; there is nothing to do if no written tensor has elements."""
        first = next((value for value in arguments.values() if isinstance(value, torch.Tensor)), torch.empty(0))
        problem = DeclaredProblem.of(self._contract, arguments, arch_of(first))
        outputs = {name: kind.empty(first.device) for name, kind in problem.outputs}
        tensors = DeclaredTensors(dict(arguments), outputs, self.in_place)
        return Call(problem, tensors, first, not any(one.numel() for one in tensors.out.values()))

    def returned(self, tensors: RunTensors) -> tuple[torch.Tensor, ...]:
        """Return the outputs among the tensors of a call, without arguments in place."""
        return tuple(one for name, one in tensors.judged().items() if name in tensors.fresh())

    def fake(self, arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return outputs like the reference's, computed on torch's fake tensors, which have no elements."""
        returned = self._contract.function(**{name: _stand_in(value) for name, value in arguments.items()})
        return tuple(torch.empty(one.shape, dtype=one.dtype, device=one.device) for one in several_of(returned))


def _stand_in(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _torch_type(name: str, value: Any) -> str:
    for kind, text in _KINDS.items():
        if isinstance(value, kind):
            return text
    allowed = "a tensor, a number, a bool, a string or None"
    raise ArgumentError(name, type(value).__name__, allowed, "Pass one of these.")
