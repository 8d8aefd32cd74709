"""torch's operators on tensors whose floats stand for elements, as kernels that compute with elements leave them.

`RingTensor` is for programs that need no memory of a device. Here a tensor is an ordinary one: an operator is computed
on the elements of its floats, and the floats that stand for the results are written where it writes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from workbench.analysis.exact.elements import MODULUS, UNDEFINED, elements, floats
from workbench.analysis.exact.ring import NoExactRule, OperatorCall, RingTensor, held_in, raw
from workbench.analysis.exact.rules import ruled
from workbench.base.dispatch_mode import DispatchMode

_MOVES = frozenset(
    re.findall(
        r"\w+",
        """
    empty_like new_empty new_empty_strided zeros_like new_zeros ones_like new_ones rand_like randn_like clone contiguous
    cat stack index index_select gather embedding repeat flip roll tril triu masked_select take scatter index_copy
    slice_scatter select_scatter diagonal_scatter where constant_pad_nd uniform_ normal_ random_ bernoulli_ zero_
    set_ resize_ record_stream pin_memory _pin_memory unfold repeat_interleave copy_ _to_copy lift_fresh lift_fresh_copy
    _reshape_copy _unsafe_view _reshape_alias unsafe_split unsafe_chunk view_copy expand_copy
    """,
    )
)
"""Operators that move floats, or make ordinary ones: where no dtype changes, memory has what it should."""
_COPIES = frozenset(["copy_", "_to_copy"])
_HOST = {"_local_scalar_dense": "reads a number", "is_nonzero": "reads a number", "equal": "compares bits"}


def _first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of an operator of several results, of which only the first is known."""
    return lambda *args, **kwargs: (function(*args, **kwargs),)


def _attention(query: Any, key: Any, value: Any, *rest: Any, bias: bool = False, **options: Any) -> Any:
    mask, rest = (rest[0], rest[2:]) if bias else (None, rest)
    dropout, causal = (*rest, 0.0, False)[:2] if len(rest) < 2 else rest[:2]
    return functional.scaled_dot_product_attention(
        query, key, value, mask, dropout, bool(causal), scale=options.get("scale")
    )


_RULES: Mapping[str, Callable[..., Any]] = {
    "mm": torch.matmul,
    "bmm": torch.matmul,
    "mv": torch.matmul,
    "dot": torch.matmul,
    "baddbmm": torch.addmm,
    "addmv": torch.addmm,
    "_softmax": lambda x, dim, half: torch.softmax(x, dim),
    "_safe_softmax": lambda x, dim, dtype=None: torch.softmax(x, dim),
    "_log_softmax": lambda x, dim, half: torch.log_softmax(x, dim),
    "fill": lambda x, value: torch.zeros_like(x) + value,
    "addcmul": lambda x, a, b, value=1: torch.add(x, a * b, alpha=value),
    "addcdiv": lambda x, a, b, value=1: torch.add(x, a / b, alpha=value),
    "native_layer_norm": _first(functional.layer_norm),
    "native_group_norm": _first(
        lambda x, weight, bias, n, channels, area, groups, eps: functional.group_norm(x, groups, weight, bias, eps)
    ),
    "native_batch_norm": _first(
        lambda x, weight, bias, mean, variance, *rest: functional.batch_norm(x, mean, variance, weight, bias, *rest)
    ),
    "_fused_rms_norm": _first(lambda x, shape, weight, eps: functional.rms_norm(x, shape, weight, eps)),
    "_scaled_dot_product_flash_attention": _first(_attention),
    "_scaled_dot_product_flash_attention_for_cpu": _first(_attention),
    "_scaled_dot_product_efficient_attention": _first(functools.partial(_attention, bias=True)),
    "_scaled_dot_product_cudnn_attention": _first(functools.partial(_attention, bias=True)),
}
"""Operators of the device that have other names or parameters than those of torch that have a rule."""


