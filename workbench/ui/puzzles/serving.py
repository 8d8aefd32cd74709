"""The puzzles from serving a language model: online softmax, paged read and quantize."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workbench.ops.own.inputs import randn
from workbench.ui.puzzles.drawing import BLANK, FACES, SHARED, Drawing, arrow, cells, label
from workbench.ui.puzzles.elements import COALESCE, FAR_APART
from workbench.ui.puzzles.run import PuzzleRun
from workbench.ui.puzzles.signs import Evidence, computes, finds, wrong_only
from workbench.ui.puzzles.task import Goal, LaunchShape, Mistake, Puzzle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LANES = 32


# -- online softmax ---------------------------------------------------------------------------------------------


def weighted_mean(x: Tensor, v: Tensor) -> Tensor:
    """Weight the values v by the softmax of every row."""
    return torch.softmax(x, dim=1) @ v


def _four_rows(cols: int, generator: torch.Generator) -> Tensor:
    """Return a row that falls, one that rises, one far below zero and a random one."""
    noise = torch.randn(2, cols, generator=generator)
    slope = torch.linspace(0, 40, cols)
    return torch.stack([40 - slope, slope, noise[0] - 200, noise[1]])


def _lanes_unscaled(x: Tensor, v: Tensor) -> Tensor:
    """Compute the mean with lanes that are added without regard to their maxima."""
    x = torch.nn.functional.pad(x, (0, -x.shape[1] % _LANES), value=-torch.inf)
    v = torch.nn.functional.pad(v, (0, -len(v) % _LANES))
    lanes = x.view(len(x), -1, _LANES)
    weights = (lanes - lanes.amax(1, keepdim=True)).exp()
    return (weights * v.view(-1, _LANES)).sum((1, 2)) / weights.sum((1, 2))


def _rising_row_wrong(run: PuzzleRun) -> Evidence | None:
    """Return the evidence that the falling row is right and the rising row wrong."""
    first = run.wrong["out"][:2].tolist()
    return Evidence(run.values()) if run.has_wrong_values and first == [False, True] else None


def _draw_online() -> Drawing:
    def paint(ax: Axes) -> None:
        cells(ax, 4, 0.2, [1, 3, 2, 5], [BLANK, BLANK, BLANK, FACES[1]], "x[r]")
        rows = [("max", ["1", "3", "3", "5"]), ("sum", ["1", "1.14", "1.50", "1.20"])]
        for top, (name, values) in zip((2.2, 3.7), rows, strict=True):
            cells(ax, 4, top, values, [SHARED, SHARED, SHARED, FACES[1]], name)
        arrow(ax, (7.5, 1.2), (7.5, 2.2))
        label(ax, 9, 0.7, "5 is larger than every number before:", side="left")
        label(ax, 9, 2.7, "the maximum grows from 3 to 5,", side="left")
        label(ax, 9, 4.2, "the old sum shrinks by exp(3 - 5) before 1 is added:", side="left")
        label(ax, 9, 5, "1.50 * 0.135 + 1 = 1.20", side="left")

    return Drawing("softmax in one pass", "The sum always belongs to the largest number so far.", 25, 5.8, paint)


ONLINE = Puzzle(
    name="online_softmax",
    claim="out[r] = softmax(x[r]) . v, each x read once",
    spec=weighted_mean,
    parameters=("out", "x", "v", "cols"),
    inputs={"x": _four_rows, "v": randn("cols", mean=2.0)},
    sizes=({"cols": 100}, {"cols": 1000}),
    launches={
        "CUDA": LaunchShape(("4",), (_LANES,)),
        "Triton": LaunchShape(("4",), constants={"BLOCK": "128"}),
    },
    goals=(
        Goal(
            "global_load_sectors",
            1100,
            "row read more than once",
            "The goal allows one pass over x and one over v. Keep maximum, sum and weighted sum together, and correct "
            "the two sums when the maximum grows.",
        ),
    ),
    mistakes=(
        Mistake(
            "old sums not rescaled",
            _rising_row_wrong,
            "A row that falls is right, one that rises is wrong: what was added under a smaller maximum is too large. "
            "Multiply both sums by exp(old maximum - new maximum) before the next number is added.",
        ),
        Mistake(
            "maximum that starts at 0",
            wrong_only(lambda x: x.amax(1) < 0),
            "Only a row far below zero is wrong. Begin the maximum with -INFINITY.",
        ),
        Mistake(
            "lanes added without rescaling",
            computes(_lanes_unscaled),
            "Each lane's sums belong to that lane's maximum. Bring both lanes to the larger maximum before you add.",
        ),
        Mistake(
            "not divided by the sum",
            computes(lambda x, v: (x - x.amax(1, keepdim=True)).exp() @ v),
            "Divide the weighted sum by the sum of the weights, at the end.",
        ),
    ),
    hints=(
        "A thread keeps three numbers: the maximum so far, the sum of exp(x - maximum), and the sum of "
        "exp(x - maximum) * v.",
        "For the next x: larger = max(maximum, x). Both sums are multiplied by exp(maximum - larger), then "
        "exp(x - larger), and that times v, are added. In Triton x is a block of 128 columns, and the sums are those "
        "of the block.",
        "CUDA: a warp has 32 such triples at the end. Two of them become one by the same rule: __shfl_xor_sync brings "
        "the other lane's three numbers, in steps of 16, 8, 4, 2, 1.",
    ),
    draw=_draw_online,
)


# -- paged read -------------------------------------------------------------------------------------------------


def paged_read(cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> Tensor:
    """Collect the tokens of every sequence, with zeros after its end."""
    num_seqs, max_blocks = block_tables.shape
    tokens = cache[block_tables.clamp(min=0).long()]  # [num_seqs, max_blocks, block_size, head_size]
    tokens = tokens.view(num_seqs, max_blocks * cache.shape[1], cache.shape[2])
    exists = torch.arange(tokens.shape[1]) < seq_lens[:, None]
    return torch.where(exists[:, :, None], tokens, 0.0)


def _tables(num_seqs: int, max_blocks: int, block_size: int, generator: torch.Generator) -> Tensor:
    """Return tables of blocks in no order, with -1 behind the blocks that a sequence needs."""
    order = torch.randperm(num_seqs * max_blocks, generator=generator).int().view(num_seqs, max_blocks)
    used = -(-_lengths(num_seqs, max_blocks, block_size) // block_size)
    return torch.where(torch.arange(max_blocks) < used[:, None], order, -1)


def _lengths(num_seqs: int, max_blocks: int, block_size: int) -> Tensor:
    """Return lengths of sequences: the first full, each other one shorter, and not a multiple of the page."""
    return (max_blocks * block_size - torch.arange(num_seqs) * (block_size + 1)).clamp(min=1).int()


def _read(cache: Tensor, tables: Tensor, lengths: Tensor, page: Callable, slot: Callable) -> Tensor:
    """Return what a kernel reads that takes a token's page and slot otherwise; NaN for a page that does not exist."""
    tokens = torch.arange(tables.shape[1] * cache.shape[1])
    pages = page(tables, tokens)
    found = cache[pages.clamp(0, len(cache) - 1).long(), slot(tokens)]
    exists = tokens < lengths[:, None]
    return torch.where(exists[:, :, None], found, 0.0)


