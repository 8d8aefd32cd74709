"""Inputs of a case, described: which tensor a seed makes, the same on every machine.

``wb.randn(64, "cols", dtype="float16")``: a size is a number, the name of one of the case's sizes, or an expression of
them. What none of these can make (a permutation, a table of pages) comes from a function of the case's sizes and
``generator``; what it draws without that, from the global generators of torch, NumPy and Python, is the same each time,
too.
"""

from __future__ import annotations

import inspect
import pickle
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from workbench.errors import ArgumentError
from workbench.ops.expressions import Expression
from workbench.ops.identity import stated
from workbench.ops.own.tensor_type import TensorType
from workbench.ops.tensor_checks import dtype_name


@dataclass(frozen=True)
class Input:
    """One tensor of a case: how its elements are drawn, its shape, its dtype."""

    kind: str
    shape: tuple[int | str, ...]
    dtype: str
    bounds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for index, size in enumerate(self.shape):
            if not isinstance(size, int | str) or isinstance(size, bool) or (isinstance(size, int) and size < 0):
                remedy = f'wb.{self.kind}(64, "cols") has 64 rows of as many elements as the case\'s size cols.'
                raise ArgumentError(f"{self.kind}() shape[{index}]", repr(size), "a number or a size's name", remedy)
        if not isinstance(getattr(torch, self.dtype, None), torch.dtype):
            allowed = "float16, bfloat16, float32, float64, complex64, float8_e4m3fn, int8 to int64, uint8, bool"
            raise ArgumentError(f"{self.kind}() dtype", repr(self.dtype), allowed, "Name one of torch's dtypes.")

    def type(self, sizes: Mapping[str, int]) -> TensorType:
        """dtype and shape, before it is made."""
        where = f"{self.kind}() shape"
        shape = tuple(Expression.of(f"{where}[{i}]", size).whole(sizes) for i, size in enumerate(self.shape))
        return TensorType.contiguous(self.dtype, shape)

    def make(self, sizes: Mapping[str, int], generator: torch.Generator) -> torch.Tensor:
        """A new tensor on the CPU."""
        shape, dtype = self.type(sizes).shape, getattr(torch, self.dtype)
        if self.kind == "full":
            return torch.full(shape, self.bounds[0], dtype=torch.float64).to(dtype)
        if self.kind == "randint":
            low, high = map(int, self.bounds)
            return torch.randint(low, high, shape, generator=generator).to(dtype)
        factor, offset = self.scaling
        drawn = getattr(torch, self.kind)((*shape, *self.parts), generator=generator, dtype=torch.float32)
        scaled = drawn * factor + offset
        return (torch.view_as_complex(scaled) if self.parts else scaled).to(dtype)

    @property
    def parts(self) -> tuple[int, ...]:
        """The dimension of real and imaginary parts, of a complex dtype: each is drawn."""
        return (2,) if getattr(torch, self.dtype).is_complex else ()

    @property
    def scaling(self) -> tuple[float, float]:
        """What a number of `torch.rand` or `torch.randn` is multiplied by, and what is added then."""
        first, second = self.bounds
        return (second - first, first) if self.kind == "rand" else (second, first)

    def to_dict(self) -> dict:
        """Plain values, for a store."""
        return {"kind": self.kind, "shape": list(self.shape), "dtype": self.dtype, "bounds": list(self.bounds)}

    def __repr__(self) -> str:
        bounds = "".join(f", {bound:g}" for bound in self.bounds)
        return f"{self.kind}({', '.join(map(str, self.shape))}{bounds}, dtype={self.dtype!r})"


def randn(*shape: int | str, dtype: str | torch.dtype = "float32", mean: float = 0.0, std: float = 1.0) -> Input:
    """Normally distributed elements, drawn in float32 and rounded to ``dtype``."""
    return Input("randn", shape, dtype_name(dtype), (mean, std))


