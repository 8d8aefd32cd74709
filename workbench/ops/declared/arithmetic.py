"""Attainable accuracy of results, from the sums of a reference and the rounding of its intermediate tensors.

A sum of n terms in float32 has an error that grows with the root of n; a sum that is kept in 16 bits has errors of that
type's rounding after a few terms. A reference may do nothing but sums, products and selections. A 16-bit output may
then miss the exact answer by one unit in the last place, and by the error that the reference itself would have if each
of its intermediate tensors had the output's type. If the reference has functions that hardware approximates in 16 bits
(exp, tanh, rsqrt), the bounds of `workbench.ops.declared.contract.TOLERANCE` hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from workbench.base.dispatch_mode import DispatchMode

NARROW = (torch.float16, torch.bfloat16)
FLOAT32_SUM = 4 * 2.0**-24
"""Relative error of a float32 sum that counts as rounding, per square root of its number of terms."""

_SUMS: Mapping[str, Callable[..., int]] = {
    "sum": lambda out, x, *_: x.numel() // max(out.numel(), 1),
    "mean": lambda out, x, *_: x.numel() // max(out.numel(), 1),
    "cumsum": lambda out, x, dim, *_: x.shape[dim] if x.dim() else 1,
    "mm": lambda out, x, *_: x.shape[-1],
    "mv": lambda out, x, *_: x.shape[-1],
    "bmm": lambda out, x, *_: x.shape[-1],
    "dot": lambda out, x, *_: x.numel(),
    "vdot": lambda out, x, *_: x.numel(),
    "addmm": lambda out, _, x, *rest: x.shape[-1],
    "addmv": lambda out, _, x, *rest: x.shape[-1],
    "baddbmm": lambda out, _, x, *rest: x.shape[-1],
    "convolution": lambda out, x, weight, *_: weight[0].numel(),
    "index_add": lambda out, _, dim, index, *rest: index.numel(),
    "scatter_add": lambda out, _, dim, index, *rest: index.shape[dim],
}
"""Number of terms in each element of a result, by operation, as a function of (result, *arguments)."""
_EXACT = frozenset(_SUMS) | {
    "abs", "add", "alias", "amax", "amin", "arange", "as_strided", "bitwise_and", "bitwise_not", "bitwise_or", "cat",
    "clamp", "clamp_max", "clamp_min", "clone", "constant_pad_nd", "copy", "detach", "diagonal", "div", "empty",
    "empty_like", "eq", "expand", "fill", "flip", "full", "full_like", "gather", "ge", "gt", "index", "index_put",
    "index_select", "le", "lift_fresh", "lt", "masked_fill", "max", "maximum", "min", "minimum", "mul", "ne", "neg",
    "new_empty", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "permute", "relu", "repeat", "reshape",
    "roll", "rsub", "scalar_tensor", "scatter", "select", "select_scatter", "sign", "slice", "slice_scatter", "split",
    "square", "squeeze", "stack", "sub", "t", "threshold", "to_copy", "transpose", "tril", "triu", "unbind",
    "unsafe_view", "unsqueeze", "view", "where", "zero", "zeros", "zeros_like",
}  # fmt: skip


@dataclass
class Arithmetic:
    """Arithmetic of one run of a reference.

    Attributes:
        terms: number of terms of its longest sum; 1 without a sum.
        exact: True if it has sums, products and selections only.
        lost: errors of the elements of each 16-bit output, by name, if intermediate tensors had the output's type,
            beyond one rounding.
    """

    terms: int = 1
    exact: bool = True
    lost: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def of_sum(self) -> float:
        """Relative error that the longest sum may have in float32."""
        return FLOAT32_SUM * math.sqrt(self.terms)


class Recorded(DispatchMode):
    """Context that records torch's operations in an `Arithmetic`."""

    def __init__(self, noted: Arithmetic):
        super().__init__()
        self._noted = noted

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        """Compute the operation, and record it."""
        result = function(*args, **(kwargs or {}))
        name = _name(function)
        self._noted.exact &= name in _EXACT
        if name in _SUMS and isinstance(result, torch.Tensor) and result.is_floating_point():
            self._noted.terms = max(self._noted.terms, int(_SUMS[name](result, *args)))
        return result


class Rounded(DispatchMode):
    """Context in which every float64 tensor that torch computes is rounded to a 16-bit type."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self._dtype = dtype

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        """Compute the operation, and round a float64 result that is not a view."""
        result = function(*args, **(kwargs or {}))
        if function.is_view or not isinstance(result, torch.Tensor) or result.dtype != torch.float64:
            return result
        rounded = result.to(self._dtype).to(torch.float64)
        return result.copy_(rounded) if function._schema.is_mutable else rounded


def unit(wanted: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a type's unit in the last place at each element of a tensor of finite numbers."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(wanted.abs().clamp_min(info.smallest_normal)).exponent - 1
    return torch.ldexp(torch.full_like(wanted, info.eps), exponent)


def beyond_rounding(rounded: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return by how much each element's error exceeds half a unit in the last place; 0 if the error is not finite."""
    error = (rounded - wanted).abs().nan_to_num(0.0, 0.0) - unit(wanted.nan_to_num(0.0, 0.0, 0.0), dtype) / 2
    return error.clamp_min(0.0)


def _name(function: Any) -> str:
    return function._schema.name.rpartition("::")[2].strip("_")
