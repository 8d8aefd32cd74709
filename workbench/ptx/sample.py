"""Which blocks stand for a grid: pairs of neighbours at places spread over it, or the middles of its parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

Block = tuple[int, int, int]


def blocks_of(grid: Sequence[int], count: int, *, seed: int = 0) -> list[Block] | None:
    """About ``count`` blocks (x, y, z) of a grid, or None where it has no more than that, and all should run.

    The grid is cut into equal parts in the order of its blocks, and a square of 2 x 2 neighbours (2 x 1 in a grid of
    one row) is drawn from each: neighbours show what blocks share, the places how uneven blocks are. Every block is as
    likely as another, up to half a square at the edges.
    """
    full = tuple(grid) + (1,) * (3 - len(grid))
    blocks = math.prod(full)
    if blocks <= count:
        return None
    square = min(2, full[0]), min(2, full[1])
    places = max(1, count // math.prod(square))
    rng = np.random.default_rng(seed)
    found = set()
    for place in range(places):
        index = int((place + rng.random()) * blocks / places)
        x, y, z = index % full[0], index // full[0] % full[1], index // full[0] // full[1]
        x, y = min(x, full[0] - square[0]), min(y, full[1] - square[1])
        found |= {(x + dx, y + dy, z) for dx, dy in itertools.product(range(square[0]), range(square[1]))}
    return sorted(found)


def parts_of(grid: Sequence[int], count: int) -> Block:
    """Into how many equal parts to cut a grid along x, y and z for about ``count``: along x first."""
    sizes = (*grid, 1, 1)
    x = min(sizes[0], max(1, count))
    y = min(sizes[1], max(1, count // x))
    return x, y, min(sizes[2], max(1, count // (x * y)))


def middles_of(grid: Sequence[int], parts: Sequence[int]) -> list[Block]:
    """The block in the middle of each part of a grid that is cut so, x going fastest."""
    x, y, z = (
        [(2 * part + 1) * size // (2 * count) for part in range(count)]
        for size, count in zip((*grid, 1, 1), parts, strict=False)
    )
    return [(at_x, at_y, at_z) for at_z, at_y, at_x in itertools.product(z, y, x)]
