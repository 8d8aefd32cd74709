"""The first puzzles: map, zip and guard, in which a thread computes an element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workbench.ops.tensors.inputs import randn
from workbench.puzzles.drawing import BLANK, FACES, SHARED, WRONG, Drawing, arrow, brace, cells, grid, label
from workbench.puzzles.signs import computes, finds, leaves
from workbench.puzzles.task import Goal, Mistake, Puzzle, PuzzleLaunch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAR_APART = "neighbouring threads far apart"
COALESCE = (
    "A warp's 32 threads access memory together, in sectors of 32 bytes. Let neighbouring threads have neighbouring "
    "elements, so that every byte of a sector is used."
)


# -- map --------------------------------------------------------------------------------------------------------


def square(x: Tensor) -> Tensor:
    """Square every element."""
    return x * x


def _draw_map() -> Drawing:
    def paint(ax: Axes) -> None:
        faces = [FACES[at // 4] for at in range(12)]
        cells(ax, 2.6, 1, [f"x{at}" for at in range(12)], faces, "x")
        cells(ax, 2.6, 2.7, [at % 4 for at in range(12)], SHARED, "threads")
        cells(ax, 2.6, 4.4, [f"x{at}²" for at in range(12)], faces, "out")
        for at in range(12):
            arrow(ax, (3.1 + at, 2), (3.1 + at, 2.7))
            arrow(ax, (3.1 + at, 3.7), (3.1 + at, 4.4))
        for block in range(3):
            brace(ax, 2.6 + 4 * block, 6.6 + 4 * block, 0.7, f"block {block}")

    return Drawing("a thread squares one element", "Blocks of 4 threads here, of 128 in the puzzle.", 15, 5.6, paint)


MAP = Puzzle(
    name="map",
    claim="out[i] = x[i] * x[i]",
    spec=square,
    parameters=("out", "x"),
    inputs={"x": randn("n", mean=3.0)},
    sizes=({"n": 128}, {"n": 512}),
    launches={
        "CUDA": PuzzleLaunch(("n // 128",), (128,)),
        "Triton": PuzzleLaunch(("n // 128",), constants={"BLOCK": "128"}),
    },
    goals=(Goal("global_sectors", 2 * 512 * 4 // 32, FAR_APART, COALESCE),),
    mistakes=(
        Mistake(
            "input copied",
            computes(lambda x: x),
            "The output is the input so far: multiply each element with itself.",
        ),
        Mistake(
            "doubled, not squared",
            computes(lambda x: 2 * x),
            "x[i] + x[i] is twice the element: multiply it with itself.",
        ),
        Mistake(
            "thread index left out",
            leaves(lambda n: torch.arange(n) >= n // 128),
            "All threads of a block do the same element: add threadIdx.x, in Triton tl.arange(0, BLOCK).",
        ),
        Mistake(
            "index off by one",
            leaves(lambda n: torch.arange(n) == 0),
            "The first element has the index 0. Nothing is added to blockIdx.x * blockDim.x + threadIdx.x.",
        ),
        Mistake(
            "block index left out",
            leaves(lambda n: torch.arange(n) >= 128),
            "Every block does the same elements. A thread's element is blockIdx.x * blockDim.x + threadIdx.x; in "
            "Triton a program's first element is tl.program_id(0) * BLOCK.",
        ),
        Mistake(
            "block size left out",
            leaves(lambda n: torch.arange(n) >= 128 + n // 128 - 1),
            "Neighbouring blocks overlap but for one element: multiply the block's index by the number of its threads "
            "(blockDim.x, BLOCK).",
        ),
    ),
    hints=(
        "The launch has n / 128 blocks of 128 threads. Which numbers tell a thread its block, and its place in it?",
        "The element of a thread is i = blockIdx.x * blockDim.x + threadIdx.x. In Triton a program has 128 elements at "
        "once: their indices are tl.program_id(0) * BLOCK + tl.arange(0, BLOCK).",
        "CUDA: out[i] = x[i] * x[i]. Triton: value = tl.load(x + at), then tl.store(out + at, value * value).",
    ),
    draw=_draw_map,
)


# -- zip --------------------------------------------------------------------------------------------------------


def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """Add the bias of its column to every element."""
    return x + bias


def _draw_zip() -> Drawing:
    def paint(ax: Axes) -> None:
        def face(row: int, column: int) -> str:
            return FACES[1] if (row, column) == (1, 4) else BLANK

        grid(ax, 0, 1.2, [[f"{r},{c}" for c in range(5)] for r in range(3)], face, "x[r, c]")
        cells(ax, 0, 5.6, [f"b{c}" for c in range(5)], [FACES[1] if c == 4 else BLANK for c in range(5)])
        label(ax, 0, 5.3, "bias[c]", side="left")
        grid(ax, 9, 1.2, [["" for _ in range(5)] for _ in range(3)], face, "out[r, c]")
        label(ax, 7, 2.7, "+")
        arrow(ax, (5, 2.7), (6.8, 2.7))
        arrow(ax, (5, 6.1), (6.9, 3))
        arrow(ax, (7.2, 2.7), (9, 2.7))
        label(ax, 9.2, 5.6, "in memory x is one row after the other:", side="left")
        label(ax, 9.2, 6.2, "x[r, c] is element r * cols + c", side="left")

    return Drawing("two inputs of different shapes", "The bias of a column goes to every row.", 16, 6.8, paint)


ZIP = Puzzle(
    name="zip",
    claim="out[r, c] = x[r, c] + bias[c]",
    spec=add_bias,
    parameters=("out", "x", "bias", "rows", "cols"),
    inputs={"x": randn("rows", "cols"), "bias": randn("cols", std=10.0)},
    sizes=({"rows": 4, "cols": 32}, {"rows": 8, "cols": 128}),
    launches={
        "CUDA": PuzzleLaunch(("cols // 32", "rows // 4"), (32, 4)),
        "Triton": PuzzleLaunch(("rows",), constants={"BLOCK": "cols"}),
    },
    goals=(Goal("global_sectors", 3 * 8 * 128 * 4 // 32, FAR_APART, COALESCE),),
    mistakes=(
        Mistake(
            "bias left out",
            computes(lambda x: x),
            "The output is x so far: add bias[c].",
        ),
        Mistake(
            "first bias for all",
            computes(lambda x, bias: x + bias[0]),
            "Every column has a bias of its own: bias[c], in Triton bias + c.",
        ),
        Mistake(
            "columns one after the other",
            computes(lambda x, bias, rows, cols: (x.reshape(cols, rows) + bias[:, None]).reshape(rows, cols)),
            "Memory holds row after row, so that element (r, c) has the index r * cols + c, not c * rows + r.",
        ),
        Mistake(
            "block index left out",
            leaves(lambda rows, cols: (torch.arange(rows) >= 4)[:, None] | (torch.arange(cols) >= 32)),
            "Every block does the same rows and columns: blockIdx belongs to both indices.",
        ),
        Mistake(
            "block index of the columns left out",
            leaves(lambda rows, cols: (torch.arange(cols) >= 32).expand(rows, cols)),
            "Every block does the same 32 columns: c = blockIdx.x * blockDim.x + threadIdx.x.",
        ),
        Mistake(
            "block index of the rows left out",
            leaves(lambda rows, cols: (torch.arange(rows) >= 4)[:, None].expand(rows, cols)),
            "Every block does the same 4 rows: r = blockIdx.y * blockDim.y + threadIdx.y.",
        ),
        Mistake(
            "row left out",
            leaves(lambda rows, cols: (torch.arange(rows) >= 1)[:, None].expand(rows, cols)),
            "Every thread does row 0. A thread's row is blockIdx.y * blockDim.y + threadIdx.y, in Triton "
            "tl.program_id(0).",
        ),
        Mistake(
            "bias taken by the row",
            computes(lambda x, bias: x + bias[: x.shape[0], None]),
            "The bias has an element for each column: bias[c], not bias[r].",
        ),
        Mistake(
            "wrong stride of the rows",
            leaves(lambda rows, cols: torch.arange(rows * cols).view(rows, cols) >= (rows - 1) * rows + cols),
            "From one row to the next are cols elements, not rows: the index is r * cols + c.",
        ),
        Mistake(
            "rows and columns swapped",
            leaves(lambda rows, cols: (torch.arange(cols) >= max(rows, 4)).expand(rows, cols)),
            "The x index runs over the columns (grid (cols / 32, ...), 32 threads), the y index over the rows.",
        ),
    ),
    hints=(
        "Find the row and the column of a thread first. x counts columns: c = blockIdx.x * 32 + threadIdx.x. y counts "
        "rows. In Triton a program has one row.",
        "Rows lie one after the other in memory: element (r, c) is x[r * cols + c].",
        "CUDA: out[r * cols + c] = x[r * cols + c] + bias[c]. Triton: c = tl.arange(0, BLOCK), and x + r * cols + c "
        "points to a row.",
    ),
    draw=_draw_zip,
)


# -- guard ------------------------------------------------------------------------------------------------------


def relu(x: Tensor) -> Tensor:
    """Replace negative elements by 0."""
    return torch.clamp(x, min=0)


def _draw_guard() -> Drawing:
    def paint(ax: Axes) -> None:
        faces = [FACES[at // 4] if at < 10 else SHARED for at in range(12)]
        cells(ax, 2.6, 1, range(12), faces, "threads")
        cells(ax, 2.6, 3.2, [f"x{at}" for at in range(10)], [FACES[at // 4] for at in range(10)], "x")
        for at in range(10):
            arrow(ax, (3.1 + at, 2), (3.1 + at, 3.2))
        for at in (10, 11):
            arrow(ax, (3.1 + at, 2), (3.1 + at, 3.3), WRONG)
            label(ax, 3.1 + at, 3.65, "✗", WRONG)
        for block in range(3):
            brace(ax, 2.6 + 4 * block, 6.6 + 4 * block, 0.7, f"block {block}")
        label(ax, 15, 3.7, "not x's memory", WRONG, side="left")

    return Drawing(
        "threads without an element", "n = 10 and blocks of 4: three blocks have 12 threads.", 19, 4.4, paint
    )


GUARD = Puzzle(
    name="guard",
    claim="out[i] = max(x[i], 0), for any n",
    spec=relu,
    parameters=("out", "x", "n"),
    inputs={"x": randn("n")},
    sizes=({"n": 200}, {"n": 1000}),
    launches={
        "CUDA": PuzzleLaunch(("cdiv(n, 128)",), (128,)),
        "Triton": PuzzleLaunch(("cdiv(n, 128)",), constants={"BLOCK": "128"}),
    },
    goals=(Goal("global_sectors", 2 * 1000 * 4 // 32, FAR_APART, COALESCE),),
    mistakes=(
        Mistake(
            "negative elements kept",
            computes(lambda x: x),
            "The output is x so far: negative elements become 0.",
        ),
        Mistake(
            "smaller instead of larger",
            computes(lambda x: x.clamp(max=0)),
            "This keeps the negative elements: take the larger of x[i] and 0, fmaxf or tl.maximum.",
        ),
        Mistake(
            "store without a guard",
            finds("out-of-bounds", "out", unless="x"),
            "The load has a guard and the store has none. Threads without an element must not write either: if (i < n) "
            "around both, in Triton mask=at < n for tl.store too.",
        ),
        Mistake(
            "last element left out",
            leaves(lambda n: torch.arange(n) == n - 1),
            "The last element has the index n - 1, and n - 1 < n: the guard is i < n.",
        ),
        Mistake(
            "last block left out",
            leaves(lambda n: torch.arange(n) >= n // 128 * 128),
            "A block that is not full has elements, too: compare the thread's index with n, not the block's.",
        ),
    ),
    hints=(
        "For n = 200 the launch has two blocks of 128 threads, 256 in all. Which threads have nothing to do?",
        "Compare the element's index with n before memory is touched: if (i < n). Triton has no if for elements: "
        "tl.load and tl.store take mask=, which is True where an element exists.",
        "Triton: tl.load(x + at, mask=at < n), and the same mask for tl.store. tl.maximum(value, 0.0) is the larger.",
    ),
    draw=_draw_guard,
)

PUZZLES = (MAP, ZIP, GUARD)