class DeviceOperators:
    """torch's operators on elements; ``used`` has the names of those that have computed.

    ``copied`` is called with each tensor of floats that is copied from the device to the host.
    """

    def __init__(self, copied: Callable[[torch.Tensor], None] = lambda made: None) -> None:
        self.used: set[str] = set()
        self._copied = copied

    def call(self, operator: Any, args: tuple, kwargs: Mapping[str, Any]) -> Any:
        """Return an operator's result. Raises NoExactRule for one without a rule."""
        name = operator._schema.name.partition("::")[2]
        given = [one for one in held_in((args, dict(kwargs)), torch.Tensor) if one.is_floating_point()]
        if given and name in _HOST:
            raise NoExactRule(f"torch.{name}: it {_HOST[name]} of floats on the host.")
        if not given or self._keeps(operator, name, given, args, kwargs):
            returned = operator(*args, **kwargs)
        else:
            found = self._computed(operator, name, args, kwargs)
            returned = operator(*args, **kwargs)  # its memory is right, its content is not
            for at, one in enumerate(held_in(returned, torch.Tensor)):
                _write(one, found[at] if at < len(found) else None)
        if name in _COPIES and given[-1:] and given[-1].is_cuda and not returned.is_cuda:
            self._copied(returned)
        return returned

    def attention(self, args: tuple, kwargs: Mapping[str, Any]) -> torch.Tensor:
        """Return `scaled_dot_product_attention`, as torch may compose it of products with roots of its scale."""
        found = functional.scaled_dot_product_attention(*self._ring(args), **self._ring(dict(kwargs)))
        query = args[0] if args else kwargs["query"]
        made = torch.empty(found.shape, dtype=query.dtype, device=query.device)
        _write(made, found)
        return made

    def _keeps(
        self, operator: Any, name: str, given: list[torch.Tensor], args: tuple, kwargs: Mapping[str, Any]
    ) -> bool:
        """Return True for an operator that moves floats without a change of their dtype."""
        returns = [one.alias_info for one in operator._schema.returns]
        if returns and all(one is not None and not one.is_write for one in returns):
            return True  # a view
        if name in ("index_put", "index_put_", "_index_put_impl_"):
            return not (args[3] if len(args) > 3 else kwargs.get("accumulate", False)) and _one_dtype(given)
        if name not in _MOVES:
            return False
        if name == "_to_copy":
            return kwargs.get("dtype") in (None, given[0].dtype)
        if name == "constant_pad_nd":
            return (args[2] if len(args) > 2 else kwargs.get("value", 0)) == 0
        if name == "copy_":
            return args[0].dtype == args[1].dtype
        return name not in ("cat", "stack", "where") or _one_dtype(given)

    def _computed(self, operator: Any, name: str, args: tuple, kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the results as ring tensors or tensors of whole numbers, as many as are known."""
        if name in _COPIES:
            return [self._converted(args[0], args[1], args[0].dtype) if name == "copy_" else
                    self._converted(None, args[0], kwargs["dtype"])]  # fmt: skip
        plain = {
            key: one for key, one in kwargs.items() if key not in ("out", "dtype", "device", "layout", "pin_memory")
        }
        ring_args, ring_kwargs = self._ring(args), self._ring(plain)
        in_place = name.endswith("_") and not name.endswith("__")
        rule = name.rstrip("_") if in_place else name
        if rule in _RULES:
            found = _RULES[rule](*ring_args, **ring_kwargs)
        else:
            first = next(held_in((ring_args, ring_kwargs), RingTensor))
            found = ruled(rule, OperatorCall(ring_args, ring_kwargs, first))
        return list(found) if isinstance(found, tuple | list) else [found]

    def _converted(self, to: torch.Tensor | None, source: torch.Tensor, dtype: torch.dtype) -> RingTensor:
        if source.is_floating_point() and not dtype.is_floating_point:
            raise NoExactRule(f"torch.Tensor.to({dtype}): exact comparison has no rule for roundings to whole numbers.")
        found = elements(source)
        return RingTensor.made(found if to is None else found.expand(to.shape), dtype, self.used)

    def _ring(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if not value.is_floating_point():
                return value.cpu() if value.device.type != "cpu" else value
            return RingTensor.of(value, self.used)
        if isinstance(value, Mapping):
            return {key: self._ring(one) for key, one in value.items()}
        return type(value)(map(self._ring, value)) if type(value) in (tuple, list) else value


class _Operators(DispatchMode):
    """Mode in which all operators of torch, on the host too, compute on elements."""

    def __init__(self, operators: DeviceOperators):
        super().__init__()
        self._operators = operators

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute an operator. Raises NoExactRule for one that has no rule."""
        return self._operators.call(func, args, kwargs or {})


class _Attention(TorchFunctionMode):
    """Mode in which attention is one operator."""

    def __init__(self, operators: DeviceOperators):
        super().__init__()
        self._operators = operators

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        with _disable_current_modes():
            return self._operators.attention(args, kwargs or {})


@contextmanager
def computing_on_elements(operators: DeviceOperators) -> Iterator[None]:
    """Let all operators of torch in this thread, on the host too, compute on elements."""
    with _Operators(operators), _Attention(operators):
        yield


def _write(tensor: torch.Tensor, value: Any) -> None:
    """Write a result into the memory of the operator's; an unknown one is undefined."""
    if value is None:
        if tensor.is_floating_point():
            tensor.copy_(floats(torch.full(tensor.shape, UNDEFINED), tensor.dtype))
        return
    if not tensor.is_floating_point():
        if isinstance(value, RingTensor):
            raise NoExactRule("an operator that makes whole numbers of floats: exact comparison has no rule for it.")
        tensor.copy_(value.reshape(tensor.shape))
        return
    found = raw(value) if isinstance(value, RingTensor) else value.to(torch.int64) % MODULUS
    tensor.copy_(floats(found.expand(tensor.shape), tensor.dtype))


def _one_dtype(given: list[torch.Tensor]) -> bool:
    return len({one.dtype for one in given}) == 1