def _without_table(cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> Tensor:
    size = cache.shape[1]
    return _read(cache, block_tables, seq_lens, lambda t, at: (at // size).expand(len(t), -1), lambda at: at % size)


def _without_table_by_sequence(cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> Tensor:
    size, blocks = cache.shape[1], block_tables.shape[1]
    start = torch.arange(len(block_tables))[:, None] * blocks
    return _read(cache, block_tables, seq_lens, lambda t, at: start + at // size, lambda at: at % size)


def _first_table(cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> Tensor:
    first = block_tables[:1].expand_as(block_tables)
    return paged_read(cache, first, seq_lens)


def _first_slot(cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> Tensor:
    size = cache.shape[1]
    return _read(cache, block_tables, seq_lens, lambda t, at: t[:, at // size], lambda at: at * 0)


def _swapped(cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> Tensor:
    size = cache.shape[1]
    return _read(cache, block_tables, seq_lens, lambda t, at: t[:, at % size], lambda at: at // size)


def _draw_paged() -> Drawing:
    def paint(ax: Axes) -> None:
        cells(ax, 4.5, 0.2, [f"t{at}" for at in range(10)], [FACES[at // 4] for at in range(10)], "tokens")
        cells(ax, 4.5, 2.6, [5, 0, 3, -1], [*FACES[:3], BLANK], "block_tables[s]")
        for page in range(3):
            arrow(ax, (6.5 + 4 * page if page < 2 else 13.5, 1.2), (5 + page, 2.6))
        for block in range(6):
            face = {5: FACES[0], 0: FACES[1], 3: FACES[2]}.get(block, BLANK)
            left = 0.2 + 4.4 * block
            tokens = {5: range(4), 0: range(4, 8), 3: range(8, 10)}.get(block, ())
            cells(ax, left, 5, [*(f"t{token}" for token in tokens), *[""] * (4 - len(tokens))], face)
            label(ax, left + 2, 6.4, f"page {block}")
        for page, block in enumerate((5, 0, 3)):
            arrow(ax, (5 + page, 3.6), (2.2 + 4.4 * block, 5))

    caption = "Token t is in slot t % block_size of page block_tables[s, t / block_size]; -1 is no page."
    return Drawing("a sequence whose tokens lie in pages", caption, 26.6, 7, paint)


PAGED_READ = Puzzle(
    name="paged_read",
    claim="out[s, t] = cache[block_tables[s, t / block_size], t % block_size], 0 for t >= seq_lens[s]",
    spec=paged_read,
    parameters=("out", "cache", "block_tables", "seq_lens", "block_size", "max_blocks"),
    inputs={
        "cache": lambda num_seqs, max_blocks, block_size, generator: torch.randn(
            num_seqs * max_blocks, block_size, 64, generator=generator
        ),
        "block_tables": _tables,
        "seq_lens": _lengths,
    },
    sizes=(
        {"num_seqs": 1, "max_blocks": 4, "block_size": 4},
        {"num_seqs": 3, "max_blocks": 4, "block_size": 4},
    ),
    launches={
        "CUDA": LaunchShape(("max_blocks * block_size", "num_seqs"), (64,)),
        "Triton": LaunchShape(("max_blocks * block_size", "num_seqs"), constants={"HEAD_SIZE": "64"}),
    },
    goals=(
        Goal("global_sectors", 850, FAR_APART, COALESCE, ("CUDA",)),
        Goal("global_sectors", 1400, FAR_APART, COALESCE, ("Triton",)),
    ),
    mistakes=(
        Mistake(
            "table not used",
            computes(_without_table, _without_table_by_sequence),
            "The pages of a sequence lie anywhere: t / block_size is the place in the table, and the page's number "
            "stands there.",
        ),
        Mistake(
            "table of the first sequence for all",
            computes(_first_table),
            "Every sequence has a row of max_blocks entries in the table: "
            "block_tables[s * max_blocks + t / block_size].",
        ),
        Mistake(
            "page and slot swapped",
            computes(_swapped),
            "t / block_size (rounded down) is the place in the table, t % block_size the slot in the page.",
        ),
        Mistake(
            "token taken for its page",
            finds("out-of-bounds", "block_tables"),
            "The table has an entry for each page, not for each token: divide t by block_size.",
        ),
        Mistake(
            "slot in the page left out",
            computes(_first_slot),
            "Every token of a page gets the page's first one: add the slot, t % block_size.",
        ),
        Mistake(
            "tokens beyond the sequence read",
            finds("out-of-bounds", "cache"),
            "Behind a sequence's last page the table holds -1, which is no page. Compare t with seq_lens[s] before you "
            "read the table, and write 0.",
        ),
    ),
    hints=(
        "A block reads one token: t = blockIdx.x of sequence s = blockIdx.y, and each of its 64 threads one element. "
        "First: does the token exist? Compare t with seq_lens[s].",
        "Its page has the number block_tables[s * max_blocks + t / block_size]; in the page it has the slot "
        "t % block_size.",
        "A page has block_size * 64 elements: the token's first element is (page * block_size + slot) * 64.",
    ),
    draw=_draw_paged,
)


# -- quantize ---------------------------------------------------------------------------------------------------


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round every row to bytes, with a scale that makes its largest magnitude 127."""
    scale = x.abs().amax(dim=1) / 127
    return torch.round(x / scale[:, None]).to(torch.int8), scale


def _off_ties(rows: int, cols: int, generator: torch.Generator) -> Tensor:
    """Return rows whose quotients by their scales are never near a half, so that every way to round agrees."""
    whole = torch.randint(-126, 126, (rows, cols), generator=generator)
    x = whole + 0.8 * torch.rand(rows, cols, generator=generator) - 0.4
    x[:, 1] = -127.0  # the largest magnitude is negative
    return x * torch.tensor([0.5, 0.01, 3.0])[:, None]


def _scaled_by(largest: Callable) -> Callable:
    """Return what scales by another figure give, wrapped as a conversion to eight bits does."""

    def made(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = largest(x)
        return (torch.round(x / scale[:, None]).to(torch.int32)).to(torch.int8), scale

    return made


def _draw_quantize() -> Drawing:
    def paint(ax: Axes) -> None:
        cells(ax, 4, 0.2, ["0.6", "-2.5", "1.3", "0.1"], [BLANK, FACES[1], BLANK, BLANK], "x[r]")
        label(ax, 9, 0.7, "largest magnitude 2.5: scale = 2.5 / 127", side="left")
        cells(ax, 4, 2.2, ["30.5", "-127", "66.0", "5.1"], SHARED, "x / scale")
        label(ax, 9, 2.7, "between -127 and 127", side="left")
        cells(ax, 4, 4.2, ["30", "-127", "66", "5"], FACES[2], "q[r]")
        label(ax, 9, 4.7, "rounded to the nearest, a byte each", side="left")
        for top in (1.2, 3.2):
            for at in range(4):
                arrow(ax, (4.5 + at, top), (4.5 + at, top + 1))

    return Drawing("a row in bytes, with a scale", "x is about q * scale.", 21, 5.4, paint)


QUANTIZE = Puzzle(
    name="quantize",
    claim="scale[r] = max |x[r]| / 127, q[r, c] = x[r, c] / scale[r] rounded to the nearest",
    spec=quantize,
    parameters=("q", "scale", "x", "cols"),
    inputs={"x": lambda cols, generator: _off_ties(3, cols, generator)},
    sizes=({"cols": 100}, {"cols": 300}),
    launches={
        "CUDA": LaunchShape(("3",), (128,)),
        "Triton": LaunchShape(("3",), constants={"BLOCK": "512"}),
    },
    outputs=("q", "scale"),
    goals=(Goal("global_sectors", 300, FAR_APART, COALESCE),),
    mistakes=(
        Mistake(
            "cut off, not rounded",
            computes(lambda x: ((x / quantize(x)[1][:, None]).to(torch.int8), quantize(x)[1])),
            "A conversion to an integer drops the fraction. Round first: rintf in CUDA, "
            "tl.extra.cuda.libdevice.rint in Triton.",
        ),
        Mistake(
            "rounded up instead of to the nearest",
            computes(lambda x: (torch.floor(x / quantize(x)[1][:, None] + 1).to(torch.int8), quantize(x)[1])),
            "Add a half before rounding down, not one.",
        ),
        Mistake(
            "scale by 128",
            computes(_scaled_by(lambda x: x.abs().amax(1) / 128), lambda x: (None, x.abs().amax(1) / 128)),
            "A signed byte ends at 127: with max / 128 the largest number becomes 128, which wraps to -128.",
        ),
        Mistake(
            "sign of the largest forgotten",
            computes(_scaled_by(lambda x: x.amax(1) / 127), lambda x: (None, x.amax(1) / 127)),
            "The largest magnitude may be that of a negative number: take the maximum of fabsf(x), tl.abs(x).",
        ),
        Mistake(
            "multiplied by the scale",
            computes(lambda x: ((x * quantize(x)[1][:, None]).round().to(torch.int8), quantize(x)[1])),
            "q * scale gives x back: divide x by the scale.",
        ),
    ),
    hints=(
        "First the largest magnitude of the row, a reduction as before with fabsf(x); then every thread quantizes its "
        "columns.",
        "All threads need the scale: after the last step of the tree a barrier, and part[0] / 127.",
        "CUDA: (signed char)rintf(x / scale). Triton: tl.extra.cuda.libdevice.rint(x / scale).to(tl.int8). One thread "
        "writes the scale.",
    ),
    draw=_draw_quantize,
)

PUZZLES = (ONLINE, PAGED_READ, QUANTIZE)
