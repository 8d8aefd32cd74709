"""Figures of a running model: cost of each cache as texts grow, memory over time, and the effect of quantization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.ui import OKABE_ITO, LineAxes, legend_beside, marked_lines, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from workbench.attention.bench.generate import GenerationBenchmark
    from workbench.attention.kvcache.memory_use import MemoryUse
    from workbench.attention.models.evaluate import Perplexity

_BLUE, _ORANGE = OKABE_ITO[0], OKABE_ITO[1]

_GRANULARITIES = {
    "scale 1": ("X", OKABE_ITO[5]),
    "per tensor": ("s", OKABE_ITO[1]),
    "per head": ("D", OKABE_ITO[0]),
    "per token and head": ("^", OKABE_ITO[2]),
}
"""Marker and colour of each granularity of scales."""


def growth(result: GenerationBenchmark, *, smooth: int = 16) -> Figure:
    """Plot the milliseconds per step and the KiB held, over the tokens that each sequence has written.

    Args:
        result: result of ``workbench bench generate``.
        smooth: number of steps whose median is one point.

    Returns:
        The matplotlib Figure.
    """
    import statistics

    import matplotlib.pyplot as plt

    steps = len(result.rows[0].step_seconds) // smooth * smooth
    x = [start + smooth // 2 for start in range(0, steps, smooth)]
    times = {
        row.cache: [1000 * statistics.median(row.step_seconds[at : at + smooth]) for at in range(0, steps, smooth)]
        for row in result.rows
    }
    held = {row.cache: [row.reserved_bytes[at] / 1024 for at in x] for row in result.rows}
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6))
    xlabel = "tokens written by each sequence"
    marked_lines(x, times, LineAxes(xlabel, "ms per step"), legend=False, ax=left)
    marked_lines(x, held, LineAxes(xlabel, "KiB held by the sequences"), ax=right)
    for ax in (left, right):
        ax.set_ylim(bottom=0)
    legend_beside(right)
    figure.tight_layout()
    return figure


def memory_over_time(runs: Mapping[str, Sequence[MemoryUse]]) -> Figure:
    """Plot the memory that sequences hold at each step, and the part of it that holds tokens.

    There is a panel for each run, all with equal axes. Returns the matplotlib Figure.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(runs), figsize=(11, 3.2), sharey=True, sharex=True, squeeze=False)
    for ax, (name, steps) in zip(axes[0], runs.items(), strict=True):
        x = range(len(steps))
        pool = max(use.pool_bytes for use in steps) / 1024
        held, used = ([getattr(use, part) / 1024 for use in steps] for part in ("reserved_bytes", "used_bytes"))
        ax.fill_between(x, held, step="mid", color=_ORANGE, alpha=0.45, hatch="//", edgecolor="white", label="held")
        ax.fill_between(x, used, step="mid", color=_BLUE, alpha=0.8, label="holds tokens")
        ax.axhline(pool, color="black", linestyle=":", label="the whole cache")
        ax.set(title=f"{name}: {len(steps)} steps", xlabel="step")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set(ylabel="KiB", ylim=(0, None))
    axes[0][-1].legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.95))
    figure.tight_layout()
    return figure


def perplexity_changes(rows: Sequence[Perplexity], *, ax: Axes | None = None) -> Axes:
    """Plot by how many percent each cache raises the perplexity above the first one's, with 95 % intervals.

    The axis is linear up to 1 % and logarithmic beyond. Returns the matplotlib Axes.
    """
    ax = new_axes(8.5, 0.3 * len(rows) + 0.9) if ax is None else ax
    shown = rows[1:]
    for place, row in enumerate(shown):
        change, low, high = (100 * (value - 1) for value in (row.ratio, row.ratio_low, row.ratio_high))
        style = _GRANULARITIES.get(row.name.rpartition(", ")[2], ("o", OKABE_ITO[7]))
        ax.errorbar(
            change,
            place,
            xerr=[[change - low], [high - change]],
            marker=style[0],
            color=style[1],
            capsize=3,
            markersize=6,
        )
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(shown)), [row.name for row in shown])
    ax.set_xscale("symlog", linthresh=1, linscale=1.5)
    left, right = ax.get_xlim()
    ticks = [tick for tick in (-10, -1, 0, 1, 10, 100, 1000) if 3 * left < tick < 3 * right]
    ax.set_xticks(ticks, [f"{tick:+d} %" if tick else "0" for tick in ticks])
    ax.set(
        ylim=(len(shown) - 0.5, -0.5), xlabel=f"perplexity against {rows[0].name} (linear to ±1 %, logarithmic beyond)"
    )
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="x", alpha=0.25)
    return ax


def training_curve(record: Mapping, *, ax: Axes | None = None) -> Axes:
    """Plot the loss during training, on training and held-out text, and return the matplotlib Axes."""
    x = [point["step"] for point in record["curve"]]
    series = {name.replace("_", " "): [point[name] for point in record["curve"]] for name in ("training", "held_out")}
    return marked_lines(x, series, LineAxes("step", "loss (nats per token)"), ax=ax)
