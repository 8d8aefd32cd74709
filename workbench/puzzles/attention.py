"""The puzzles from attention over caches of today: the latent read and the ragged prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workbench.ops.tensors.inputs import randn
from workbench.puzzles.drawing import BLANK, FACES, Drawing, arrow, brace, cells, label
from workbench.puzzles.signs import computes, finds
from workbench.puzzles.task import Goal, Mistake, Puzzle, PuzzleLaunch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LATENT = 48
_TILE = 16


# -- latent read ------------------------------------------------------------------------------------------------


def latent_read(query: Tensor, latents: Tensor) -> Tensor:
    """Attend to latents: a row of 64 is the key of every head, its first 48 elements are the value."""
    scores = query @ latents.T * 32**-0.5  # the model's own keys have 32 elements
    return torch.softmax(scores, dim=1) @ latents[:, :48]


def _attends(scale: float = 32**-0.5, key: slice = slice(None), value: slice = slice(_LATENT)) -> Callable:
    """Return the attention with another scale, another part of the rows as keys, or another one as values."""

    def made(query: Tensor, latents: Tensor) -> Tensor:
        scores = query[:, key] @ latents[:, key].T * scale
        return torch.softmax(scores, dim=1) @ latents[:, value]

    return made


def _unscaled(width: int, keeps_sum: bool, keeps_values: bool) -> Callable:
    """Return the pass in steps of ``width`` tokens that does not rescale the sum of weights, the values, or both."""

    def made(query: Tensor, latents: Tensor) -> Tensor:
        scores = query @ latents.T * 32**-0.5
        shape = len(query), 1
        top, total, values = torch.full(shape, -torch.inf), torch.zeros(shape), torch.zeros(len(query), _LATENT)
        for now, rows in zip(scores.split(width, dim=1), latents[:, :_LATENT].split(width), strict=True):
            larger = torch.maximum(top, now.amax(1, keepdim=True))
            shrink, weights = (top - larger).exp(), (now - larger).exp()
            total = total * (1 if keeps_sum else shrink) + weights.sum(1, keepdim=True)
            values = values * (1 if keeps_values else shrink) + weights @ rows
            top = larger
        return values / total

    return made


def _undivided(query: Tensor, latents: Tensor) -> Tensor:
    scores = query @ latents.T * 32**-0.5
    return (scores - scores.amax(1, keepdim=True)).exp() @ latents[:, :_LATENT]


def _padded(query: Tensor, latents: Tensor) -> Tensor:
    """Return the attention with rows of zeros behind the last tile."""
    return latent_read(query, torch.nn.functional.pad(latents, (0, 0, 0, -len(latents) % _TILE)))


def _draw_latent() -> Drawing:
    def paint(ax: Axes) -> None:
        for token in range(3):
            faces = [FACES[0]] * 6 + [FACES[1]] * 2
            cells(ax, 5, 1.2 + token, [""] * 8, faces, f"latents[{token}]")
        brace(ax, 5, 13, 0.9, "the key of all heads: 64 elements")
        brace(ax, 5, 11, 4.5, "the value: 48", above=False)
        brace(ax, 11, 13, 4.5, "rotated: 16", above=False)
        for head in range(4):
            cells(ax, 18, 0.9 + head, [""] * 4, BLANK, f"head {head}")
            arrow(ax, (13.2, 2.7), (15.6, 1.4 + head))

    return Drawing("four heads that read one row", "A row is brought once, and used eight times.", 22.4, 5.6, paint)


LATENT_READ = Puzzle(
    name="latent_read",
    claim="out[h] = softmax(query[h] . latents^T / sqrt(32)) . latents[:, :48], each latent read once",
    spec=latent_read,
    parameters=("out", "query", "latents", "tokens"),
    inputs={"query": randn(4, 64), "latents": randn("tokens", 64)},
    sizes=({"tokens": 20}, {"tokens": 100}),
    launches={
        "CUDA": PuzzleLaunch(("1",), (128,)),
        "Triton": PuzzleLaunch(("1",), constants={"TILE": str(_TILE)}),
    },
    goals=(
        Goal(
            "global_load_sectors",
            900,
            "latent read more than once",
            "Four heads need the same row, each as a key and as a value: bring it into shared memory once, in Triton "
            "into one tile.",
        ),
    ),
    mistakes=(
        Mistake(
            "scale of the longer key",
            computes(_attends(scale=64**-0.5)),
            "The product has 64 terms because a matrix moved into the query; the scale is that of the model's own "
            "keys, 1 / sqrt(32).",
        ),
        Mistake("scale left out", computes(_attends(scale=1.0)), "Multiply each score by 1 / sqrt(32)."),
        Mistake(
            "values from the end of the row",
            computes(_attends(value=slice(64 - _LATENT, None))),
            "The value is the first 48 elements of the row; the 16 behind them are rotated, and belong to the key.",
        ),
        Mistake(
            "rotated part left out of the key",
            computes(_attends(key=slice(_LATENT))),
            "The key is the whole row: a score has 64 terms.",
        ),
        Mistake(
            "query of the first head for all",
            computes(lambda query, latents: latent_read(query[:1].expand_as(query), latents)),
            "Heads share the latents and not the query: head h begins at query[h * 64].",
        ),
        Mistake(
            "old sums not rescaled",
            computes(
                *(
                    _unscaled(width, *kept)
                    for width in (1, _TILE)
                    for kept in ((True, True), (True, False), (False, True))
                )
            ),
            "What was added under a smaller maximum is too large: multiply sum and values by exp(old maximum - new "
            "maximum).",
        ),
        Mistake(
            "masked tokens counted",
            computes(_padded),
            "A row of zeros has the score 0, which takes weight: set the scores of tokens that do not exist to "
            "-float('inf').",
        ),
        Mistake("not divided by the sum", computes(_undivided), "Divide the values by the sum of the weights."),
    ),
    hints=(
        "All four heads read the same row. CUDA: a warp for each head; 64 of the 128 threads bring a row into shared "
        "memory, and all wait for it. Triton: a tile of 16 rows serves the scores and the values.",
        "The values are already there: they are the first 48 elements of what was loaded for the scores.",
        "Two barriers for each row: one before it is replaced, one before it is read.",
    ),
    draw=_draw_latent,
)


# -- ragged prompt ----------------------------------------------------------------------------------------------


def ragged_prompt(query: Tensor, cache: Tensor, block_tables: Tensor, seq_lens: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Attend with each new token to its sequence up to itself; a row of the cache is key and value."""
    row = torch.arange(len(query), dtype=torch.int32)
    s = torch.searchsorted(cu_seqlens, row, right=True) - 1  # rows of s: cu_seqlens[s] to cu_seqlens[s + 1]
    position = seq_lens[s] - cu_seqlens[s + 1] + row  # they are the last tokens of the sequence
    tokens = cache[block_tables.clamp(min=0).long()].flatten(1, 2)[s]  # [num_rows, max_blocks * block_size, 32]
    later = torch.arange(tokens.shape[1]) > position[:, None]
    scores = torch.einsum("rd,rtd->rt", query, tokens).masked_fill(later, -torch.inf)
    return torch.einsum("rt,rtd->rd", torch.softmax(scores, dim=1), tokens)


