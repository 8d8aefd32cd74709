"""Samples of a grid's blocks: pairs of neighbours at places spread over it, or the middles of its parts."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.ptx.options import coordinates

if TYPE_CHECKING:
    from workbench.base.trials.values import SampleRecord

Block = tuple[int, int, int]

_BETWEEN_BLOCKS = re.compile(
    r"(atom|red|multimem)\.(?!.*shared)|cp\.reduce\.async\.bulk|griddepcontrol"
    r"|(ld|st)\.(acquire|release|relaxed|volatile)\.(?!.*shared)|(fence|membar)\.(.*\.)?(gl|gpu|sys)\b"
)
"""Instructions by which a block can see the work of another; a kernel without them has independent blocks."""


@dataclass(frozen=True)
class Sampled:
    """Sample of a launch: ``blocks`` of ``of`` blocks ran.

    Totals that are scaled up from them have a relative standard error of ``error``, as far as the warp instructions of
    the sampled places show; None if there is only one place. ``because`` says why all blocks ran, if they did.
    """

    blocks: int
    of: int
    error: float | None = 0.0
    because: str = ""

    def to_dict(self) -> SampleRecord:
        """Return plain values, for a store."""
        return {"blocks": self.blocks, "of": self.of, "error": self.error, "because": self.because}

    def __str__(self) -> str:
        if self.blocks == self.of:
            return f"all {self.of:,} blocks ran" + (f": {self.because}" if self.because else "")
        error = "from one place, so the error is unknown" if self.error is None else f"standard error {self.error:.1%}"
        return f"{self.blocks:,} of {self.of:,} blocks ran, {error}"

    @property
    def brief(self) -> str:
        """Short text for the sample: "16 of 4,096, ± 1.2%"."""
        if self.blocks == self.of:
            return f"all {self.of:,}" + (f": {self.because}" if self.because else "")
        return f"{self.blocks:,} of {self.of:,}" + ("" if self.error is None else f", ± {self.error:.1%}")


def squares_of(grid: Sequence[int], count: int, *, seed: int = 0) -> list[list[Block]]:
    """Return squares of 2 x 2 neighbours (2 x 1 in a grid of one row), about ``count`` blocks (x, y, z) in all.

    The grid is cut into equal parts in the order of its blocks, and a square is drawn from each: neighbours show what
    blocks share, the places how uneven blocks are. Every block is equally likely, up to half a square at the edges. The
    result is empty if the grid has no more blocks than that, and all should run.
    """
    full = width, height, depth = (*grid, 1, 1)[:3]
    blocks = math.prod(full)
    if blocks <= count:
        return []
    square = min(2, full[0]), min(2, full[1])
    places = max(1, count // math.prod(square))
    rng = np.random.default_rng(seed)
    found = []
    for place in range(places):
        index = int((place + rng.random()) * blocks / places)
        x, y, z = coordinates(index, (width, height, depth))
        x, y = min(x, full[0] - square[0]), min(y, full[1] - square[1])
        found.append([(x + dx, y + dy, z) for dx, dy in itertools.product(range(square[0]), range(square[1]))])
    return found


def blocks_of(grid: Sequence[int], count: int, *, seed: int = 0) -> list[Block] | None:
    """Return the blocks of `squares_of`, each once, in order; None if all should run."""
    return sorted({block for square in squares_of(grid, count, seed=seed) for block in square}) or None


def with_corners(grid: Sequence[int], count: int) -> list[Block]:
    """Return the blocks of `squares_of` and the grid's corners, where masks end, in order; empty if all should run."""
    found = blocks_of(grid, count) or []
    corners = itertools.product(*({0, size - 1} for size in (*grid, 1, 1)[:3])) if found else ()
    return sorted({*found, *corners})


_FEW = {2: 1.84, 3: 1.32, 4: 1.20, 5: 1.14, 6: 1.11}
"""Factors of a standard error from few places, by their number.

With them the mean of all blocks lies within the error as often as with many places (Student's t, 68 %).
"""


def standard_error(squares: Sequence[Sequence[Block]], counted: Mapping[Block, float], blocks: int) -> float | None:
    """Return the relative standard error of the mean over ``blocks`` blocks, from the squares' own means.

    None for a single square, from which no error can be estimated.
    """
    means = [statistics.fmean(counted[block] for block in square) for square in squares]
    if len(means) < 2:
        return None
    unseen = _FEW.get(len(means), 1.0) * math.sqrt((1 - len(counted) / blocks) / len(means))
    return statistics.stdev(means) / (statistics.fmean(means) or 1.0) * unseen


def dependence(instructions: Sequence[str]) -> str:
    """Return the first instruction by which a kernel's blocks can depend on each other, or "" if there is none."""
    return next((text for text in instructions if _BETWEEN_BLOCKS.match(text)), "")


def parts_of(grid: Sequence[int], count: int) -> Block:
    """Return the number of equal parts along x, y and z into which to cut a grid for about ``count``, along x first."""
    sizes = (*grid, 1, 1)
    x = min(sizes[0], max(1, count))
    y = min(sizes[1], max(1, count // x))
    return x, y, min(sizes[2], max(1, count // (x * y)))


def middles_of(grid: Sequence[int], parts: Sequence[int]) -> list[Block]:
    """Return the block in the middle of each part of a grid cut into ``parts``, x going fastest."""
    x, y, z = (
        [(2 * part + 1) * size // (2 * count) for part in range(count)]
        for size, count in zip((*grid, 1, 1), parts, strict=False)
    )
    return [(at_x, at_y, at_z) for at_z, at_y, at_x in itertools.product(z, y, x)]
