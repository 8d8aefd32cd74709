"""Views of a case's inputs: arguments of the same shapes with other strides.

A variant must compute with them as torch does, or refuse them by its declaration; see `workbench.ops.tensors.layout`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from workbench.ops.declared.problem import DeclaredProblem, DeclaredTensors
from workbench.ops.tensors.layout import repeats
from workbench.ops.tensors.tensor_type import TensorType
from workbench.ops.values import Check, Config

_GAP = 16
"""Elements between rows: so many keep the alignment that a kernel with vector loads needs."""


def views_of(problem: DeclaredProblem, in_place: Collection[str]) -> dict[str, DeclaredProblem]:
    """Return views of a problem by name, with tensors transposed, sliced out of wider ones, or expanded."""
    found = {}
    for name, laid in (("transposed", _transposed), ("sliced", _sliced), ("expanded", _expanded)):
        arguments = tuple(
            (one, laid(kind, one in in_place) if isinstance(kind, TensorType) else kind)
            for one, kind in problem.arguments
        )
        if arguments != problem.arguments:
            found[name] = replace(problem, arguments=arguments)
    return found


def _transposed(kind: TensorType, written: bool) -> TensorType:
    columns = TensorType.contiguous(kind.dtype, kind.shape[::-1])
    return replace(kind, strides=columns.strides[::-1])


def _sliced(kind: TensorType, written: bool) -> TensorType:
    if kind.dim() < 2:
        return replace(kind, strides=tuple(2 * one for one in kind.strides))
    wider = TensorType.contiguous(kind.dtype, (*kind.shape[:-1], kind.shape[-1] + _GAP))
    return replace(kind, strides=wider.strides)


def _expanded(kind: TensorType, written: bool) -> TensorType:
    """Return the type with one row for all, unless the tensor is written or integer: indices may have to differ."""
    if written or not kind.dim() or not getattr(torch, kind.dtype).is_floating_point:
        return kind
    return replace(kind, strides=(0, *kind.strides[1:]))


def _noise(count: int, kind: TensorType) -> torch.Tensor:
    """Make elements of random bits, which show in the results of a kernel that reads them by mistake."""
    generator = torch.Generator().manual_seed(0)
    size = (count * kind.element_size(),)
    return torch.randint(256, size, dtype=torch.uint8, generator=generator).view(getattr(torch, kind.dtype))


def fill(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Copy the elements of ``value`` to a tensor of the same shape and any strides.

    Elements that share an address in the tensor must be equal in ``value``.
    """
    if not repeats(tensor.shape, tensor.stride()):
        tensor.copy_(value)
    elif tensor.stride() == value.stride():
        reach = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        tensor.as_strided((reach,), (1,)).copy_(value.as_strided((reach,), (1,)))
    else:
        for dim, step in enumerate(tensor.stride()):
            if step == 0:
                tensor, value = tensor.narrow(dim, 0, 1), value.narrow(dim, 0, 1)
        tensor.copy_(value)


@dataclass(frozen=True)
class ViewedCase:
    """A case whose tensors have the strides of ``viewed_problem``; repeated rows give it an answer of its own."""

    case: Any
    viewed_problem: DeclaredProblem

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> DeclaredProblem:
        """Return the problem with the view's strides."""
        return replace(self.viewed_problem, arch=arch)

    def inputs(self, problem: DeclaredProblem, device: str = "cpu") -> DeclaredTensors:
        """Make fresh tensors for a run, with noise between their rows."""
        if device == "meta":
            return problem.without_memory(self.case.contract.in_place)
        laid = dict(self._arguments())
        for name, kind in problem.arguments:
            if isinstance(kind, TensorType) and not kind.is_contiguous():
                reach = 1 + sum((size - 1) * step for size, step in zip(kind.shape, kind.strides, strict=True))
                tensor = _noise(reach, kind).as_strided(kind.shape, kind.strides)
                fill(tensor, laid[name])
                laid[name] = tensor
        return problem.tensors(laid, self.case.contract.in_place, device)

    def _arguments(self) -> dict[str, Any]:
        """Return the case's arguments, with the first row in place of all rows where the problem expands a tensor."""
        found = dict(self.case.arguments())
        for name, kind in self.viewed_problem.arguments:
            if isinstance(kind, TensorType) and kind.strides[:1] == (0,) and kind.numel():
                found[name] = found[name][:1].expand(kind.shape)
        return found

    def check(self, out: Mapping[str, torch.Tensor]) -> Check:
        """Return the verdict on the results of a run."""
        contract = self.case.contract
        return contract.check(out, contract.answer(self._arguments()))
