"""Formulas that several operators' rules share, on tensors of ring elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from workbench.analysis.exact.elements import MODULUS, add, element_of, function, multiply, negative, total

_LOG2E = math.log2(math.e)


def dims(x: torch.Tensor, dim: Any) -> tuple[int, ...]:
    """Return the dimensions that an argument names, all of them for None."""
    if dim is None or dim == ():
        return tuple(range(x.dim()))
    return tuple(one % max(x.dim(), 1) for one in (dim if isinstance(dim, Sequence) else (dim,)))


def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Return elements times a number."""
    return multiply(x, torch.tensor(element_of(factor)))


def exp(x: torch.Tensor) -> torch.Tensor:
    """Return the exponential of each element."""
    return function("power_of_two", scaled(x, _LOG2E))


def log(x: torch.Tensor) -> torch.Tensor:
    """Return the natural logarithm of each element."""
    return multiply(function("logarithm", x), function("inverse", torch.tensor(element_of(_LOG2E))))


def erf(x: torch.Tensor) -> torch.Tensor:
    """Return a fixed function of each element, as `workbench.ptx.library_functions` has it."""
    return function("cosine", function("sine", x))


def divided(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the quotient of two elements."""
    return multiply(a, function("inverse", b))


def mean(x: torch.Tensor, along: tuple[int, ...], keepdim: bool) -> torch.Tensor:
    """Return the mean along some dimensions."""
    count = math.prod(x.shape[one] for one in along)
    return divided(total(x, along, keepdim), torch.tensor(count % MODULUS))


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return softmax along a dimension, without a maximum, as that cancels."""
    powers = exp(x)
    return divided(powers, total(powers, dims(x, dim), True))


def chosen(x: torch.Tensor, dim: int, keepdim: bool, greatest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the greatest or least element along a dimension, and its place."""
    rank = function("rank", x)
    place = rank.argmax(dim, keepdim=True) if greatest else rank.argmin(dim, keepdim=True)
    found = x.gather(dim, place)
    return (found, place) if keepdim else (found.squeeze(dim), place.squeeze(dim))


def extreme(x: torch.Tensor, along: tuple[int, ...], keepdim: bool, greatest: bool) -> torch.Tensor:
    """Return the greatest or least elements along some dimensions."""
    for one in sorted(along, reverse=True):
        x = chosen(x, one, True, greatest)[0]
    return x if keepdim else x.squeeze(along)


def variance(x: torch.Tensor, along: tuple[int, ...], keepdim: bool, correction: float) -> torch.Tensor:
    """Return the variance along some dimensions."""
    away = add(x, negative(mean(x, along, True)))
    count = math.prod(x.shape[one] for one in along)
    return divided(total(multiply(away, away), along, keepdim), torch.tensor(element_of(count - correction)))
