"""The puzzles in which threads of a block need each other's values: stencil, reduction and scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workbench.ops.tensors.inputs import randn
from workbench.puzzles.drawing import BLANK, FACES, SHARED, Drawing, arrow, cells, label
from workbench.puzzles.elements import COALESCE, FAR_APART
from workbench.puzzles.signs import computes, finds
from workbench.puzzles.task import Goal, Mistake, Puzzle, PuzzleLaunch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_THREADS = 128


# -- stencil ----------------------------------------------------------------------------------------------------


def stencil(x: Tensor) -> Tensor:
    """Add its two neighbours to every element; beyond the ends they are 0."""
    padded = torch.nn.functional.pad(x, (1, 1))
    return padded[:-2] + padded[1:-1] + padded[2:]


def _within_blocks(x: Tensor) -> Tensor:
    """Compute the stencil with blocks that do not see each other."""
    blocks = torch.nn.functional.pad(x, (0, -len(x) % _THREADS)).view(-1, _THREADS)
    padded = torch.nn.functional.pad(blocks, (1, 1))
    return (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]).reshape(-1)[: len(x)]


def _draw_stencil() -> Drawing:
    def paint(ax: Axes) -> None:
        cells(ax, 2.6, 0.2, [f"x{at}" for at in range(12)], [FACES[at // 4] for at in range(12)], "x")
        cells(ax, 5.6, 2.4, ["x3", *(f"x{at}" for at in range(4, 8)), "x8"], SHARED, "tile")
        for at in range(3, 9):
            arrow(ax, (3.1 + at, 1.2), (3.1 + at, 2.4))
        label(ax, 12, 2.9, "shared memory of block 1: its 4 elements,", side="left")
        label(ax, 12, 3.5, "and one of each neighbour", side="left")
        cells(ax, 6.6, 4.8, ["", "", "Σ", ""], [FACES[1]] * 4, "out")
        for left in (8.1, 9.1, 10.1):
            arrow(ax, (left, 3.4), (9.1, 4.8))

    return Drawing("an element and its two neighbours", "The block loads each element once.", 22, 6, paint)


STENCIL = Puzzle(
    name="stencil",
    claim="out[i] = x[i - 1] + x[i] + x[i + 1], with zeros outside",
    spec=stencil,
    parameters=("out", "x", "n"),
    inputs={"x": randn("n", mean=2.0)},
    sizes=({"n": 100}, {"n": 1000}),
    launches={
        "CUDA": PuzzleLaunch(("cdiv(n, 128)",), (_THREADS,)),
        "Triton": PuzzleLaunch(("cdiv(n, 128)",), constants={"BLOCK": "128"}),
    },
    goals=(
        Goal(
            "global_load_sectors",
            140,
            "neighbours loaded from global memory",
            "Each element is loaded by three threads. Let the block load it once into shared memory, with one more "
            "element at either end, and read the neighbours there.",
            ("CUDA",),
        ),
        Goal("global_sectors", 600, FAR_APART, COALESCE, ("Triton",)),
    ),
    mistakes=(
        Mistake(
            "neighbours left out",
            computes(lambda x: x),
            "The output is x so far: add x[i - 1] and x[i + 1].",
        ),
        Mistake(
            "one of the three left out",
            computes(
                lambda x: stencil(x) - x,
                lambda x: x + torch.nn.functional.pad(x[1:], (0, 1)),
                lambda x: x + torch.nn.functional.pad(x[:-1], (1, 0)),
            ),
            "The sum has three elements: x[i - 1], x[i] and x[i + 1].",
        ),
        Mistake(
            "part of the tile not loaded",
            finds("uninitialised shared read"),
            "All 130 elements of the tile are read: write its two ends, too, and 0 where x has no element.",
        ),
        Mistake(
            "neighbours in other blocks left out",
            computes(_within_blocks),
            "At the edges of a block the neighbour belongs to another block. The tile needs one more element at either "
            "end, loaded from x.",
        ),
        Mistake(
            "no guard before the first element",
            finds("out-of-bounds", "x", text="before"),
            "Element 0 has no left neighbour: x[-1] is not x's memory. Take 0 there.",
        ),
        Mistake(
            "no guard after the last element",
            finds("out-of-bounds", "x", text="past the end"),
            "What lies past the end of x is not its memory: load x[i] only if i < n, x[i + 1] only if i + 1 < n, and "
            "take 0 otherwise.",
        ),
    ),
    hints=(
        "A block of 128 threads needs 130 elements of x: its own, one before, one after. Declare __shared__ float "
        "tile[130]. In Triton load three times, from x + at - 1, x + at and x + at + 1.",
        "Every thread loads its element to tile[threadIdx.x + 1]; thread 0 also loads the one before, thread 127 the "
        "one after. What lies outside of x is 0. In Triton mask= and other=0.0 do that.",
        "Other threads read what this one wrote: __syncthreads() before out[i] = tile[t - 1] + tile[t] + tile[t + 1].",
    ),
    draw=_draw_stencil,
)


# -- reduction --------------------------------------------------------------------------------------------------


def row_sums(x: Tensor) -> Tensor:
    """Add up every row."""
    return x.sum(dim=1)


def _draw_reduction() -> Drawing:
    def paint(ax: Axes) -> None:
        cells(ax, 3, 0.2, [f"x{at}" for at in range(8)], [FACES[at // 4] for at in range(8)], "x[r]")
        for at in range(8):
            arrow(ax, (3.5 + at, 1.2), (3.5 + at % 4, 2.4))
        sums = (["0+4", "1+5", "2+6", "3+7"], ["all even", "odd"], ["sum"])
        for step, texts in enumerate(sums):
            top = 2.4 + 1.9 * step
            width = 4 >> step
            cells(ax, 3, top, texts if step != 1 else ["·", "·"], SHARED, "part" if step == 0 else "")
            if step < 2:
                for at in range(width):
                    arrow(ax, (3.5 + at, top + 1), (3.5 + at % (width // 2), top + 1.9))
        label(ax, 8.2, 2.9, "thread t adds up columns t, t + 4, ...", side="left")
        label(ax, 8.2, 4.8, "half of the threads add the other half's sums", side="left")
        label(ax, 8.2, 6.7, "thread 0 has the sum of the row", side="left")

    return Drawing("a block adds up a row", "8 columns and 4 threads here; a barrier before each step.", 21, 7.6, paint)


REDUCTION = Puzzle(
    name="reduction",
    claim="out[r] = x[r, 0] + x[r, 1] + ... + x[r, cols - 1]",
    spec=row_sums,
    parameters=("out", "x", "cols"),
    inputs={"x": randn("rows", "cols", mean=1.0)},
    sizes=({"rows": 3, "cols": 100}, {"rows": 4, "cols": 1000}),
    launches={
        "CUDA": PuzzleLaunch(("rows",), (_THREADS,)),
        "Triton": PuzzleLaunch(("rows",), constants={"BLOCK": "128"}),
    },
    goals=(
        Goal("global_sectors", 600, FAR_APART, COALESCE),
        Goal(
            "instructions",
            2200,
            "one thread adds while the others wait",
            "The others wait for 128 additions one after the other. Let half of the threads add the sums of the other "
            "half, then a quarter, and so on: 7 steps.",
            ("CUDA",),
        ),
    ),
    mistakes=(
        Mistake(
            "columns after the first 128 left out",
            computes(lambda x: x[:, :_THREADS].sum(1)),
            "A row has more columns than the block has threads: let each thread go on in steps of 128.",
        ),
        Mistake(
            "only the last 128 columns",
            computes(lambda x, cols: x[:, (cols - 1) // _THREADS * _THREADS :].sum(1)),
            "Each step of the loop replaces the sum of those before: add with +=.",
        ),
        Mistake(
            "first row for all",
            computes(lambda x, rows: x.sum(1)[:1].expand(rows)),
            "Every block adds up row 0: its row begins at x + blockIdx.x * cols, in Triton "
            "x + tl.program_id(0) * cols.",
        ),
        Mistake(
            "columns added by several threads",
            computes(lambda x, cols: (x * torch.arange(1, cols + 1).clamp(max=_THREADS)).sum(1)),
            "Thread t adds up all columns from t on, and its neighbours add them again: it goes on in steps of 128.",
        ),
        Mistake(
            "last step of the tree left out",
            computes(lambda x: x[:, ::2].sum(1)),
            "The loop ends a step early: the last step, for s = 1, adds part[1] to part[0].",
        ),
        Mistake(
            "only one thread's columns",
            computes(lambda x: x[:, ::_THREADS].sum(1)),
            "The output is the sum of thread 0 alone. The sums of all threads have to be added, through shared memory.",
        ),
    ),
    hints=(
        "A row may have more columns than the block has threads. First each thread adds up the columns threadIdx.x, "
        "threadIdx.x + 128, ... In Triton a loop over range(0, cols, BLOCK) adds up vectors.",
        "Then the 128 sums go to shared memory: part[threadIdx.x] = sum. In a loop for s = 64, 32, ..., 1 the threads "
        "below s add part[threadIdx.x + s] to theirs. In Triton that is tl.sum(values, 0).",
        "Each step reads what the step before wrote: __syncthreads() at the start of each step, outside of the if.",
    ),
    draw=_draw_reduction,
)


# -- scan -------------------------------------------------------------------------------------------------------


def running_sum(x: Tensor) -> Tensor:
    """Replace every column by the sum of the columns up to it."""
    return torch.cumsum(x, dim=1)


def _in_chunks(x: Tensor, size: int = _THREADS) -> Tensor:
    return torch.cat([part.cumsum(1) for part in x.split(size, dim=1)], dim=1)


def _chunk_before(x: Tensor) -> Tensor:
    """Return for each element the sum of the chunk before its own."""
    sums = [torch.zeros(len(x)), *(part.sum(1) for part in x.split(_THREADS, dim=1))]
    return torch.cat([sums[at][:, None].expand_as(part) for at, part in enumerate(x.split(_THREADS, dim=1))], dim=1)


def _in_windows(width: int) -> Callable:
    """Return what doubling up to ``width`` computes: sums of that many columns, within each chunk."""

    def sums(x: Tensor) -> Tensor:
        whole = x.cumsum(1)
        return whole - torch.nn.functional.pad(whole, (width, 0))[:, : x.shape[1]]

    return lambda x: torch.cat([sums(part) for part in x.split(_THREADS, dim=1)], dim=1)


def _draw_scan() -> Drawing:
    def paint(ax: Axes) -> None:
        values: list[int] = [3, 1, 2, 5, 1, 4, 2, 1]
        for step in range(4):
            cells(ax, 3, 0.2 + 2.1 * step, values, FACES[3] if step == 3 else BLANK, ("x[r]", "", "", "out[r]")[step])
            reach = 1 << step
            if step < 3:
                for at in range(8):
                    top = 1.2 + 2.1 * step
                    arrow(ax, (3.5 + at, top), (3.5 + at, top + 1.1), "#AAAAAA")
                    if at >= reach:
                        arrow(ax, (3.5 + at - reach, top), (3.5 + at, top + 1.1))
                label(ax, 11.5, 1.75 + 2.1 * step, f"add the value {reach} to the left", side="left")
                values = [one + (values[at - reach] if at >= reach else 0) for at, one in enumerate(values)]

    return Drawing("running sums in three steps", "8 columns; a barrier between the steps.", 18, 7.7, paint)


SCAN = Puzzle(
    name="scan",
    claim="out[r, c] = x[r, 0] + ... + x[r, c]",
    spec=running_sum,
    parameters=("out", "x", "cols"),
    inputs={"x": randn("rows", "cols", mean=1.0)},
    sizes=({"rows": 2, "cols": 100}, {"rows": 2, "cols": 300}),
    launches={
        "CUDA": PuzzleLaunch(("rows",), (_THREADS,)),
        "Triton": PuzzleLaunch(("rows",), constants={"BLOCK": "128"}),
    },
    goals=(
        Goal(
            "global_sectors",
            220,
            "one thread does the work of all",
            "Requests of single threads: each moves a sector of 32 bytes for 4. Let every thread load its own column, "
            "and add in shared memory.",
        ),
    ),
    mistakes=(
        Mistake(
            "running sums not added up",
            computes(lambda x: x),
            "The output is x so far: add the columns before.",
        ),
        Mistake(
            "sum without the element itself",
            computes(lambda x: x.cumsum(1) - x, lambda x: _in_chunks(x) - x),
            "This is the exclusive scan. Here out[r, c] includes x[r, c].",
        ),
        Mistake(
            "carry left out",
            computes(_in_chunks),
            "Every 128 columns the sum begins at zero again. Add the sum of all chunks before: the last value of each "
            "chunk is carried to the next.",
        ),
        Mistake(
            "only the last chunk carried",
            computes(lambda x: _in_chunks(x) + _chunk_before(x)),
            "The carry is the sum of all chunks before, not of the last one: add to it with +=.",
        ),
        Mistake(
            "doubling ends too early",
            computes(*(_in_windows(width) for width in (2, 4, 8, 16, 32, 64))),
            "Each sum has only the columns near it: the steps are 1, 2, 4, ... while they are below 128.",
        ),
    ),
    hints=(
        "In step s = 1, 2, 4, ..., 64 each thread adds the value of the thread s to its left. After 7 steps a thread "
        "has the sum of all threads before it. In Triton that is tl.cumsum(values, 0).",
        "A thread must not overwrite a value that another one still reads. Keep two rows in shared memory, read one, "
        "write the other, swap: one __syncthreads() per step is then enough.",
        "For more than 128 columns loop over chunks. Keep the sum of the chunks before in a register, add it to every "
        "output, and add the chunk's last value to it. A barrier before the next chunk is loaded.",
    ),
    draw=_draw_scan,
)

PUZZLES = (STENCIL, REDUCTION, SCAN)
