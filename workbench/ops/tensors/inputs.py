"""Descriptions of a case's inputs, from which a seed makes the same tensors on every machine.

In ``wb.randn(64, "cols", dtype="float16")`` a size is a number, the name of one of the case's sizes, or an expression
of them. A function of the case's sizes and ``generator`` makes any other tensor, such as a permutation or a table of
pages. The global generators of torch, NumPy and Python are seeded for it, so that draws from them are the same each
time, too.
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
from workbench.ops.tensors.checks import dtype_name
from workbench.ops.tensors.tensor_type import TensorType


@dataclass(frozen=True)
class Input:
    """Description of one tensor of a case: the distribution of its elements, its shape, its dtype."""

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
        """Return the dtype and shape that the tensor has with these sizes, without making it."""
        where = f"{self.kind}() shape"
        shape = tuple(Expression.of(f"{where}[{i}]", size).whole(sizes) for i, size in enumerate(self.shape))
        return TensorType.contiguous(self.dtype, shape)

    def make(self, sizes: Mapping[str, int], generator: torch.Generator) -> torch.Tensor:
        """Make the tensor on the CPU."""
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
        """Dimension added to draw the real and imaginary parts of a complex dtype; empty for other dtypes."""
        return (2,) if getattr(torch, self.dtype).is_complex else ()

    @property
    def scaling(self) -> tuple[float, float]:
        """Factor by which numbers of `torch.rand` or `torch.randn` are multiplied, and offset that is then added."""
        first, second = self.bounds
        return (second - first, first) if self.kind == "rand" else (second, first)

    def to_dict(self) -> dict:
        """Return the description as plain values, for a store."""
        return {"kind": self.kind, "shape": list(self.shape), "dtype": self.dtype, "bounds": list(self.bounds)}

    def __repr__(self) -> str:
        bounds = "".join(f", {bound:g}" for bound in self.bounds)
        return f"{self.kind}({', '.join(map(str, self.shape))}{bounds}, dtype={self.dtype!r})"


def randn(*shape: int | str, dtype: str | torch.dtype = "float32", mean: float = 0.0, std: float = 1.0) -> Input:
    """Describe a tensor of normally distributed elements, drawn in float32 and rounded to ``dtype``."""
    return Input("randn", shape, dtype_name(dtype), (mean, std))


def rand(*shape: int | str, dtype: str | torch.dtype = "float32", low: float = 0.0, high: float = 1.0) -> Input:
    """Describe a tensor of elements spread evenly over ``low`` to ``high``, drawn in float32, rounded to ``dtype``."""
    return Input("rand", shape, dtype_name(dtype), (low, high))


def randint(low: int, high: int, *shape: int | str, dtype: str | torch.dtype = "int32") -> Input:
    """Describe a tensor of random integers from ``low`` to ``high - 1``."""
    return Input("randint", shape, dtype_name(dtype), (low, high))


def full(value: float, *shape: int | str, dtype: str | torch.dtype = "float32") -> Input:
    """Describe a tensor that is ``value`` everywhere."""
    return Input("full", shape, dtype_name(dtype), (value,))


def seed_of(name: str, seed: int) -> int:
    """Return the seed of one input, from its name and the seed of its case."""
    return zlib.crc32(name.encode()) ^ (seed * 0x9E3779B1 & 0x7FFFFFFF)


def make(given: Any, name: str, sizes: Mapping[str, int], seed: int) -> Any:
    """Make one input of a case: draw the described tensor, call a function that makes it, or return a plain value."""
    drawn = seed_of(name, seed)
    generator = torch.Generator().manual_seed(drawn)
    if isinstance(given, Input):
        return given.make(sizes, generator)
    if callable(given):
        with _seeded(drawn):
            return _from_function(given, name, {**sizes, "generator": generator})
    return given


def generators_of(given: Callable, name: str, sizes: Mapping[str, int], seed: int) -> list[str]:
    """Return the modules, of "torch", "numpy" and "random", from whose global generators a function draws its input."""
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
    """Seed the global generators of torch (on the CPU), NumPy and Python within the block, and restore them after."""
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
    """Return a checksum of a tensor's elements, by which to recognise an equal tensor."""
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
    """Raise ArgumentError unless a value can be an input of a case."""
    if isinstance(given, torch.Tensor):
        remedy = "Describe it, as wb.randn(...), or pass a function that makes it, lambda: tensor."
        raise ArgumentError(f"input {name!r}", "a tensor", "a description", remedy)
    plain = given is None or isinstance(given, bool | int | float | str)
    if not plain and not isinstance(given, Input) and not callable(given):
        allowed = "wb.randn, wb.rand, wb.randint, wb.full, a function, or a number"
        raise ArgumentError(f"input {name!r}", type(given).__name__, allowed, "Describe it.")


def recorded(given: Any) -> Any:
    """Return an input as plain values, for a store."""
    if isinstance(given, Input):
        return given.to_dict()
    return stated(given) if callable(given) else given
