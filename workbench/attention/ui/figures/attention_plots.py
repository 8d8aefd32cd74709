"""Figures of attention: its matrix products, the causal mask, shared KV heads, and the online softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.ui import OKABE_ITO, ON_HATCH, box, new_axes

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PINK, SKY, VERMILLION, _, BLACK = OKABE_ITO
_PALE = "#F2F2F2"
_Style = tuple[str, str]
"""Face colour and hatch of a cell."""


def draw_cells(
    ax: Axes,
    left: float,
    top: float,
    rows: int,
    columns: int,
    style: Callable[[int, int], _Style | None],
    size: float = 1.0,
) -> None:
    """Draw a matrix of square cells with its upper left corner at (left, top); y grows downwards.

    ``style`` returns the colour and hatch of a cell, or None to omit it.
    """
    for row in range(rows):
        for column in range(columns):
            chosen = style(row, column)
            if chosen is None:
                continue
            place = (left + column * size, top + row * size)
            box(ax, *place, size, size, facecolor=chosen[0], hatch=chosen[1], edgecolor="white", lw=1.2)


def attention_flow(num_tokens: int = 6, head_size: int = 3, token: int = 3, ax: Axes | None = None) -> Axes:
    """Draw one head of causal attention as matrices, and mark what reaches the output of one token.

    A score is where the row of its query meets the column of its key, an output where its row of weights meets a column
    of V. Strong colours mark what ``token`` (from 0) uses, hatches what the mask hides. Returns the matplotlib Axes.
    """
    n, d = num_tokens, head_size
    ax = new_axes(11, 5.2) if ax is None else ax
    gap = 2.2
    top, score_left = n + 1, d + gap  # V stands above the output: n rows
    weight_left = score_left + n + 4.5
    out_left = weight_left + n + gap

    def square(colour: str) -> Callable[[int, int], _Style]:
        def style(row: int, column: int) -> _Style:
            if column > row:
                return ("white", "////")
            return (colour if row == token else "#DDDDDD", "")

        return style

    draw_cells(ax, 0, top, n, d, lambda row, _: (BLUE if row == token else _PALE, ""))
    draw_cells(ax, score_left, top - 1 - d, d, n, lambda _, column: (ORANGE if column <= token else _PALE, ""))
    draw_cells(ax, score_left, top, n, n, square(SKY))
    draw_cells(ax, weight_left, top, n, n, square(PINK))
    draw_cells(ax, out_left, 0, n, d, lambda row, _: (GREEN if row <= token else _PALE, ""))
    draw_cells(ax, out_left, top, n, d, lambda row, _: (VERMILLION if row == token else _PALE, ""))
    for patch in ax.patches:
        patch.set_edgecolor("#888888")
    below = top + n + 0.25
    labels = {
        (d / 2, below): f"Q\n[{n} tokens, head_size]",
        (score_left + n / 2, below): "scores  $q_i \\cdot k_j / \\sqrt{head\\_size}$\nhatched: $-\\infty$",
        (weight_left + n / 2, below): "weights, each row sums to 1\nhatched: exactly 0",
        (out_left + d / 2, below): f"output\n[{n} tokens, head_size]",
    }
    for (x, y), text in labels.items():
        ax.text(x, y, text, ha="center", va="top", fontsize=9)
    ax.text(score_left - 0.25, top - 1 - d / 2, "$K^T$", ha="right", va="center", fontsize=10)
    ax.text(out_left - 0.25, n / 2, "V", ha="right", va="center", fontsize=10)
    ax.text(-0.25, top + token + 0.5, f"token {token}", ha="right", va="center", fontsize=9)
    arrow = {"arrowstyle": "-|>", "color": BLACK, "lw": 1.5}
    ax.annotate("", (weight_left - 0.3, top + n / 2), (score_left + n + 0.3, top + n / 2), arrowprops=arrow)
    ax.text(score_left + n + 2.25, top + n / 2 - 0.3, "mask,\nthen softmax\nof each row", ha="center", fontsize=9)
    ax.set(xlim=(-2.2, out_left + d + 0.5), ylim=(below + 1.8, -0.3), aspect="equal")
    ax.axis("off")
    return ax


def score_panels(panels: Mapping[str, torch.Tensor], hidden: torch.Tensor | None = None, *, digits: int = 2) -> Figure:
    """Draw heat maps of square matrices side by side, with their numbers in the cells; hidden cells are hatched.

    Args:
        panels: matrix ``[tokens, tokens]`` of each title; minus infinity is written as such.
        hidden: ``[tokens, tokens] bool``, True where the mask hides a token.
        digits: decimals of the numbers.

    Returns:
        The matplotlib Figure.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(3.9 * len(panels), 3.9), squeeze=False)
    for ax, (title, matrix) in zip(axes[0], panels.items(), strict=True):
        finite = matrix[matrix.isfinite()]
        low, high = float(finite.min()), float(finite.max())
        ax.imshow(matrix.clamp(min=low).numpy(), cmap="cividis", vmin=low, vmax=high)
        for row in range(matrix.shape[0]):
            for column in range(matrix.shape[1]):
                value = float(matrix[row, column])
                covered = hidden is not None and bool(hidden[row, column])
                if covered:
                    box(ax, column - 0.5, row - 0.5, 1, 1, facecolor="white", hatch="////", edgecolor="#BBBBBB")
                text = "$-\\infty$" if value == -float("inf") else "0" if value == 0 else f"{value:.{digits}f}"
                dark = not covered and value < (low + high) / 2
                ax.text(
                    column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else "black",
                    bbox=ON_HATCH | {"pad": 0.8} if covered else None,
                )  # fmt: skip
        ax.set(title=title, xlabel="token $j$ (key)", ylabel="token $i$ (query)")
        ax.set_xticks(range(matrix.shape[1]))
        ax.set_yticks(range(matrix.shape[0]))
    figure.tight_layout()
    return figure


