"""Families of launches from recorded ones: numbers that repeat become one size, others formulas of sizes.

A number is compared in all recorded launches of the same code: dimensions of tensors are sizes or products of them,
whole numbers among the arguments and blocks of the grid are sizes, products, or quotients by a constant of the kernel.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.recorded_launches import RecordedLaunch, RecordedTensor
from workbench.proof.family import Family

Numbers = tuple[int, ...]
"""One number of each launch."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_BLOCK = re.compile(r"BLOCK|TILE|^B[A-Z]{1,2}$|^G?ROUP|rows_per|_SIZE_[A-Z]$")
_SMALLEST_PRODUCT = 8
_MOST_FACTORS = 400


FEW, CONSTANTS, ALL = range(3)
"""Numbers that stay as they are: constants of the kernel that are no block sizes; all its constants; all numbers."""


class Sizes:
    """The formulas of numbers; those that are ``fixed`` stay as they are."""

    def __init__(self, launches: Sequence[RecordedLaunch], fixed: int):
        self.launches = launches
        self.formulas: dict[Numbers, str] = {(1,) * len(launches): "1"}
        self.symbols: dict[str, Numbers] = {}
        constants = {
            name: value for name, value in launches[0].constants.items()
            if isinstance(value, int) and value > 1 and name not in ("num_warps", "num_stages", "num_ctas")
        }  # fmt: skip
        self.constants = sorted(set(constants.values()))
        own = [value for name, value in constants.items() if fixed or not _BLOCK.search(name)]
        self.fixed, self.level = set(own), fixed
        first = launches[0].args
        self.names = {
            self.of(lambda one, name=name: one.args[name]): name for name, value in reversed(first.items())
            if isinstance(value, int) and not isinstance(value, bool) and _NAME.fullmatch(name)
        }  # fmt: skip

    def of(self, number: Any) -> Numbers:
        """Return a number of each launch."""
        return tuple(map(number, self.launches))

    def symbol(self, values: Numbers, name: str) -> str:
        """Return the size with these values, a new one if no formula has them."""
        found = self.known(values)
        if found is None and len(set(values)) == 1 and self._stays(values[0]):
            return str(values[0])
        if found is None:
            found = self.names.get(values, name)
            self.symbols[found] = values
            self.formulas[values] = found
        return found

    def _stays(self, value: int) -> bool:
        return value in self.fixed or self.level == ALL

    def known(self, values: Numbers) -> str | None:
        """Return the formula of values that were met before, or a product of two such sizes."""
        found = self.formulas.get(values)
        if found is None and max(values) >= _SMALLEST_PRODUCT:
            for (one, x), (other, y) in itertools.combinations(self.symbols.items(), 2):
                if all(a * b == c and a > 1 and b > 1 for a, b, c in zip(x, y, values, strict=True)):
                    return f"{one} * {other}"
            for name, numbers in self.symbols.items():
                if all(c == a + 1 for a, c in zip(numbers, values, strict=True)):
                    return f"{name} + 1"
        return found

    def derived(self, values: Numbers) -> str | None:
        """Return a formula of known sizes: one of them, a quotient, or a product of up to three of these."""
        found = self.known(values)
        if found is not None:
            return found
        factors = [(name, numbers) for name, numbers in self.symbols.items()]
        for size, (name, numbers) in itertools.product(self.constants, self.symbols.items()):
            factors.append((f"cdiv({name}, {size})", tuple(-(-one // size) for one in numbers)))
        factors = [one for one in factors if any(value > 1 for value in one[1])][:_MOST_FACTORS]
        for count in (1, 2, 3):
            if len(factors) ** count > 200_000 or (count > 1 and max(values) < _SMALLEST_PRODUCT):
                break
            for several in itertools.combinations(factors, count):
                if all(
                    math.prod(one) == value for value, *one in zip(values, *(one for _, one in several), strict=True)
                ):
                    return " * ".join(name for name, _ in several)
        return None


def family(launches: Sequence[RecordedLaunch], *, fixed: int, facts: Any = ()) -> Family:
    """Return the family of which some launches of the same code were recorded; ``facts`` replace those about data."""
    launches = [one for one in launches if _kinds(one) == _kinds(launches[0])]
    if fixed == ALL:
        launches = launches[:1]
    kernel, sizes = launches[0].compiled, Sizes(launches, fixed)
    first = launches[0].args
    shapes: dict[str, list[str]] = {}
    tensors = {name: one for name, one in first.items() if isinstance(one, RecordedTensor)}
    for name in sorted(tensors, key=lambda one: -len(tensors[one].shape)):
        shapes[name] = list(_shape(name, sizes))
    args: dict[str, Any] = {}
    strides = _strides(tensors, shapes, sizes)
    for name, value in first.items():
        if name in tensors:
            args[name] = f"{tensors[name].dtype}[{', '.join(shapes[name]) or '1'}]"
        elif isinstance(value, bool) or not isinstance(value, int):
            args[name] = value
        else:
            values = sizes.of(lambda one, name=name: one.args[name])
            same = len(set(values)) == 1
            args[name] = sizes.known(values) or strides.get(values) or sizes.derived(values)
            if args[name] is None:
                args[name] = value if same else name
    grid = []
    for axis in range(len(launches[0].grid)):
        values = sizes.of(lambda one, axis=axis: one.grid[axis])
        grid.append(sizes.derived(values) or (str(values[0]) if len(set(values)) == 1 else f"blocks_{axis}"))
    facts = facts or {name: text for name in tensors if (text := _fact(name, sizes))}
    return Family(kernel, tuple(grid), args={k: v for k, v in args.items() if v is not None}, facts=facts or ())


def _kinds(launch: RecordedLaunch) -> list[Any]:
    """Return the kinds of the arguments, and how many sizes they have."""
    several = launch.args.values()
    return [len(one.shape) if isinstance(one, RecordedTensor) else type(one) for one in several] + [len(launch.grid)]


def _shape(name: str, sizes: Sizes) -> Iterator[str]:
    """Yield formulas whose product is the number of elements behind a tensor's address."""
    several = [one.args[name] for one in sizes.launches]
    axes = [axis for axis in range(len(several[0].shape)) if any(one.strides[axis] for one in several)]
    axes.sort(key=lambda axis: [-one.strides[axis] for one in several])
    packed = all(
        math.prod(one.shape[axis] for axis in axes)
        == 1 + sum((one.shape[axis] - 1) * one.strides[axis] for axis in axes)
        for one in several
    )  # fmt: skip
    dims = [
        sizes.symbol(sizes.of(lambda one, axis=axis: one.args[name].shape[axis]), f"{name}_{axis}") for axis in axes
    ]
    if packed:
        yield from dims
        return
    steps = [sizes.of(lambda one, axis=axis: one.args[name].strides[axis]) for axis in axes]
    parts = [
        f"({dim} - 1) * ({sizes.derived(step) or sizes.symbol(step, f'{name}_stride_{axis}')})"
        for dim, step, axis in zip(dims, steps, axes, strict=True)
    ]
    yield " + ".join([*parts, "1"])


def _strides(tensors: dict[str, Any], shapes: dict[str, list[str]], sizes: Sizes) -> dict[Numbers, str]:
    """Return formulas of the strides of packed tensors."""
    found: dict[Numbers, str] = {}
    for name in tensors:
        several = [one.args[name] for one in sizes.launches]
        axes = [axis for axis in range(len(several[0].shape)) if any(one.strides[axis] for one in several)]
        axes.sort(key=lambda axis: [-one.strides[axis] for one in several])
        if len(axes) != len(shapes[name]):
            continue
        for place, axis in enumerate(axes):
            values = sizes.of(lambda one, axis=axis, name=name: one.args[name].strides[axis])
            inner = [one for one in shapes[name][place + 1 :] if one != "1"]
            found.setdefault(values, " * ".join(inner) or "1")
            whole = tuple(value * one.shape[axis] for value, one in zip(values, several, strict=True))
            found.setdefault(whole, " * ".join(one for one in shapes[name][place:] if one != "1") or "1")
    return found


def _fact(name: str, sizes: Sizes) -> str:
    """Return a fact about whole numbers in a tensor: at least the least one seen, below the next size."""
    several = [one.args[name] for one in sizes.launches]
    if any(one.low is None for one in several):
        return ""
    low = min([0, *(one.low for one in several)])
    if low < -_MOST_FACTORS:  # of an output, which holds anything
        return ""
    above = [
        (values, symbol) for symbol, values in sizes.symbols.items()
        if all(value > one.high for value, one in zip(values, several, strict=True))
    ]  # fmt: skip
    highest = max(one.high for one in several)
    return f"{low} <= v < {min(above)[1]}" if above else f"{low} <= v <= {highest}" if sizes.level == ALL else ""
