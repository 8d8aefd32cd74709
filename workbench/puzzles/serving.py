"""The puzzles from serving a language model: paged read and quantize."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workbench.puzzles.drawing import BLANK, FACES, SHARED, Drawing, arrow, cells, label
from workbench.puzzles.elements import COALESCE, FAR_APART
from workbench.puzzles.signs import computes, finds, leaves, wrong_only
from workbench.puzzles.task import Goal, Mistake, Puzzle, PuzzleLaunch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
_HEAD_SIZE = 64


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
    """Read the cache with another way to find a token's page and slot."""
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


def _flat(cache: Tensor, tables: Tensor, lengths: Tensor, place: Callable) -> Tensor:
    """Read the cache with another way to compute a token's first element."""
    size, width = cache.shape[1:]
    at = torch.arange(tables.shape[1] * size)
    pages = tables[:, at // size].clamp(min=0)
    first = place(pages, at % size, size, width)[:, :, None] + torch.arange(width)
    found = cache.flatten()[first.clamp(max=cache.numel() - 1).long()]
    return torch.where((at < lengths[:, None])[:, :, None], found, 0.0)


def _page_unscaled(cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> Tensor:
    return _flat(cache, block_tables, seq_lens, lambda page, slot, size, width: (page + slot) * width)


def _token_unscaled(cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> Tensor:
    return _flat(cache, block_tables, seq_lens, lambda page, slot, size, width: page * size + slot)


def _ends(lengths: Tensor, tokens: int) -> Tensor:
    """Return a mask of the first token after each sequence."""
    return (torch.arange(tokens) == lengths[:, None])[:, :, None]


def _beyond(lengths: Tensor, tokens: int) -> Tensor:
    """Return a mask of the tokens after each sequence."""
    return (torch.arange(tokens) >= lengths[:, None])[:, :, None].expand(-1, -1, _HEAD_SIZE)


def _later(num_seqs: int, tokens: int) -> Tensor:
    """Return a mask of all sequences but the first."""
    return (torch.arange(num_seqs) >= 1)[:, None, None].expand(num_seqs, tokens, _HEAD_SIZE)


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
            num_seqs * max_blocks, block_size, _HEAD_SIZE, generator=generator
        ),
        "block_tables": _tables,
        "seq_lens": _lengths,
    },
    sizes=(
        {"num_seqs": 1, "max_blocks": 4, "block_size": 4},
        {"num_seqs": 3, "max_blocks": 4, "block_size": 4},
    ),
    launches={
        "CUDA": PuzzleLaunch(("max_blocks * block_size", "num_seqs"), (64,)),
        "Triton": PuzzleLaunch(("max_blocks * block_size", "num_seqs"), constants={"HEAD_SIZE": "64"}),
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
            "size of a page or of a token left out",
            computes(_page_unscaled, _token_unscaled),
            "A token has 64 elements and a page block_size tokens: the first element is "
            "(page * block_size + slot) * 64.",
        ),
        Mistake(
            "end off by one",
            wrong_only(lambda seq_lens, block_size, max_blocks: _ends(seq_lens, max_blocks * block_size)),
            "The last token of a sequence has the number seq_lens[s] - 1: compare with < instead of <=.",
        ),
        Mistake(
            "zeros after the end left out",
            leaves(lambda seq_lens, block_size, max_blocks: _beyond(seq_lens, max_blocks * block_size)),
            "Tokens that do not exist have an output, too: write 0 there.",
        ),
        Mistake(
            "sequence left out of the output's index",
            leaves(lambda num_seqs, max_blocks, block_size: _later(num_seqs, max_blocks * block_size)),
            "All sequences write to the first one's output: sequence s begins at token s * max_blocks * block_size.",
        ),
        Mistake(
            "token and sequence swapped",
            finds("out-of-bounds", "seq_lens"),
            "The first index of the launch is the token, t = blockIdx.x, the second the sequence, s = blockIdx.y.",
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
    x[torch.arange(rows), torch.tensor([1, cols // 2, cols - 1])] = -127.0  # the largest magnitude is negative
    return x * torch.tensor([0.5, 0.01, 3.0])[:, None]


def _rounded_by(how: Callable) -> Callable:
    """Return the function that rounds another way, with the right scale."""

    def made(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = quantize(x)[1]
        return how(x / scale[:, None]).to(torch.int8), scale

    return made


def _scaled_by(largest: Callable) -> Callable:
    """Return the function that scales by another figure, and wraps as a conversion to eight bits does."""

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
        "CUDA": PuzzleLaunch(("3",), (128,)),
        "Triton": PuzzleLaunch(("3",), constants={"BLOCK": "512"}),
    },
    outputs=("q", "scale"),
    goals=(Goal("global_sectors", 300, FAR_APART, COALESCE),),
    mistakes=(
        Mistake(
            "cut off, not rounded",
            computes(*(_rounded_by(how) for how in (torch.trunc, torch.floor, lambda q: torch.trunc(q + 0.5)))),
            "A conversion to an integer drops the fraction, and adding 0.5 before is right for positive numbers alone. "
            "Round first: rintf in CUDA, tl.extra.cuda.libdevice.rint in Triton.",
        ),
        Mistake(
            "scale by 128",
            computes(_scaled_by(lambda x: x.abs().amax(1) / 128), lambda x: (None, x.abs().amax(1) / 128)),
            "A signed byte ends at 127: with max / 128 the largest number becomes 128, which wraps to -128.",
        ),
        Mistake(
            "scale not written",
            leaves(lambda x: torch.ones(len(x), dtype=torch.bool), "scale"),
            "There are two outputs: one thread of the block writes scale[r].",
        ),
        Mistake(
            "scale not divided by 127",
            computes(lambda x: (None, x.abs().amax(1))),
            "The scale of a row is its largest magnitude / 127.",
        ),
        Mistake(
            "reciprocal of the scale",
            computes(lambda x: (None, 127 / x.abs().amax(1))),
            "The scale is max / 127, so that q * scale is about x; 127 / max is the factor from x to q.",
        ),
        Mistake(
            "columns left out of the scale",
            computes(lambda x: (None, x[:, :128].abs().amax(1) / 127)),
            "The maximum has to go over all columns of the row, in steps of 128 threads.",
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

PUZZLES = (PAGED_READ, QUANTIZE)
