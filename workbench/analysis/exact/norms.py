"""Rules of torch's norms and normalizations on ring elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from workbench.analysis.exact import formulas
from workbench.analysis.exact.elements import add, element_of, function, multiply, negative, total
from workbench.analysis.exact.ring import NoExactRule, OperatorCall, RingTensor


def _standardized(x: torch.Tensor, along: tuple[int, ...], eps: float) -> torch.Tensor:
    """Return elements less their mean along some dimensions, divided by the root of their variance and eps."""
    away = add(x, negative(formulas.mean(x, along, True)))
    spread = add(formulas.mean(multiply(away, away), along, True), torch.tensor(element_of(eps)))
    return multiply(away, function("inverse_root", spread))


class Norms(OperatorCall):
    """One rule for each operator, of the operator's name and parameters."""

    def layer_norm(
        self, x: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
    ) -> RingTensor:
        """Normalize over the last dimensions, as `torch.nn.functional.layer_norm`."""
        a = self.read(x)
        dims = tuple(range(a.dim() - len(normalized_shape), a.dim()))
        weight, bias = (None if one is None else self.read(one) for one in (weight, bias))
        return self._scaled(_standardized(a, dims, eps), weight, bias)

    def rms_norm(
        self, x: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
    ) -> RingTensor:
        """Divide by the root mean square, as `torch.nn.functional.rms_norm`."""
        a = self.read(x)
        dims = tuple(range(a.dim() - len(normalized_shape), a.dim()))
        least = torch.finfo(self.first.standing_for).eps if eps is None else eps
        spread = add(formulas.mean(multiply(a, a), dims, True), torch.tensor(element_of(least)))
        found = multiply(a, function("inverse_root", spread))
        return self.wrapped(found if weight is None else multiply(found, self.read(weight)))

    def group_norm(
        self, x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
    ) -> RingTensor:
        """Normalize groups of channels, as `torch.nn.functional.group_norm`."""
        a = self.read(x)
        found = _standardized(a.reshape(a.shape[0], num_groups, -1), (2,), eps).view(a.shape)
        return self._scaled(found, self._channels(weight, a), self._channels(bias, a))

    def batch_norm(
        self, x: Any, running_mean: Any, running_var: Any, *, training: bool = False, eps: float = 1e-5, **scaled: Any
    ) -> RingTensor:
        """Normalize channels, as `torch.nn.functional.batch_norm`."""
        a = self.read(x)
        if training:
            if running_mean is not None:
                raise NoExactRule("torch.batch_norm with running statistics to change: exact comparison has no rule.")
            found = _standardized(a, (0, *range(2, a.dim())), eps)
        else:
            spread = add(self._channels(running_var, a), torch.tensor(element_of(eps)))
            found = multiply(add(a, negative(self._channels(running_mean, a))), function("inverse_root", spread))
        weight, bias = (self._channels(scaled.get(name), a) for name in ("weight", "bias"))
        return self._scaled(found, weight, bias)

    def norm(self, x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, **_: Any) -> RingTensor:
        """Return the 2-norm, as `torch.norm`."""
        return self.linalg_vector_norm(x, 2 if p in ("fro", None) else p, dim, keepdim)

    def linalg_norm(self, x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, **_: Any) -> RingTensor:
        """Return the 2-norm, as `torch.linalg.norm`."""
        order = 2 if ord in (None, "fro") else ord
        if ord not in (None, "fro") and len(formulas.dims(self.read(x), dim)) > 1:
            order = f"{ord!r} of a matrix"
        return self.linalg_vector_norm(x, order, dim, keepdim)

    def linalg_vector_norm(self, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> RingTensor:
        """Return the 2-norm over dimensions, as `torch.linalg.vector_norm`."""
        a = self.read(x)
        along = formulas.dims(a, dim)
        if ord in (2, None):
            return self.wrapped(function("root", total(multiply(a, a), along, keepdim)))
        if ord == 1:
            return self.wrapped(total(function("magnitude", a), along, keepdim))
        if ord in (math.inf, -math.inf):
            return self.wrapped(formulas.extreme(function("magnitude", a), along, keepdim, ord > 0))
        raise NoExactRule(f"torch.norm with the order {ord}: exact comparison has no rule for it.")

    def normalize(self, x: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: None = None) -> RingTensor:
        """Divide by the 2-norm, as `torch.nn.functional.normalize`."""
        length = self.read(self.linalg_vector_norm(x, p, dim, True))
        least = torch.tensor(element_of(eps))
        bounded = torch.where(function("rank", length) < function("rank", least), least, length)
        return self.wrapped(formulas.divided(self.read(x), bounded))

    def _channels(self, value: Any, x: torch.Tensor) -> Any:
        """Return one element for each channel of a tensor, to be broadcast over the rest."""
        return None if value is None else self.read(value).view(1, -1, *[1] * (x.dim() - 2))

    def _scaled(self, found: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> RingTensor:
        found = found if weight is None else multiply(found, weight)
        return self.wrapped(found if bias is None else add(found, bias))
