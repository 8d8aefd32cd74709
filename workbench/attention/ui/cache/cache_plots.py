"""Plots of a KV cache: the keys, values and scores of a step, the slots of rows, and memory over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.attention.ui.figures.attention_plots import draw_cells
from workbench.ui import OKABE_ITO, ON_HATCH, legend_of, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREEN, _PINK, _SKY, _VERMILLION, _YELLOW, _BLACK = OKABE_ITO

_NEW = (_ORANGE, "//")
_AGAIN = (_VERMILLION, "xx")
_HIDDEN = ("#D9D9D9", "..")
_READ = (_BLUE, "")


def generation_steps(first: int = 3, last: int = 6) -> Figure:
    """Draw the steps that generate tokens ``first`` to ``last``, without a cache (top) and with one (bottom).

    Each step shows the keys and values (a column with a cell per token) and the scores (a square). Returns the
    matplotlib Figure.
    """
    import matplotlib.pyplot as plt

    lengths = range(first, last + 1)
    widths = [length + 3 for length in lengths]
    figure, axes = plt.subplots(2, len(lengths), figsize=(11.5, 6), gridspec_kw={"width_ratios": widths})
    for column, n in enumerate(lengths):

        def score_without(row: int, token: int, n: int = n) -> tuple[str, str]:
            return _HIDDEN if token > row else _NEW if row == n - 1 else _AGAIN

        def score_with(row: int, token: int, n: int = n) -> tuple[str, str] | None:
            return _NEW if row == n - 1 else None

        for ax, old, score in ((axes[0][column], _AGAIN, score_without), (axes[1][column], _READ, score_with)):
            draw_cells(ax, 0, last - n, n, 1, _new_below(old, n))
            draw_cells(ax, 2, last - n, n, n, score)
            ax.text(0.5, last + 0.15, "K, V", ha="center", va="top", fontsize=9)
            ax.text(2 + n / 2, last + 0.15, "scores", ha="center", va="top", fontsize=9)
            ax.set(xlim=(-0.5, n + 2.5), ylim=(last + 0.9, -0.1), aspect="equal", anchor="S")
            ax.axis("off")
        axes[0][column].set_title(f"token {n}", fontsize=10)
    for row, text in enumerate(("without a cache", "with a cache")):
        figure.text(0.02, 0.72 - 0.42 * row, text, rotation=90, va="center", fontsize=12)
    names = {
        "computed, new": _NEW,
        "computed again": _AGAIN,
        "computed, then hidden by the mask": _HIDDEN,
        "read from the cache": _READ,
    }
    faces = ((name, *style) for name, style in names.items())
    legend_of(figure, faces, edgecolor="white", loc="lower center", ncols=4)
    figure.subplots_adjust(left=0.05, right=0.99, top=0.93, bottom=0.09, hspace=0.08, wspace=0.05)
    return figure


def _new_below(old: tuple[str, str], num_tokens: int) -> Callable[[int, int], tuple[str, str]]:
    return lambda row, _: _NEW if row == num_tokens - 1 else old


_SLOTS = {
    "written": ("written in this step", _ORANGE, "//"),
    "read": ("read in this step", _BLUE, ""),
    "held": ("held, left alone in this step", _SKY, ".."),
    "empty": ("reserved, empty", "#F2F2F2", ""),
}
"""Label, colour and hatch of each use of a slot in a step."""


def rows_in_memory(
    rows: Mapping[str, Sequence[str]], num_kv_heads: int, *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Draw the rows of a contiguous cache in memory order.

    Each row has a strip of slots for every KV head, first for keys, then for values. A slot holds the head_size
    elements of one token.

    Args:
        rows: uses of the slots of each row by its label: "written", "read", "held" or "empty".
        num_kv_heads: number of KV heads.
        title: title of the picture.
        ax: the Axes to draw into; default new ones.

    Returns:
        The matplotlib Axes.
    """
    strips, longest = 2 * num_kv_heads, max(map(len, rows.values()))
    pitch = strips + 0.8
    ax = new_axes(0.33 * longest + 1.5, 0.33 * pitch * len(rows) + 0.6) if ax is None else ax
    for index, (label, slots) in enumerate(rows.items()):
        top = index * pitch
        draw_cells(ax, 0, top, strips, len(slots), _styles_of(slots))
        for strip in range(strips):
            name = f"{'KV'[strip // num_kv_heads]} of head {strip % num_kv_heads}"
            ax.text(-0.2, top + strip + 0.5, name, ha="right", va="center", fontsize=7)
        ax.text(-4.3, top + strips / 2, label, ha="center", va="center", rotation=90, fontsize=9)
    for patch in ax.patches:
        patch.set_edgecolor("#888888" if patch.get_hatch() == "" else "white")
    ax.set(xlim=(-4.9, longest), ylim=(len(rows) * pitch - 0.6, -0.2), aspect="equal")
    ax.set_title(title, fontsize=10)
    ax.axis("off")
    return ax