def kv_sharing(num_heads: int, num_kv_heads: int, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Draw which query heads read which KV head, and return the matplotlib Axes."""
    ax = new_axes(4, 2.2) if ax is None else ax
    group = num_heads // num_kv_heads
    hatches = ("", "//", "..", "xx", "\\\\", "oo", "++", "--")
    for head in range(num_heads):
        kv_head = head // group
        centre = (kv_head * group + (group - 1) / 2) + 0.5
        colour = OKABE_ITO[kv_head % 7]
        box(ax, head + 0.1, 0, 0.8, 0.8, facecolor=colour, alpha=0.55, edgecolor="black")
        ax.text(head + 0.5, 0.4, f"q{head}", ha="center", va="center", fontsize=8)
        ax.plot([head + 0.5, centre], [0.85, 2.15], color="black", lw=1)
        if head % group == 0:
            box(ax, centre - 0.4, 2.2, 0.8, 0.8, facecolor=colour, hatch=hatches[kv_head % 8], edgecolor="black")
            ax.text(centre, 2.6, f"kv{kv_head}", ha="center", va="center", fontsize=8, bbox=ON_HATCH)
    ax.set(xlim=(0, num_heads), ylim=(3.2, -0.2), title=title)
    ax.axis("off")
    return ax


def online_softmax_trace(
    scores: Sequence[float],
    block_size: int,
    highest: Sequence[float],
    totals: Sequence[float],
    *,
    axes: Sequence[Axes] | None = None,
) -> Sequence[Axes]:
    """Draw an online softmax: the scores in blocks, the running maximum, and the running sum.

    Args:
        scores: scores of one query, one per token.
        block_size: tokens per block.
        highest: running maximum after each block.
        totals: running sum after each block.
        axes: two Axes to draw into; default new ones.

    Returns:
        The two matplotlib Axes, one above the other.
    """
    import matplotlib.pyplot as plt

    if axes is None:
        _, axes = plt.subplots(2, 1, figsize=(9, 5), sharex=True, gridspec_kw={"height_ratios": (3, 2)})
    above, below = axes
    num_blocks = len(highest)
    end = num_blocks * block_size
    above.plot(range(len(scores)), scores, "o", color=BLUE, markersize=4, label="score")
    edges = [block_size * j - 0.5 for j in range(num_blocks + 1)]
    above.stairs(highest, edges, baseline=None, color=VERMILLION, lw=2, linestyle="--", label="running maximum $m$")
    for ax in axes:
        for edge in edges[1:-1]:
            ax.axvline(edge, color="#999999", lw=0.8)
        if len(scores) < end:
            ax.axvspan(len(scores) - 0.5, end - 0.5, facecolor="white", hatch="////", edgecolor="#BBBBBB")
        ax.spines[["top", "right"]].set_visible(False)
    above.set(ylabel="score of the query", xlim=(-0.5, end - 0.5))
    above.legend(frameon=False, loc="upper left", ncols=2, bbox_to_anchor=(0, 1.18))
    below.stairs(totals, edges, fill=True, facecolor=GREEN, alpha=0.6, hatch="..", edgecolor="white")
    before = [-float("inf"), *highest[:-1]]
    for j, (total, old, new) in enumerate(zip(totals, before, highest, strict=True)):
        factor = 2.718281828459045 ** (old - new)
        text = "start" if j == 0 else f"× {factor:.2f}" if factor < 1 else "kept"
        below.text(edges[j] + block_size / 2, total, text, ha="center", va="bottom", fontsize=9)
    below.set(
        ylabel="running sum $l$",
        xlabel="token (a vertical line ends a block; hatched: no token); above each bar what became of the old sum",
        ylim=(0, 1.25 * max(totals)),
    )
    return axes
