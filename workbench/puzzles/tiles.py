"""The puzzles about tiles: transpose without conflicts and tiled matmul."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workbench.ops.tensors.inputs import randint, randn
from workbench.puzzles.drawing import BLANK, FACES, SHARED, WRONG, Drawing, cells, grid, label
from workbench.puzzles.signs import computes, leaves
from workbench.puzzles.task import Goal, Mistake, Puzzle, PuzzleLaunch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TILE = 16


# -- transpose --------------------------------------------------------------------------------------------------


def transpose(x: Tensor) -> Tensor:
    """Turn rows into columns."""
    return x.T.contiguous()


def _draw_transpose() -> Drawing:
    def paint(ax: Axes) -> None:
        def banks(width: int) -> list[list[int]]:
            return [[(row * width + column) % 4 for column in range(4)] for row in range(4)]

        def face(width: int) -> Callable:
            return lambda row, column: FACES[(row * width + column) % 4] if column == 0 else BLANK

        grid(ax, 0.2, 1.4, banks(4), face(4), "tile[4][4]")
        label(ax, 4.6, 2.5, "a column: one bank,", WRONG, "left")
        label(ax, 4.6, 3.2, "one access after the other", WRONG, "left")
        grid(ax, 12.2, 1.4, banks(5), face(5), "tile[4][5]")
        for row in range(4):
            cells(ax, 16.2, 1.4 + row, [(row * 5 + 4) % 4], SHARED, dashed=True)
        label(ax, 17.6, 2.5, "a column: four banks,", side="left")
        label(ax, 17.6, 3.2, "all at once", side="left")

    caption = "A number is the bank of a cell: 4 banks here, 32 on a GPU. The dashed column holds nothing."
    return Drawing("a tile in shared memory, read by columns", caption, 22.5, 5.6, paint)


TRANSPOSE = Puzzle(
    name="transpose",
    claim="out[c, r] = x[r, c]",
    spec=transpose,
    parameters=("out", "x", "rows", "cols"),
    inputs={"x": randn("rows", "cols")},
    sizes=({"rows": 40, "cols": 72}, {"rows": 64, "cols": 96}),
    launches={
        "CUDA": PuzzleLaunch(("cdiv(cols, 32)", "cdiv(rows, 32)"), (32, 8)),
        "Triton": PuzzleLaunch(("cdiv(cols, 32)", "cdiv(rows, 32)"), constants={"TILE": "32"}),
    },
    goals=(
        Goal(
            "global_sectors",
            2 * 64 * 96 * 4 // 32,
            "rows read and columns written",
            "Neighbouring threads read a row and write a column, each to a sector of its own. Let them read a row of x "
            "into a tile in shared memory, and write a row of out from it.",
        ),
        Goal(
            "shared_conflicts",
            0,
            "bank conflicts",
            "The elements of a column of the tile lie in one of the 32 banks, so that the threads of a warp wait for "
            "each other. Make the rows one element longer: tile[32][33].",
            ("CUDA",),
        ),
    ),
    mistakes=(
        Mistake(
            "copied, not transposed",
            computes(lambda x, rows, cols: x.reshape(cols, rows)),
            "The output has the elements in the order of x: element (r, c) of x belongs to out[c * rows + r].",
        ),
        Mistake(
            "tile not transposed",
            computes(
                lambda x, rows, cols: _tiles_moved(x, rows, cols, torch.nan),
                lambda x, rows, cols: _tiles_moved(x, rows, cols, 0.0),
            ),
            "The tiles are in the right places, and each of them is as it was: read "
            "tile[threadIdx.x][threadIdx.y + j].",
        ),
        Mistake(
            "wrong stride of the output's rows",
            leaves(
                lambda rows, cols: (
                    ~_hit(cols * rows, torch.arange(cols)[:, None] * cols + torch.arange(rows), (cols, rows))
                )
            ),
            "The output has cols rows of rows elements each: the index is c * rows + r.",
        ),
        Mistake(
            "blocks not swapped",
            leaves(lambda rows, cols: (torch.arange(cols) >= -(-rows // 32) * 32)[:, None].expand(cols, rows)),
            "The tile of block (x, y) is read at column x * 32 and row y * 32, and written at row x * 32 and column "
            "y * 32.",
        ),
        Mistake(
            "rows after the first 8 of a tile left out",
            leaves(lambda rows, cols: (torch.arange(cols) % 32 >= 8)[:, None].expand(cols, rows)),
            "A block has 8 rows of threads and a tile 32 rows: each thread moves 4 elements, in a loop over "
            "j = 0, 8, 16, 24.",
        ),
    ),
    hints=(
        "A block moves a tile of 32 x 32: it reads 32 rows of x and writes 32 rows of out. In between the tile is in "
        "shared memory. There are 8 rows of threads, so each thread moves 4 elements. In Triton load a tile with "
        "pointers of shape [TILE, TILE] and store tl.trans(tile).",
        "The block's tile of out begins at row blockIdx.x * 32 and column blockIdx.y * 32. Let threadIdx.x run along "
        "the rows of out when writing: r = blockIdx.y * 32 + threadIdx.x, c = blockIdx.x * 32 + threadIdx.y + j.",
        "A warp then reads a column of the tile. In tile[32][32] a column lies in one bank; in tile[32][33] it lies in "
        "32 banks. And a __syncthreads() between writing and reading.",
    ),
    draw=_draw_transpose,
)


def _tiles_moved(x: Tensor, rows: int, cols: int, outside: float) -> Tensor:
    """Move tiles of 32 x 32 to the right place without transposing them."""
    high, wide = -(-rows // 32) * 32, -(-cols // 32) * 32
    padded = torch.full((high, wide), outside)
    padded[:rows, :cols] = x
    moved = padded.view(high // 32, 32, wide // 32, 32).permute(2, 1, 0, 3).reshape(wide, high)
    return moved[:cols, :rows]


def _hit(count: int, places: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a mask of the elements that are among ``places`` in memory."""
    mask = torch.zeros(count, dtype=torch.bool)
    mask[places[places < count]] = True
    return mask.view(shape)