def _styles_of(slots: Sequence[str]) -> Callable[[int, int], tuple[str, str]]:
    return lambda _, column: _SLOTS[slots[column]][1:]


def slots_legend(figure: Figure, **options: Any) -> None:
    """Add the legend of `rows_in_memory` to a figure of several Axes."""
    legend_of(figure, _SLOTS.values(), edgecolor="#888888", fontsize=9, **options)


def labelled_slots(panels: Mapping[str, Sequence[Sequence[str]]], changed: Mapping[str, Any] | None = None) -> Figure:
    """Draw grids of slots with text in them, side by side; an empty text is an empty slot.

    Args:
        panels: texts of the slots, row by row, for each title.
        changed: ``[rows, slots]`` bool for each title: True emphasises a slot (orange, hatched).

    Returns:
        The matplotlib Figure.
    """
    import matplotlib.pyplot as plt

    widest = max(len(row) for grid in panels.values() for row in grid)
    tallest = max(map(len, panels.values()))
    figure, axes = plt.subplots(
        1, len(panels), figsize=(0.5 * (widest + 1.6) * len(panels), 0.5 * tallest + 0.8), squeeze=False
    )
    for ax, (title, grid) in zip(axes[0], panels.items(), strict=True):
        marked = (changed or {}).get(title)

        def style(row: int, column: int, grid: Sequence[Sequence[str]] = grid, marked: Any = marked) -> tuple[str, str]:
            if marked is not None and marked[row][column]:
                return _NEW
            return ("#CFE6F5" if grid[row][column] else "white", "")

        draw_cells(ax, 0, 0, len(grid), len(grid[0]), style)
        for patch in ax.patches:
            patch.set_edgecolor("#888888")
        for row, texts in enumerate(grid):
            ax.text(-0.15, row + 0.5, f"beam {row}", ha="right", va="center", fontsize=8)
            for column, text in enumerate(texts):
                label = ON_HATCH | {"pad": 0.6, "alpha": 0.9}
                on_hatch = label if marked is not None and marked[row][column] else None
                ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8, bbox=on_hatch)
        ax.set(xlim=(-1.5, len(grid[0]) + 0.1), ylim=(len(grid) + 0.1, -0.1), aspect="equal")
        ax.set_title(title, fontsize=9)
        ax.axis("off")
    figure.tight_layout()
    return figure


@dataclass(frozen=True)
class RowUse:
    """State of a row of a contiguous cache: tokens of the prompt, tokens generated, tokens still to be generated."""

    label: str
    prompt: int = 0
    generated: int = 0
    to_come: int = 0


def contiguous_rows(rows: Sequence[RowUse], max_seqlen: int, *, ax: Axes | None = None) -> Axes:
    """Draw the rows of a contiguous cache as bars of ``max_seqlen`` slots, and return the matplotlib Axes."""
    ax = new_axes(10, 0.5 * len(rows) + 1.6) if ax is None else ax
    parts = {
        "prompt (context phase)": ([row.prompt for row in rows], _BLUE, ""),
        "generated (generation phase)": ([row.generated for row in rows], _GREEN, "//"),
        "will be filled later": ([row.to_come for row in rows], _YELLOW, ".."),
        "will never be filled": (
            [max_seqlen - row.prompt - row.generated - row.to_come if row.prompt else 0 for row in rows],
            _VERMILLION,
            "xx",
        ),
        "row not in use": ([0 if row.prompt else max_seqlen for row in rows], "#EEEEEE", ""),
    }
    lefts = [0] * len(rows)
    for name, (widths, colour, hatch) in parts.items():
        ax.barh(
            range(len(rows)), widths, left=lefts, height=0.75, label=name, color=colour, hatch=hatch, edgecolor="white"
        )
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    ax.set_yticks(range(len(rows)), [row.label for row in rows])
    ax.invert_yaxis()
    ax.set(xlim=(0, max_seqlen), xlabel=f"slot of the row (max_seqlen = {max_seqlen})")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, ncols=5, loc="lower center", bbox_to_anchor=(0.45, 1.0), fontsize=8, columnspacing=1.2)
    return ax


def memory_over_time(
    series: Mapping[str, Sequence[float]], *, ylabel: str, xlabel: str = "step", ax: Axes | None = None
) -> Axes:
    """Draw series as stacked areas over the steps, the first one at the bottom, and return the matplotlib Axes."""
    ax = new_axes(10, 3.6) if ax is None else ax
    styles = ((_BLUE, ""), (_YELLOW, ".."), (_VERMILLION, "xx"), ("#EEEEEE", ""))[: len(series)]
    steps = range(len(next(iter(series.values()))))
    areas = ax.stackplot(steps, *series.values(), labels=list(series), colors=[colour for colour, _ in styles])
    for area, (_, hatch) in zip(areas, styles, strict=True):
        area.set(hatch=hatch, edgecolor="white", linewidth=0)
    ax.set(xlabel=xlabel, ylabel=ylabel, xlim=(0, max(len(steps) - 1, 1)), ylim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, ncols=len(series), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax
