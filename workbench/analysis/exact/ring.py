"""Tensors of ring elements that programs in plain torch compute with, unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch

from workbench.analysis.exact.elements import elements
from workbench.errors import WorkbenchError


class NoExactRule(WorkbenchError):
    """Operator of torch for which exact comparison has no rule."""


class RingTensor(torch.Tensor):
    """Tensor of elements in int64 that stands for one of floats.

    ``used`` collects the names of the operators that have computed, over all tensors made from the same set.
    """

    standing_for: torch.dtype
    used: set[str]
    compute: ClassVar[Callable[[Callable, tuple, dict[str, Any]], Any]]  # operators.apply

    @staticmethod
    def of(tensor: torch.Tensor, used: set[str] | None = None) -> RingTensor:
        """Return the elements of a tensor of floats."""
        return RingTensor.made(elements(tensor), tensor.dtype, set() if used is None else used)

    @staticmethod
    def made(found: torch.Tensor, dtype: torch.dtype, used: set[str]) -> RingTensor:
        """Return a tensor of the given elements."""
        made = found.as_subclass(RingTensor)
        made.standing_for, made.used = dtype, used
        return made

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute an operator on elements. Raises NoExactRule for one that has no rule."""
        with torch._C.DisableTorchFunctionSubclass():
            return cls.compute(func, args, dict(kwargs or {}))


def raw(x: Any) -> Any:
    """Return the elements of a ring tensor as a plain tensor; anything else as it is."""
    return x.as_subclass(torch.Tensor) if isinstance(x, RingTensor) else x


def plain(value: Any) -> Any:
    """Return an operator's arguments, tuples and lists of them too, with elements as plain tensors."""
    if type(value) in (tuple, list):
        return type(value)(map(plain, value))
    return raw(value)