# -- matmul -----------------------------------------------------------------------------------------------------


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Multiply two matrices."""
    return a @ b


def _flipped(matrix: Tensor) -> Tensor:
    """Return a matrix whose tiles are transposed in their places, with zeros around it."""
    rows, cols = (-(-size // _TILE) for size in matrix.shape)
    padded = torch.zeros(rows * _TILE, cols * _TILE)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded.view(rows, _TILE, cols, _TILE).transpose(1, 3).reshape(rows * _TILE, cols * _TILE)


def _elementwise(a: Tensor, b: Tensor) -> Tensor:
    """Return the sums of tiles that are multiplied element by element."""
    depth = -(-a.shape[1] // _TILE) * _TILE
    a = torch.nn.functional.pad(a, (0, depth - a.shape[1]))
    b = torch.nn.functional.pad(b, (0, 0, 0, depth - len(b)))
    i, j = torch.arange(len(a)) % _TILE, torch.arange(b.shape[1]) % _TILE
    return sum(a[:, start + j] * b[start + i] for start in range(0, depth, _TILE))


def _strided(a: Tensor, stride: int, k: int) -> Tensor:
    """Return rows of ``a`` that are read with another stride; NaN behind its end."""
    places = torch.arange(len(a))[:, None] * stride + torch.arange(k)
    return torch.where(places < a.numel(), a.flatten()[places.clamp(max=a.numel() - 1)], torch.nan)


def _widths(k: int) -> list[int]:
    """Return how much of each tile along k exists."""
    return [min(_TILE, k - start) for start in range(0, k, _TILE)]


def _product_with(flip_a: bool, flip_b: bool) -> Callable:
    """Return the product with tiles transposed by mistake."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        depth = -(-a.shape[1] // _TILE) * _TILE
        left = _flipped(a) if flip_a else torch.nn.functional.pad(a, (0, depth - a.shape[1], 0, -a.shape[0] % _TILE))
        right = _flipped(b) if flip_b else torch.nn.functional.pad(b, (0, -b.shape[1] % _TILE, 0, depth - b.shape[0]))
        return (left @ right)[: a.shape[0], : b.shape[1]]

    return product


