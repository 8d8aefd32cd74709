"""Rules of torch's operators on ring elements, by the operators' names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from workbench.analysis.exact.ring import NoExactRule, OperatorCall, RingTensor, held_in, plain, raw
from workbench.analysis.exact.rules import ruled

# Operators that move elements and compute nothing, on the elements as they are.
_MOVES = frozenset(
    re.findall(
        r"\w+",
        """
        view reshape transpose permute flatten unsqueeze squeeze expand contiguous clone detach __getitem__ T mT
        H repeat_interleave repeat chunk split unbind narrow index_select gather flip roll movedim moveaxis
        swapaxes select unflatten broadcast_to expand_as view_as reshape_as tile tril triu diagonal
        take_along_dim split_with_sizes t zeros_like empty_like new_zeros new_empty unfold take alias data cpu
        swapdims hsplit vsplit tensor_split rot90 masked_select""",
    )
)
# What an operator says about a tensor, and not about its numbers.
_FACTS = frozenset(
    re.findall(
        r"\w+",
        """
        shape size dim ndim numel stride device is_cuda requires_grad is_contiguous storage_offset __len__
        nelement ndimension layout is_sparse data_ptr element_size is_leaf grad_fn names is_meta is_quantized
        get_device _backward_hooks is_complex is_mps is_cpu grad nbytes itemsize untyped_storage""",
    )
)
_SAME = frozenset(["float", "half", "double", "bfloat16", "type_as", "dropout", "to", "type"])


def apply(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Return an operator's result. Raises NoExactRule for one without a rule."""
    name = _name_of(func)
    first = next(held_in((args, kwargs), RingTensor))
    if name == "dtype":
        return first.standing_for
    if name in ("is_floating_point", "__hash__", "__repr__", "__format__"):
        return {"is_floating_point": True, "__hash__": id(first)}.get(name, "RingTensor")
    if name in _FACTS:
        return func(*plain(args), **kwargs)
    call = OperatorCall(args, kwargs, first)
    if name == "view" and isinstance(args[1], torch.dtype):
        return _as_bits(first, args[1])
    if name in _SAME:
        return _converted(call, name)
    if name in _MOVES:
        return call.wrapped(func(*plain(args), **_without_dtype(kwargs)))
    found = ruled(name, call)
    if name.endswith("_") and not name.endswith("__"):
        if not isinstance(args[0], RingTensor):
            raise NoExactRule("results stored in a tensor made by torch.empty or zeros: make it with empty_like.")
        raw(args[0]).copy_(raw(found))
        return args[0]
    return found


class OnElements(TorchFunctionMode):
    """Within the block a program in torch also makes tensors of elements.

    ``torch.zeros``, ``empty``, ``full`` and others do so where they make floats, and ``torch.as_tensor`` of elements
    returns these. ``used`` is that of the program's tensors.
    """

    def __init__(self, used: set[str]):
        super().__init__()
        self.used = used

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if func in _FROM_DATA and isinstance(given := args[0] if args else options["data"], RingTensor):
            return RingTensor.made(raw(given), options.get("dtype") or given.standing_for, given.used)
        found = func(*args, **options)
        if func in _MAKERS and found.is_floating_point():
            return RingTensor.of(found, self.used)
        return found


_FROM_DATA = (torch.as_tensor, torch.asarray)
_MAKERS = (torch.zeros, torch.ones, torch.empty, torch.full)


def _as_bits(x: RingTensor, dtype: torch.dtype) -> RingTensor:
    """Return the same elements, to be moved as integers of their size; operators that compute refuse them."""
    if dtype.itemsize != x.standing_for.itemsize:
        raise NoExactRule(f"torch.Tensor.view({dtype}): exact comparison has no rule for parts of floats.")
    return RingTensor.made(raw(x), dtype, x.used)


def _name_of(func: Callable) -> str:
    name = func.__name__
    if name in ("__get__", "__set__"):
        return func.__self__.__name__  # type: ignore[attr-defined]  # of a property
    stripped = name.strip("_")
    if name.startswith("__") and stripped in _REVERSED:
        return _REVERSED[stripped]
    if name.startswith("__i") and stripped[1:] in _IN_PLACE:
        return _IN_PLACE[stripped[1:]]
    name = _ALIASES.get(name, name)
    return name


_REVERSED = {
    "add": "add", "radd": "add", "sub": "sub", "rsub": "rsub", "mul": "mul", "rmul": "mul", "truediv": "div",
    "rtruediv": "rdiv", "matmul": "matmul", "rmatmul": "rmatmul", "neg": "neg", "pow": "pow", "div": "div",
    "rdiv": "rdiv", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "abs": "abs",
}  # fmt: skip
_IN_PLACE = {"add": "add_", "sub": "sub_", "mul": "mul_", "truediv": "div_"}
_ALIASES = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "absolute": "abs",
    "mm": "matmul", "bmm": "matmul", "mv": "matmul", "dot": "matmul", "concat": "cat", "concatenate": "cat",
    "greater": "gt", "less": "lt", "_softmax": "softmax", "masked_fill_": "masked_fill_",
}  # fmt: skip


def _without_dtype(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(one) for name, one in kwargs.items() if name != "dtype"}


def _converted(call: OperatorCall, name: str) -> RingTensor:
    """Return the same elements: every type of float holds them."""
    named = {"float": torch.float32, "half": torch.float16, "double": torch.float64, "bfloat16": torch.bfloat16}
    given = [one for one in (*call.args[1:], *call.kwargs.values()) if isinstance(one, torch.dtype | torch.Tensor)]
    dtype = named.get(name, call.first.standing_for)
    for one in given:
        dtype = (
            one if isinstance(one, torch.dtype) else one.dtype if not isinstance(one, RingTensor) else one.standing_for
        )
    if name == "dropout" and call.kwargs.get("training", True) and call.kwargs.get("p", 0.5):
        raise NoExactRule("torch.dropout: exact comparison has no rule for random numbers.")
    if not dtype.is_floating_point:
        raise NoExactRule(f"torch.Tensor.to({dtype}): exact comparison has no rule for roundings to whole numbers.")
    return RingTensor.made(raw(call.args[0]), dtype, call.first.used)
