"""Refusal, by name, of a Triton function's arguments that have no address, or a dtype that Triton lacks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from workbench.errors import ArgumentError
from workbench.ptx.pointers import is_tensor
from workbench.ptx.tensors import address_of


def naming_arguments(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``JITFunction.run`` to raise ArgumentError where a tensor caused torch's or Triton's own error."""

    @functools.wraps(run)
    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return run(function, *args, **kwargs)
        except (RuntimeError, KeyError) as error:
            _refuse(function, args, kwargs, error)
            raise

    return call


def _refuse(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> None:
    """Raise ArgumentError for the first tensor that a kernel cannot take."""
    for name, value in _named(function, args, kwargs):
        if not is_tensor(value):
            continue
        where = f"{function.__name__}(): {name!r}"
        address_of(where, value)
        if value.dtype.is_complex:
            got = f"a tensor of {str(value.dtype).removeprefix('torch.')}"
            remedy = "Pass torch.view_as_real(x), whose last dimension has the two parts."
            raise ArgumentError(
                where, got, "a tensor of a dtype of Triton, which has no complex ones", remedy
            ) from error


def _named(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from zip(function.arg_names, args, strict=False)
    yield from ((name, value) for name, value in kwargs.items() if name in function.arg_names)
