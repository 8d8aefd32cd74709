"""Tensors of ring elements that programs in plain torch compute with, unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeGuard, TypeVar

import torch

from workbench.analysis.exact.elements import element_of, elements, floats, function
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


_Kind = TypeVar("_Kind", bound=torch.Tensor)


def is_float(value: object) -> TypeGuard[torch.Tensor]:
    """Return True for a tensor of floats."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def ringed(value: Any, used: set[str]) -> Any:
    """Return a tensor of floats as a ring tensor; anything else as it is."""
    if isinstance(value, RingTensor):
        return RingTensor.made(raw(value), value.standing_for, used)
    return RingTensor.of(value, used) if is_float(value) else value


def as_floats(value: torch.Tensor) -> torch.Tensor:
    """Return a ring tensor as the floats that stand for it, and one of floats as it is.

    Raises ArgumentError for elements that stand for numbers of eight bits.
    """
    return floats(raw(value), value.standing_for) if isinstance(value, RingTensor) else value


def result_of(value: torch.Tensor) -> torch.Tensor:
    """Return the elements of a program's result, be it a ring tensor or a plain one."""
    return raw(value) if isinstance(value, RingTensor) else elements(value)


def held_in(value: Any, kind: type[_Kind]) -> Iterator[_Kind]:
    """Yield the tensors of a kind among an operator's arguments or results, in tuples, lists and mappings too."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from held_in(one, kind)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from held_in(one, kind)


def raw(x: Any) -> Any:
    """Return the elements of a ring tensor as a plain tensor; anything else as it is."""
    return x.as_subclass(torch.Tensor) if isinstance(x, RingTensor) else x


def plain(value: Any) -> Any:
    """Return an operator's arguments, tuples and lists of them too, with elements as plain tensors."""
    if type(value) in (tuple, list):
        return type(value)(map(plain, value))
    return raw(value)


class OperatorCall:
    """One call of an operator, and how its rule reads operands and makes results."""

    def __init__(self, args: tuple, kwargs: Mapping[str, Any], first: RingTensor):
        self.args, self.kwargs, self.first = args, kwargs, first

    def wrapped(self, found: Any) -> Any:
        """Return a result, or several, as ring tensors."""
        if isinstance(found, torch.Tensor):
            return RingTensor.made(found, self.kwargs.get("dtype") or self.first.standing_for, self.first.used)
        return type(found)(map(self.wrapped, found)) if type(found) in (tuple, list) else found

    @staticmethod
    def read(value: Any) -> torch.Tensor:
        """Return the elements of an operand: a tensor of either kind, or a number."""
        if isinstance(value, torch.Tensor):
            return raw(value) if isinstance(value, RingTensor) else elements(value)
        return torch.tensor(element_of(value))

    def unary(self, name: str, x: Any) -> RingTensor:
        """Return a function of each element of an operand."""
        return self.wrapped(function(name, self.read(x)))
