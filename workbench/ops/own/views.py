"""Views of a case's inputs: arguments of the same shapes that lie otherwise in memory.

A variant computes with them as torch does, or its declaration refuses them; see `workbench.ops.own.layout`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from workbench.ops.own.layout import repeats
from workbench.ops.own.problem import Problem, Tensors
from workbench.ops.own.tensor_type import TensorType
from workbench.ops.values import Check, Config

_GAP = 16
"""Elements between rows: no kernel that copies vectors needs another address."""


def views_of(problem: Problem, in_place: Collection[str]) -> dict[str, Problem]:
    """Return the problems of a case's shapes with tensors transposed, sliced out of wider ones, and expanded."""
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
    """One row for all; not of what is written, nor of indices, which may have to differ."""
    if written or not kind.dim() or not getattr(torch, kind.dtype).is_floating_point:
        return kind
    return replace(kind, strides=(0, *kind.strides[1:]))


def _noise(count: int, kind: TensorType) -> torch.Tensor:
    """Elements of any bits, which a kernel that adds to them changes."""
    generator = torch.Generator().manual_seed(0)
    size = (count * kind.element_size(),)
    return torch.randint(256, size, dtype=torch.uint8, generator=generator).view(getattr(torch, kind.dtype))


def fill(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Give a tensor of any strides the elements of another of its shape, which repeats what the tensor repeats."""
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
    """A case whose tensors lie as those of ``viewed_problem``, with an answer of its own where that repeats rows."""

    case: Any
    viewed_problem: Problem

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> Problem:
        """The case's problem with these tensors."""
        return replace(self.viewed_problem, arch=arch)

    def inputs(self, problem: Problem, device: str = "cpu") -> Tensors:
        """Fresh tensors of a run; what lies between their rows is noise."""
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
        """The case's, with one row for all where the problem has one."""
        found = dict(self.case.arguments())
        for name, kind in self.viewed_problem.arguments:
            if isinstance(kind, TensorType) and kind.strides[:1] == (0,) and kind.numel():
                found[name] = found[name][:1].expand(kind.shape)
        return found

    def check(self, out: Mapping[str, torch.Tensor]) -> Check:
        """The verdict on outputs."""
        contract = self.case.contract
        return contract.check(out, contract.answer(self._arguments()))