def rand(*shape: int | str, dtype: str | torch.dtype = "float32", low: float = 0.0, high: float = 1.0) -> Input:
    """Elements spread evenly over ``low`` to ``high``, drawn in float32 and rounded to ``dtype``."""
    return Input("rand", shape, dtype_name(dtype), (low, high))


def randint(low: int, high: int, *shape: int | str, dtype: str | torch.dtype = "int32") -> Input:
    """Whole numbers from ``low`` to ``high - 1``."""
    return Input("randint", shape, dtype_name(dtype), (low, high))


def full(value: float, *shape: int | str, dtype: str | torch.dtype = "float32") -> Input:
    """The same number everywhere."""
    return Input("full", shape, dtype_name(dtype), (value,))


def seed_of(name: str, seed: int) -> int:
    """The seed of one input of a case."""
    return zlib.crc32(name.encode()) ^ (seed * 0x9E3779B1 & 0x7FFFFFFF)


def make(given: Any, name: str, sizes: Mapping[str, int], seed: int) -> Any:
    """The value of one input of a case: a tensor drawn with a seed of its own, what a function made, or a number."""
    drawn = seed_of(name, seed)
    generator = torch.Generator().manual_seed(drawn)
    if isinstance(given, Input):
        return given.make(sizes, generator)
    if callable(given):
        with _seeded(drawn):
            return _from_function(given, name, {**sizes, "generator": generator})
    return given


def generators_of(given: Callable, name: str, sizes: Mapping[str, int], seed: int) -> list[str]:
    """The modules, of torch, NumPy and Python, from whose global generators a function draws what it makes."""
    drawn = seed_of(name, seed)
    with _seeded(drawn):
        before = _states()
        _from_function(given, name, {**sizes, "generator": torch.Generator().manual_seed(drawn)})
        return [module for module, state in _states().items() if state != before[module]]


def _states() -> dict[str, Any]:
    of_numpy = pickle.dumps(np.random.get_state())
    return {"torch": torch.get_rng_state().numpy().tobytes(), "numpy": of_numpy, "random": random.getstate()}


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The global generators of torch (on the CPU), NumPy and Python at this seed, and afterwards as they were."""
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])


def digest(made: torch.Tensor) -> int:
    """Of the elements of a tensor, to tell whether another one is the same."""
    return zlib.crc32(made.contiguous().view(-1).view(torch.uint8).numpy()) if made.numel() else 0


def _from_function(function: Callable, name: str, known: Mapping[str, Any]) -> Any:
    wanted = inspect.signature(function).parameters
    for parameter in wanted:
        if parameter not in known:
            remedy = "A function that makes an input takes these, by name."
            raise ArgumentError(f"input {name!r}", f"a function of {parameter!r}", ", ".join(known), remedy)
    made = function(**{parameter: known[parameter] for parameter in wanted})
    if not isinstance(made, torch.Tensor) or made.device.type != "cpu":
        where = f" on {made.device}" if isinstance(made, torch.Tensor) else ""
        remedy = "Return a tensor; it is copied to the device."
        raise ArgumentError(f"input {name!r}", f"{type(made).__name__}{where}", "a tensor on the CPU", remedy)
    return made


def check_given(name: str, given: Any) -> None:
    """Raise ArgumentError for what cannot be an input of a case."""
    if isinstance(given, torch.Tensor):
        remedy = "Describe it, as wb.randn(...), or pass a function that makes it, lambda: tensor."
        raise ArgumentError(f"input {name!r}", "a tensor", "a description", remedy)
    plain = given is None or isinstance(given, bool | int | float | str)
    if not plain and not isinstance(given, Input) and not callable(given):
        allowed = "wb.randn, wb.rand, wb.randint, wb.full, a function, or a number"
        raise ArgumentError(f"input {name!r}", type(given).__name__, allowed, "Describe it.")


def recorded(given: Any) -> Any:
    """An input as plain values, for a store."""
    if isinstance(given, Input):
        return given.to_dict()
    return stated(given) if callable(given) else given
