"""Rules of torch's operators on ring elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from workbench.analysis.exact import formulas
from workbench.analysis.exact.elements import (
    MODULUS,
    UNDEFINED,
    add,
    element_of,
    function,
    matrix_product,
    multiply,
    negative,
    table,
    total,
)
from workbench.analysis.exact.norms import Norms
from workbench.analysis.exact.ring import NoExactRule, OperatorCall, RingTensor, plain, raw

_TINY = 1e-30


def ruled(name: str, call: OperatorCall) -> Any:
    """Return the result of an operator's rule. Raises NoExactRule if it has none."""
    rule = vars(_Rules).get(name) or vars(Norms).get(name)
    if rule is None:
        raise NoExactRule(f"torch.{name}: exact comparison has no rule for this operator.")
    if not call.first.standing_for.is_floating_point:
        raise NoExactRule(f"torch.{name} of floats' bits: exact comparison has no rule for it.")
    call.first.used.add(name)
    return rule(_Rules(call.args, call.kwargs, call.first), *call.args, **call.kwargs)


class _Rules(Norms):
    """One rule for each operator, of the operator's name and parameters."""

    def add(self, a: Any, b: Any, *, alpha: float = 1, out: None = None) -> RingTensor:
        return self.wrapped(add(self.read(a), self.read(b) if alpha == 1 else formulas.scaled(self.read(b), alpha)))

    def sub(self, a: Any, b: Any, *, alpha: float = 1) -> RingTensor:
        return self.add(a, self.wrapped(negative(self.read(b))), alpha=alpha)

    def rsub(self, a: Any, b: Any) -> RingTensor:
        return self.sub(b, a)

    def mul(self, a: Any, b: Any) -> RingTensor:
        return self.wrapped(multiply(self.read(a), self.read(b)))

    def div(self, a: Any, b: Any, *, rounding_mode: str | None = None) -> RingTensor:
        if rounding_mode is not None:
            raise NoExactRule("torch.div with a rounding_mode: exact comparison has no rule for it.")
        return self.wrapped(formulas.divided(self.read(a), self.read(b)))

    def rdiv(self, a: Any, b: Any) -> RingTensor:
        return self.div(b, a)

    def neg(self, x: Any) -> RingTensor:
        return self.wrapped(negative(self.read(x)))

    def reciprocal(self, x: Any) -> RingTensor:
        return self.unary("inverse", x)

    def square(self, x: Any) -> RingTensor:
        return self.mul(x, x)

    def pow(self, x: Any, exponent: Any) -> RingTensor:
        if isinstance(x, int | float) and x == 2:
            return self.unary("power_of_two", exponent)
        roots = {0.5: "root", -0.5: "inverse_root", -1: "inverse"}
        if exponent in roots:
            return self.unary(roots[exponent], x)
        if not isinstance(exponent, int | float) or exponent != int(exponent) or not 0 <= exponent <= 64:
            raise NoExactRule(f"torch.pow with the exponent {exponent!r}: exact comparison has no rule for it.")
        found = torch.ones_like(self.read(x))
        for _ in range(int(exponent)):
            found = multiply(found, self.read(x))
        return self.wrapped(found)

    def sqrt(self, x: Any) -> RingTensor:
        return self.unary("root", x)

    def rsqrt(self, x: Any) -> RingTensor:
        return self.unary("inverse_root", x)

    def exp2(self, x: Any) -> RingTensor:
        return self.unary("power_of_two", x)

    def exp(self, x: Any) -> RingTensor:
        return self.wrapped(formulas.exp(self.read(x)))

    def expm1(self, x: Any) -> RingTensor:
        return self.sub(self.exp(x), 1)

    def log2(self, x: Any) -> RingTensor:
        return self.unary("logarithm", x)

    def log(self, x: Any) -> RingTensor:
        return self.wrapped(formulas.log(self.read(x)))

    def log1p(self, x: Any) -> RingTensor:
        return self.wrapped(formulas.log(add(self.read(x), torch.tensor(1))))

    def softplus(self, x: Any, beta: float = 1, threshold: float = 20) -> RingTensor:
        if beta != 1:
            raise NoExactRule("torch.softplus with a beta: exact comparison has no rule for it.")
        return self.wrapped(formulas.log(add(formulas.exp(self.read(x)), torch.tensor(1))))

    def tanh(self, x: Any) -> RingTensor:
        return self.unary("tanh", x)

    def sin(self, x: Any) -> RingTensor:
        return self.unary("sine", x)

    def cos(self, x: Any) -> RingTensor:
        return self.unary("cosine", x)

    def erf(self, x: Any) -> RingTensor:
        return self.wrapped(formulas.erf(self.read(x)))

    def sigmoid(self, x: Any) -> RingTensor:
        return self.wrapped(function("inverse", add(torch.tensor(1), formulas.exp(negative(self.read(x))))))

    def silu(self, x: Any, inplace: bool = False) -> RingTensor:
        return self.mul(x, self.sigmoid(x))

    def gelu(self, x: Any, approximate: str = "none") -> RingTensor:
        a = self.read(x)
        if approximate == "tanh":
            cube = multiply(multiply(a, a), a)
            share = function("tanh", formulas.scaled(add(a, formulas.scaled(cube, 0.044715)), 0.7978845608028654))
        else:
            share = formulas.erf(formulas.scaled(a, math.sqrt(0.5)))
        return self.wrapped(multiply(formulas.scaled(a, 0.5), add(torch.tensor(1), share)))

    def relu(self, x: Any, inplace: bool = False) -> RingTensor:
        return self.clamp(x, min=0)

    def abs(self, x: Any) -> RingTensor:
        return self.unary("magnitude", x)

    def maximum(self, a: Any, b: Any) -> RingTensor:
        a, b = torch.broadcast_tensors(self.read(a), self.read(b))
        return self.wrapped(torch.where(table("rank")[b] > table("rank")[a], b, a))

    def minimum(self, a: Any, b: Any) -> RingTensor:
        a, b = torch.broadcast_tensors(self.read(a), self.read(b))
        return self.wrapped(torch.where(table("rank")[b] < table("rank")[a], b, a))

    def clamp(self, x: Any, min: Any = None, max: Any = None) -> RingTensor:
        if isinstance(min, float) and 0 < min < _TINY:  # against a division by zero
            a = self.read(x)
            x = self.wrapped(torch.where(a == 0, element_of(min), a))
        elif min is not None:
            x = self.maximum(x, min)
        return x if max is None else self.minimum(x, max)

    def clamp_min(self, x: Any, min: Any) -> RingTensor:
        return self.clamp(x, min=min)

    def clamp_max(self, x: Any, max: Any) -> RingTensor:
        return self.clamp(x, max=max)

    def amax(self, x: Any, dim: Any = (), keepdim: bool = False, greatest: bool = True) -> RingTensor:
        a = self.read(x)
        return self.wrapped(formulas.extreme(a, formulas.dims(a, dim), keepdim, greatest))

    def amin(self, x: Any, dim: Any = (), keepdim: bool = False) -> RingTensor:
        return self.amax(x, dim, keepdim, False)

    def max(self, x: Any, dim: Any = None, keepdim: bool = False, greatest: bool = True) -> Any:
        if dim is None:
            return self.amax(x, greatest=greatest)
        if isinstance(dim, torch.Tensor):
            return self.maximum(x, dim) if greatest else self.minimum(x, dim)
        found, place = formulas.chosen(self.read(x), dim, keepdim, greatest)
        return torch.return_types.max((self.wrapped(found), place))

    def min(self, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        return self.max(x, dim, keepdim, False)

    def argmax(self, x: Any, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
        return function("rank", self.read(x)).argmax(dim, keepdim)

    def sum(self, x: Any, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> RingTensor:
        a = self.read(x)
        return self.wrapped(total(a, formulas.dims(a, dim), keepdim) if a.dim() else a)

    def mean(self, x: Any, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> RingTensor:
        a = self.read(x)
        return self.wrapped(formulas.mean(a, formulas.dims(a, dim), keepdim))

    def var(
        self, x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: float | None = None
    ) -> RingTensor:
        a = self.read(x)
        if correction is None:
            correction = int(unbiased)
        return self.wrapped(formulas.variance(a, formulas.dims(a, dim), keepdim, correction))

    def std(self, x: Any, *args: Any, **kwargs: Any) -> RingTensor:
        return self.unary("root", self.var(x, *args, **kwargs))

    def cumsum(self, x: Any, dim: int, dtype: torch.dtype | None = None) -> RingTensor:
        a = self.read(x)
        if bool((a >= MODULUS).any()):
            raise NoExactRule("torch.cumsum of infinite numbers: exact comparison has no rule for it.")
        return self.wrapped(a.cumsum(dim) % MODULUS)

    def logsumexp(self, x: Any, dim: Any, keepdim: bool = False) -> RingTensor:
        a = self.read(x)
        return self.wrapped(formulas.log(total(formulas.exp(a), formulas.dims(a, dim), keepdim)))

    def softmax(self, x: Any, dim: int = -1, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> RingTensor:
        return self.wrapped(formulas.softmax(self.read(x), dim))

    def log_softmax(self, x: Any, dim: int = -1, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> RingTensor:
        a = self.read(x)
        return self.wrapped(add(a, negative(formulas.log(total(formulas.exp(a), formulas.dims(a, dim), True)))))

    def matmul(self, a: Any, b: Any) -> RingTensor:
        return self.wrapped(matrix_product(self.read(a), self.read(b)))

    def rmatmul(self, a: Any, b: Any) -> RingTensor:
        return self.matmul(b, a)

    def linear(self, x: Any, weight: Any, bias: Any = None) -> RingTensor:
        found = matrix_product(self.read(x), self.read(weight).mT)
        return self.wrapped(found if bias is None else add(found, self.read(bias)))

    def addmm(self, start: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> RingTensor:
        return self.wrapped(
            add(
                formulas.scaled(self.read(start), beta),
                formulas.scaled(matrix_product(self.read(a), self.read(b)), alpha),
            )
        )

    def einsum(self, equation: str, *operands: Any) -> RingTensor:
        if len(operands) == 1 and isinstance(operands[0], tuple | list):
            operands = tuple(operands[0])
        read = [self.read(one) for one in operands]
        if len(read) > 2 or any(bool((one >= MODULUS).any()) for one in read):
            raise NoExactRule("torch.einsum of infinite numbers, or of three operands: exact comparison has no rule.")
        return self.wrapped(torch.einsum(equation, *(one.double() for one in read)).long() % MODULUS)

    def outer(self, a: Any, b: Any) -> RingTensor:
        return self.wrapped(multiply(self.read(a)[:, None], self.read(b)[None]))

    def scaled_dot_product_attention(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, **options: Any,
    ) -> RingTensor:  # fmt: skip
        if dropout_p:
            raise NoExactRule("torch.dropout: exact comparison has no rule for random numbers.")
        scale = options.get("scale")
        q, k, v = self.read(query), self.read(key), self.read(value)
        if options.get("enable_gqa"):
            k, v = (one.repeat_interleave(q.shape[-3] // k.shape[-3], -3) for one in (k, v))
        scores = formulas.scaled(matrix_product(q, k.mT), q.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = torch.where(attn_mask, scores, element_of(-math.inf))
        elif attn_mask is not None:
            scores = add(scores, self.read(attn_mask))
        return self.wrapped(matrix_product(formulas.softmax(scores, -1), v))

    def leaky_relu(self, x: Any, negative_slope: float = 0.01, inplace: bool = False) -> RingTensor:
        return self.where(self.gt(x, 0), x, self.mul(x, negative_slope))

    def elu(
        self, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0, inplace: bool = False
    ) -> RingTensor:
        below = self.mul(self.expm1(self.mul(x, input_scale)), alpha)
        return self.mul(self.where(self.gt(x, 0), x, below), scale)

    def softsign(self, x: Any) -> RingTensor:
        return self.div(x, self.add(self.abs(x), 1))

    def hardtanh(self, x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> RingTensor:
        return self.clamp(x, min_val, max_val)

    def where(self, mask: torch.Tensor, a: Any, b: Any) -> RingTensor:
        return self.wrapped(torch.where(raw(mask), self.read(a), self.read(b)))

    def masked_fill(self, x: Any, mask: torch.Tensor, value: Any) -> RingTensor:
        return self.wrapped(torch.where(mask, self.read(value), self.read(x)))

    def masked_fill_(self, x: Any, mask: torch.Tensor, value: Any) -> RingTensor:
        return self.masked_fill(x, mask, value)

    def cat(self, tensors: Sequence[Any], dim: int = 0, axis: int | None = None) -> RingTensor:
        return self.wrapped(torch.cat([self.read(one) for one in tensors], dim if axis is None else axis))

    def stack(self, tensors: Sequence[Any], dim: int = 0) -> RingTensor:
        return self.wrapped(torch.stack([self.read(one) for one in tensors], dim))

    def full_like(self, x: Any, value: float, **_: Any) -> RingTensor:
        return self.wrapped(torch.full_like(raw(x), element_of(value)))

    def ones_like(self, x: Any, **_: Any) -> RingTensor:
        return self.full_like(x, 1)

    def pad(self, x: Any, sizes: Sequence[int], mode: str = "constant", value: float | None = None) -> RingTensor:
        return self.wrapped(torch.nn.functional.pad(self.read(x), list(sizes), mode, element_of(value or 0)))

    def __setitem__(self, x: Any, index: Any, value: Any) -> None:
        if not isinstance(x, RingTensor):
            raise NoExactRule("results stored in a tensor made by torch.empty or zeros: make it with empty_like.")
        raw(x)[plain(index)] = self.read(value)

    def copy_(self, x: Any, other: Any, non_blocking: bool = False) -> RingTensor:
        return self.wrapped(self.read(other))

    def zero_(self, x: Any) -> RingTensor:
        return self.wrapped(torch.zeros_like(raw(x)))

    def add_(self, *args: Any, **kwargs: Any) -> RingTensor:
        return self.add(*args, **kwargs)

    def sub_(self, *args: Any, **kwargs: Any) -> RingTensor:
        return self.sub(*args, **kwargs)

    def mul_(self, *args: Any) -> RingTensor:
        return self.mul(*args)

    def div_(self, *args: Any) -> RingTensor:
        return self.div(*args)

    def isnan(self, x: Any) -> torch.Tensor:
        return self.read(x) >= UNDEFINED

    def eq(self, a: Any, b: Any) -> torch.Tensor:
        return self._ranks(a) == self._ranks(b)

    def ne(self, a: Any, b: Any) -> torch.Tensor:
        return self._ranks(a) != self._ranks(b)

    def lt(self, a: Any, b: Any) -> torch.Tensor:
        return self._ranks(a) < self._ranks(b)

    def le(self, a: Any, b: Any) -> torch.Tensor:
        return self._ranks(a) <= self._ranks(b)

    def gt(self, a: Any, b: Any) -> torch.Tensor:
        return self._ranks(a) > self._ranks(b)

    def ge(self, a: Any, b: Any) -> torch.Tensor:
        return self._ranks(a) >= self._ranks(b)

    def _ranks(self, x: Any) -> torch.Tensor:
        return function("rank", self.read(x))