def _draw_matmul() -> Drawing:
    def paint(ax: Axes) -> None:
        def row(r: int, c: int) -> str:
            return FACES[c // 2] if r in (2, 3) else BLANK

        def column(r: int, c: int) -> str:
            return FACES[r // 2] if c in (2, 3) else BLANK

        def face(r: int, c: int) -> str:
            return SHARED if r > 1 and c > 1 else BLANK

        grid(ax, 0.2, 8, [[c // 2 if r > 1 else "" for c in range(6)] for r in range(4)], row, "a")
        grid(ax, 7.6, 1, [[r // 2 if c > 1 else "" for c in range(4)] for r in range(6)], column, "b")
        grid(ax, 7.6, 8, [["Σ" if r > 1 and c > 1 else "" for c in range(4)] for r in range(4)], face, "out")
        label(ax, 12.6, 3, "step 0: the tiles 0 of a and b go to shared", side="left")
        label(ax, 12.6, 3.8, "memory and are multiplied; then the tiles 1,", side="left")
        label(ax, 12.6, 4.6, "then the tiles 2; Σ adds up the products", side="left")
        label(ax, 12.6, 10.5, "Σ: a block's tile, a thread for each element", side="left")

    return Drawing("a tile of the product", "Tiles of 2 x 2 here, of 16 x 16 in the puzzle.", 25, 12.2, paint)


MATMUL = Puzzle(
    name="matmul",
    claim="out[i, j] = a[i, 0] * b[0, j] + ... + a[i, k - 1] * b[k - 1, j]",
    spec=matmul,
    parameters=("out", "a", "b", "m", "n", "k"),
    inputs={
        "a": randint(-4, 5, "m", "k", dtype="float32"),
        "b": randint(-4, 5, "k", "n", dtype="float32"),
    },
    sizes=({"m": 20, "n": 24, "k": 40}, {"m": 48, "n": 48, "k": 48}),
    launches={
        "CUDA": PuzzleLaunch(("cdiv(n, 16)", "cdiv(m, 16)"), (_TILE, _TILE)),
        "Triton": PuzzleLaunch(("cdiv(n, 16)", "cdiv(m, 16)"), constants={"TILE": "16"}),
    },
    goals=(
        Goal(
            "global_load_sectors",
            2000,
            "tiles not shared",
            "Every thread loads its row and column from global memory, and its 15 neighbours load them again. Let the "
            "block load a tile of each matrix into shared memory, and multiply the tiles.",
        ),
        Goal(
            "shared_conflicts",
            0,
            "bank conflicts",
            "Let neighbouring threads read neighbouring elements of a tile, or all the same one.",
            ("CUDA",),
        ),
    ),
    mistakes=(
        Mistake(
            "tile of b read with its indices swapped",
            computes(_product_with(False, True)),
            "The tile of b is read as [column][step]: the step along k is its row, so it is bs[s][threadIdx.x].",
        ),
        Mistake(
            "tile of a read with its indices swapped",
            computes(_product_with(True, False)),
            "The tile of a is read as [step][row]: the step along k is its column, so it is as[threadIdx.y][s].",
        ),
        Mistake(
            "only the first tiles",
            computes(lambda a, b: a[:, :_TILE] @ b[:_TILE]),
            "k is longer than a tile: loop over the tiles along k, and add up.",
        ),
        Mistake(
            "multiplied element by element",
            computes(_elementwise),
            "The tiles are multiplied as matrices: tl.dot(left, right), not left * right.",
        ),
        Mistake(
            "wrong stride of a",
            computes(lambda a, b, n, k: _strided(a, n, k) @ b),
            "A row of a has k elements, so that the next begins k further: i * k.",
        ),
        Mistake(
            "first tiles in every step",
            computes(
                lambda a, b, k: -(-k // _TILE) * (a[:, :_TILE] @ b[:_TILE]),
                lambda a, b, k: sum(a[:, :wide] @ b[:wide] for wide in _widths(k)),
            ),
            "The loop multiplies the same tiles again: the loads have to move by a tile along k in each step.",
        ),
        Mistake(
            "only the last tiles",
            computes(lambda a, b, k: a[:, (k - 1) // _TILE * _TILE :] @ b[(k - 1) // _TILE * _TILE :]),
            "Each step replaces the sum of those before: add with +=, or acc = tl.dot(a, b, acc).",
        ),
    ),
    hints=(
        "A block computes a tile of 16 x 16. In each step along k it loads a tile of a and one of b into shared "
        "memory, one element of each per thread, and multiplies them. In Triton tl.dot multiplies tiles.",
        "Columns of a and rows of b beyond k, and rows and columns beyond m and n, count as 0: every thread stores to "
        "both tiles in every step, a 0 where nothing exists.",
        "Two barriers in each step: one before the tiles are read, one before the next ones are loaded.",
    ),
    draw=_draw_matmul,
)

PUZZLES = (TRANSPOSE, MATMUL)