def _starts(num_rows: int, num_seqs: int) -> Tensor:
    """Return the first row of each sequence, and their number: the second of several sequences has no row."""
    inner = (num_rows * 5 // 9, num_rows * 5 // 9, num_rows * 6 // 9)
    return torch.tensor([0, *inner[: num_seqs - 1], num_rows], dtype=torch.int32)


def _lengths(num_rows: int, num_seqs: int) -> Tensor:
    """Return lengths of sequences: one alone is a whole prompt, several have a context before their rows."""
    context = torch.tensor([6, 4, 6, 7], dtype=torch.int32)[:num_seqs] * (num_seqs > 1)
    return context + _starts(num_rows, num_seqs).diff()


def _tables(num_rows: int, num_seqs: int, max_blocks: int, block_size: int, generator: torch.Generator) -> Tensor:
    """Return tables of pages in no order, with -1 behind the pages that a sequence needs."""
    order = torch.randperm(num_seqs * max_blocks, generator=generator).int().view(num_seqs, max_blocks)
    used = -(-_lengths(num_rows, num_seqs) // block_size)
    return torch.where(torch.arange(max_blocks) < used[:, None], order, -1)


def _sees(where: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], right: bool = True) -> Callable:
    """Return the attention whose rows see the tokens up to ``where(row, first, last, length)``.

    ``first`` and ``last`` are those of ``cu_seqlens`` around the row, of which the sequence is found by ``>=``; by
    ``>`` if not ``right``.
    """

    def made(query: Tensor, cache: Tensor, block_tables: Tensor, seq_lens: Tensor, cu_seqlens: Tensor) -> Tensor:
        row = torch.arange(len(query), dtype=torch.int32)
        s = (torch.searchsorted(cu_seqlens, row, right=right) - 1).clamp(min=0)
        seen = where(row, cu_seqlens[s], cu_seqlens[s + 1], seq_lens[s])
        own = zip(query, block_tables[s], (seen + 1).tolist(), strict=True)
        return torch.stack([_attended(one, cache, table, count) for one, table, count in own])

    return made


def _attended(query: Tensor, cache: Tensor, table: Tensor, count: int) -> Tensor:
    """Attend with one row to the first ``count`` tokens; to none is 0 / 0."""
    tokens = cache[table.clamp(min=0).long()].flatten(0, 1)[: max(count, 0)]
    return torch.softmax(tokens @ query, dim=0) @ tokens if len(tokens) else torch.full_like(query, torch.nan)


def _without_table(query: Tensor, cache: Tensor, block_tables: Tensor, seq_lens: Tensor, cu_seqlens: Tensor) -> Tensor:
    own = torch.arange(block_tables.shape[1]).expand_as(block_tables)
    return ragged_prompt(query, cache, own, seq_lens, cu_seqlens)


def _first_table(query: Tensor, cache: Tensor, block_tables: Tensor, seq_lens: Tensor, cu_seqlens: Tensor) -> Tensor:
    return ragged_prompt(query, cache, block_tables[:1].expand_as(block_tables), seq_lens, cu_seqlens)


def _draw_ragged() -> Drawing:
    def paint(ax: Axes) -> None:
        counts, contexts = (5, 1, 3), (6, 6, 7)
        row = 0
        for s, (count, context) in enumerate(zip(counts, contexts, strict=True)):
            cells(ax, 6 + row, 0.2, range(row, row + count), FACES[s], "row" if s == 0 else "")
            texts = [f"t{t}" for t in range(context + count)]
            cells(ax, 6, 3 + 1.4 * s, texts, [BLANK] * context + [FACES[s]] * count, f"sequence {(0, 2, 3)[s]}")
            row += count
        label(ax, 15.6, 0.7, "cu_seqlens = 0, 5, 5, 6, 9", side="left")
        label(ax, 17.5, 3.5, "a piece of a prompt, after six tokens", side="left")
        label(ax, 13.5, 4.9, "a decode step", side="left")
        label(ax, 16.5, 6.3, "a piece, after seven", side="left")
        arrow(ax, (12.5, 1.2), (13.4, 5.8))

    caption = "Row 6 is token 7 of sequence 3, and sees its tokens 0 to 7. Sequence 1 has no row."
    return Drawing("new tokens of several sequences, row after row", caption, 28, 7.2, paint)


_TWICE = "rows of the cache read more than once"
_KEEP = "A row of the cache is key and value: keep it from the score to the sum."

RAGGED_PROMPT = Puzzle(
    name="ragged_prompt",
    claim="out[r] = softmax(query[r] . K^T) . K over the tokens of r's sequence up to r itself",
    spec=ragged_prompt,
    parameters=("out", "query", "cache", "block_tables", "seq_lens", "cu_seqlens", "block_size", "max_blocks"),
    inputs={
        "query": lambda num_rows, generator: torch.randn(num_rows, 32, generator=generator) / 4,
        "cache": lambda num_seqs, max_blocks, block_size, generator: torch.randn(
            num_seqs * max_blocks, block_size, 32, generator=generator
        ),
        "block_tables": _tables,
        "seq_lens": _lengths,
        "cu_seqlens": _starts,
    },
    sizes=(
        {"num_rows": 5, "num_seqs": 1, "max_blocks": 4, "block_size": 4},
        {"num_rows": 9, "num_seqs": 4, "max_blocks": 4, "block_size": 4},
    ),
    launches={
        "CUDA": PuzzleLaunch(("num_rows",), (32,)),
        "Triton": PuzzleLaunch(("num_rows",), constants={"HEAD_SIZE": "32", "TILE": str(_TILE)}),
    },
    goals=(
        Goal("global_load_sectors", 500, _TWICE, _KEEP, ("CUDA",)),
        Goal("global_load_sectors", 800, _TWICE, _KEEP, ("Triton",)),
    ),
    mistakes=(
        Mistake(
            "context forgotten",
            computes(_sees(lambda row, first, last, length: row - first)),
            "The rows are the last tokens of their sequence; those before lie in the cache already. Row r is at "
            "position seq_lens[s] - cu_seqlens[s + 1] + r.",
        ),
        Mistake(
            "row taken for its position",
            computes(_sees(lambda row, first, last, length: row)),
            "Rows of other sequences come before: the last row of s, cu_seqlens[s + 1] - 1, is at seq_lens[s] - 1.",
        ),
        Mistake(
            "later tokens seen",
            computes(_sees(lambda row, first, last, length: length - 1)),
            "A token sees those up to its own position, also in a prompt whose later tokens are in the cache already.",
        ),
        Mistake(
            "own token left out",
            computes(_sees(lambda row, first, last, length: length - last + row - 1)),
            "A token sees itself: t <= position.",
        ),
        Mistake(
            "first row given to the sequence before",
            computes(_sees(lambda row, first, last, length: length - last + row, right=False)),
            "cu_seqlens[s + 1] is the first row of the next sequence: go on while r >= cu_seqlens[s + 1].",
        ),
        Mistake(
            "table of the first sequence for all",
            computes(_first_table),
            "Every sequence has a row of max_blocks entries in the table: "
            "block_tables[s * max_blocks + t / block_size].",
        ),
        Mistake(
            "table not used",
            computes(_without_table),
            "The pages of a sequence lie anywhere: t / block_size is the place in the table, and the page's number "
            "stands there.",
        ),
        Mistake(
            "tokens beyond the sequence read",
            finds("out-of-bounds", "cache"),
            "Behind a sequence's last page the table holds -1. Which sequence has the row, and which position there?",
        ),
    ),
    hints=(
        "A block computes a row. Its sequence s is the one with cu_seqlens[s] <= r < cu_seqlens[s + 1]; some have no "
        "row at all.",
        "The last row of s is the last token of s, at position seq_lens[s] - 1. Count back from there.",
        "Row r is at position seq_lens[s] - cu_seqlens[s + 1] + r, and sees the tokens t <= position.",
    ),
    draw=_draw_ragged,
)

PUZZLES = (LATENT_READ, RAGGED_PROMPT)
