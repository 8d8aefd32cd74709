"""Elements of the ring that floats stand for, and arithmetic on tensors of them.

An element is a residue modulo ``MODULUS`` = P * Q, in int64. Symbols are above: infinities, numbers that are huge but
finite, "undefined", and "nothing", which is a NaN that no computation made. The core defines which residue a float is,
and all functions of one element.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import torch

from workbench.errors import ArgumentError
from workbench.ptx.machine import core

P, Q = core.EXACT_PRIMES
MODULUS = P * Q
MINUS_INFINITY, PLUS_INFINITY, LOW, HIGH, UNDEFINED, NOTHING = range(MODULUS, MODULUS + 6)

_TYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float64: "float64"}


def elements(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements that the numbers of a tensor stand for, an int64 tensor of its shape."""
    if not tensor.is_floating_point():
        return tensor.to(torch.int64) % MODULUS
    if tensor.dtype.itemsize == 1:  # what an fp8 number is, f32 holds
        tensor = tensor.float()
    if tensor.dtype not in _TYPES:
        allowed = ", ".join(_TYPES.values())
        raise ArgumentError("tensor", f"a tensor of {tensor.dtype}", allowed, "Convert it first.")
    dense = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)  # one element may have a stride of 0
    content = dense.flatten().view(torch.uint8).numpy().tobytes()
    found = np.frombuffer(core.exact_residues(content, _TYPES[tensor.dtype]), np.uint16)
    return torch.from_numpy(found.astype(np.int64)).view(tensor.shape)


def floats(found: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the floats that stand for elements, as results of kernels lie in memory.

    Raises ArgumentError for a dtype without a pattern for each element, such as those of eight bits.
    """
    if dtype not in _TYPES:
        allowed = ", ".join(_TYPES.values())
        raise ArgumentError("dtype", str(dtype), allowed, "Eight bits do not hold an element.")
    content = found.contiguous().to(torch.int32).numpy().astype(np.uint16).tobytes()
    bits = bytearray(core.exact_patterns(content, _TYPES[dtype]))
    return torch.frombuffer(bits, dtype=dtype).view(found.shape) if bits else torch.empty(found.shape, dtype=dtype)


class Numbers:
    """The numbers that programs in torch compute with meanwhile, and others that are taken in their place."""

    def __init__(self, instead: Mapping[float, float] | None = None):
        self.used: set[float] = set()
        self.instead = instead or {}

    def __enter__(self) -> Numbers:
        _watching.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _watching.remove(self)


_watching: list[Numbers] = []


def element_of(number: float) -> int:
    """Return the element of a number, which is what it is as a float32; of a whole one exactly."""
    for one in _watching:
        one.used.add(number)
        number = one.instead.get(number, number)
    return _element_of(number)


@functools.lru_cache(maxsize=4096)
def _element_of(number: float) -> int:
    if isinstance(number, int) or (abs(number) < 1 << 53 and number == int(number)):
        return int(number) % MODULUS
    return int(elements(torch.tensor([number], dtype=torch.float32)))


@functools.cache
def table(name: str) -> torch.Tensor:
    """Return a function of one element by element: "inverse", "root", "power_of_two", "rank" and others."""
    return torch.from_numpy(np.frombuffer(core.exact_function(name), np.uint16).astype(np.int64))


def function(name: str, x: torch.Tensor) -> torch.Tensor:
    """Return a function of each element."""
    return table(name)[x]


def _is_symbol(x: torch.Tensor) -> torch.Tensor:
    return x >= MODULUS


def negative(x: torch.Tensor) -> torch.Tensor:
    """Return the negative of each element."""
    plain = (MODULUS - x) % MODULUS
    if not bool(_is_symbol(x).any()):
        return plain
    other = torch.tensor([PLUS_INFINITY, MINUS_INFINITY, HIGH, LOW, UNDEFINED])
    return torch.where(_is_symbol(x), other[(x - MODULUS).clamp(0, 4)], plain)


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the sum of two elements."""
    found = (a + b) % MODULUS
    symbol_a, symbol_b = _is_symbol(a), _is_symbol(b)
    if not bool(symbol_a.any() or symbol_b.any()):
        return found
    a, b = torch.broadcast_tensors(a, b)
    symbol_a, symbol_b = torch.broadcast_tensors(symbol_a, symbol_b)
    infinite_a, infinite_b = symbol_a & (a <= PLUS_INFINITY), symbol_b & (b <= PLUS_INFINITY)
    found = torch.where(symbol_a, a, torch.where(symbol_b, b, found))
    found = torch.where(infinite_b & ~infinite_a, b, found)
    found = torch.where(symbol_a & symbol_b & ~infinite_a & ~infinite_b & (a != b), 0, found)
    undefined = (infinite_a & infinite_b & (a != b)) | (a >= UNDEFINED) | (b >= UNDEFINED)
    return torch.where(undefined, UNDEFINED, found)


def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the product of two elements."""
    found = a * b % MODULUS
    symbol_a, symbol_b = _is_symbol(a), _is_symbol(b)
    if not bool(symbol_a.any() or symbol_b.any()):
        return found
    a, b = torch.broadcast_tensors(a, b)
    symbol_a, symbol_b = torch.broadcast_tensors(symbol_a, symbol_b)
    infinite = (symbol_a & (a <= PLUS_INFINITY)) | (symbol_b & (b <= PLUS_INFINITY))
    turns = table("turns").bool()
    low_a, low_b = (torch.where(_is_symbol(x), (x == MINUS_INFINITY) | (x == LOW), turns[x]) for x in (a, b))
    low = low_a ^ low_b
    symbol = torch.where(infinite, torch.where(low, MINUS_INFINITY, PLUS_INFINITY), torch.where(low, LOW, HIGH))
    found = torch.where(symbol_a | symbol_b, symbol, found)
    zero = (a == 0) | (b == 0)
    found = torch.where(zero, torch.where(infinite, UNDEFINED, 0), found)
    return torch.where((a >= UNDEFINED) | (b >= UNDEFINED), UNDEFINED, found)


def matrix_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the product of two matrices, or of batches of them; rows and columns with a symbol are undefined."""
    symbol_a, symbol_b = _is_symbol(a), _is_symbol(b)
    exact = torch.where(symbol_a, 0, a).double() @ torch.where(symbol_b, 0, b).double()  # below 2^53
    found = exact.long() % MODULUS
    if not bool(symbol_a.any() or symbol_b.any()):
        return found
    rows = symbol_a.any(-1, keepdim=True) if a.dim() > 1 else symbol_a.any()
    columns = symbol_b.any(-2, keepdim=True) if b.dim() > 1 else symbol_b.any()
    return torch.where(rows | columns, UNDEFINED, found)


def total(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool) -> torch.Tensor:
    """Return the sums of elements along some dimensions."""
    found = torch.where(_is_symbol(x), 0, x).sum(dims, keepdim=keepdim) % MODULUS
    if not bool(_is_symbol(x).any()):
        return found
    for symbol in (HIGH, LOW, PLUS_INFINITY, MINUS_INFINITY):
        found = torch.where((x == symbol).any(dims, keepdim=keepdim), symbol, found)
    both = (x == PLUS_INFINITY).sum(dims, keepdim=keepdim) * (x == MINUS_INFINITY).sum(dims, keepdim=keepdim) > 0
    return torch.where(both | (x >= UNDEFINED).sum(dims, keepdim=keepdim).bool(), UNDEFINED, found)
