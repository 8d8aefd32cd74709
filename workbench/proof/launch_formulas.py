"""Formulas of sizes that fit the numbers of launches: elements of arrays, and blocks of grids."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NAME = re.compile(r"[^\W\d]\w*")
"""A size in a formula, or a function."""
LARGEST_TILE = 1 << 16
"""Most elements of an axis that a block is supposed to cover."""


_ELEMENTS = (4, 2, 8, 1)


@dataclass(frozen=True)
class SizeFormulas:
    """Sizes with the values that they have in several launches, in the order of the parameters."""

    values: Mapping[str, Sequence[int]]

    def monomials(self, values: Sequence[int], most: int = 3) -> list[str]:
        """Return products of up to so many sizes that have these values, squares only if there is no other.

        Sizes that stand first come first.
        """
        for chosen_of in (itertools.combinations, itertools.combinations_with_replacement):
            found = []
            for chosen in (one for count in range(1, most + 1) for one in chosen_of(self.values, count)):
                products = [math.prod(one) for one in zip(*(self.values[name] for name in chosen), strict=True)]
                if products == list(values):
                    found.append(" * ".join(chosen))
            if found:
                break
        return found

    def affine(self, values: Sequence[int]) -> list[str]:
        """Return multiples of sizes, and sums with a number, that have these values in launches that differ."""
        found = []
        for name, sizes in self.values.items() if len(set(values)) > 1 else ():
            pairs = [*zip(values, sizes, strict=True)]
            factors, rests = {one / size for one, size in pairs}, {one - size for one, size in pairs}
            if len(factors) == 1 and (factor := factors.pop()).is_integer():
                found.append(f"{int(factor)} * {name}")
            elif len(rests) == 1 and (rest := rests.pop()) > 0:
                found.append(f"{name} + {rest}")
        return found

    def of_bytes(self, values: Sequence[int]) -> list[str]:
        """Return products of a few bytes and sizes that have these values."""
        for element in _ELEMENTS:
            whole = not any(one % element for one in values)
            if found := self.monomials([one // element for one in values]) if whole else []:
                return [f"{element} * {one}" for one in found]
        return self.affine(values)

    def of_dimensions(self, shapes: Sequence[tuple[int, ...]]) -> list[str]:
        """Return a shape whose dimensions are sizes, each used once if there are several alike, or numbers."""
        parts: list[str] = []
        for axis in range(len(shapes[0])):
            values = [shape[axis] for shape in shapes]
            alike = self.monomials(values, 1)
            chosen = next((one for one in alike if one not in parts), alike[0] if alike else None)
            if chosen is None and len(set(values)) > 1:
                return []
            parts.append(str(values[0]) if chosen is None else chosen)
        return [", ".join(parts)] if any(not one.isdigit() for one in parts) else []

    def of_grid(
        self, values: Sequence[int], threads: int, block: int, largest_tile: int = LARGEST_TILE
    ) -> list[str]:  # fmt: skip
        """Return numbers of blocks: sizes, products of two, and quotients by a tile; tiles of ``threads`` first.

        ``threads`` are those of the block along the axis, ``block`` all of them; other tiles are powers of two, up to
        the ``largest_tile``.
        """
        tiles = [threads, block]
        tiles += [threads * factor for factor in (2, 4, 8, 16) if largest_tile]
        tiles += [1 << power for power in range(1, largest_tile.bit_length())]
        exact = self.monomials(values, 2)
        found = []
        for tile in dict.fromkeys(one for one in tiles if one > 1):
            for count in (1, 2):
                for chosen in itertools.combinations(self.values, count):
                    sizes = [math.prod(one) for one in zip(*(self.values[name] for name in chosen), strict=True)]
                    if [-(-one // tile) for one in sizes] == list(values):
                        found.append(f"cdiv({' * '.join(chosen)}, {tile})")
        return [*exact, *found]


def evaluated(text: str, values: Mapping[str, int]) -> int:
    """Return the number of elements of an array with this shape."""
    sums = ([product.split("*") for product in part.split("+")] for part in text.split(","))
    return math.prod(
        sum(math.prod(values.get(one.strip()) or int(one) for one in product) for product in one) for one in sums
    )


def renamed(text: str, tied: Mapping[str, str]) -> str:
    """Return a formula with other names of its sizes."""
    return NAME.sub(lambda found: tied.get(found[0], found[0]), text)


def unused(formulas: Sequence[str], grid: Sequence[str | int]) -> str:
    """Return the first formula, or one of the same form with a size that no other axis has."""
    taken = {*NAME.findall(" ".join(map(str, grid)))} - {"cdiv"}
    free = (
        one for one in formulas
        if NAME.sub("", one) == NAME.sub("", formulas[0]) and not taken & {*NAME.findall(one)}
    )  # fmt: skip
    return next(free, formulas[0])
