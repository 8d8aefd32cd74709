"""Static plots with matplotlib, safe for colour-blind readers: Okabe-Ito colours, and never colour alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from workbench.ui.figures import show_as_vectors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = "osD^vPX*"

ON_HATCH = {"facecolor": "white", "edgecolor": "none", "pad": 1}
"""Style of the box behind a text on hatching."""


def new_axes(width: float, height: float, **options: Any) -> Axes:
    """Return the Axes of a new figure of this size in inches, which a notebook shows in the reader's theme.

    ``options`` are those of `matplotlib.pyplot.figure`.
    """
    import matplotlib.pyplot as plt

    ax: Axes = plt.subplots(figsize=(width, height), **options)[1]
    show_as_vectors()
    return ax


def marked(index: int) -> dict[str, str]:
    """Return the colour and the marker of a series by its number."""
    return {"color": OKABE_ITO[index % len(OKABE_ITO)], "marker": MARKERS[index % len(MARKERS)]}


def box(ax: Axes, left: float, top: float, width: float, height: float, **face: Any) -> None:
    """Draw a rectangle from its corner (left, top)."""
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((left, top), width, height, **face))


def legend_of(figure: Figure, faces: Iterable[tuple[str, str, str]], *, edgecolor: str, **options: Any) -> None:
    """Add a legend to a figure of several Axes, from the name, colour and hatch of each entry."""
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=colour, hatch=hatch, edgecolor=edgecolor, label=name) for name, colour, hatch in faces]
    figure.legend(handles=patches, frameon=False, **options)


def legend_beside(ax: Axes, **options: Any) -> None:
    """Put the legend on the right of the Axes."""
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), **options)


def in_percent(axis: Any) -> None:
    """Write the numbers of an axis as percentages."""
    axis.set_major_formatter(lambda share, _: f"{share:.0%}")


def logarithmic(ax: Axes, values: Sequence[float]) -> None:
    """Make the y axis logarithmic, with ticks at round numbers that are written out, about as many as have room."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    ax.set_yscale("log")
    near = not values or max(values) < 10 * min(values)
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]) if near else LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(lambda value, _: figure(value))
    ax.yaxis.set_minor_locator(NullLocator())


def figure(value: float) -> str:
    """Return a number as text without an exponent: ``12.3``, ``1,234``, ``254,000``; three digits below a thousand."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if not value or abs(value) >= 1e-3 else f"{value:.6f}".rstrip("0")


def key_page_map(
    thread_group_size: int,
    vec_size: int,
    *,
    block_size: int = 16,
    head_size: int = 32,
    x: int = 8,
    ax: Axes | None = None,
) -> Axes:
    """Draw which thread of a thread group reads which elements of one page of keys (one KV head), in layout "x".

    Rows are tokens, columns are the elements of a head. Thin lines bound one load of a thread, thick ones the groups of
    x elements that are contiguous in memory. The number in a cell is the lane within its thread group. The dashed frame
    is one request of the warp; it reads the pale tokens in its next iteration. Returns the matplotlib Axes.
    """
    ax = new_axes(9, 3.6) if ax is None else ax
    groups = 32 // thread_group_size
    for token in range(block_size):
        for load in range(head_size // vec_size):
            lane = load % thread_group_size
            face = {"facecolor": OKABE_ITO[lane % len(OKABE_ITO)], "alpha": 0.75 if token < groups else 0.3}
            box(ax, load * vec_size, token, vec_size, 1, edgecolor="white", linewidth=0.8, **face)
            ax.text((load + 0.5) * vec_size, token + 0.5, str(lane), ha="center", va="center", fontsize=7)
    for edge in range(0, head_size + 1, x):
        ax.axvline(edge, color="black", linewidth=1.6)
    ax.set(
        xlim=(0, head_size),
        ylim=(block_size, 0),
        xlabel=f"element of the head (x = {x} of them lie side by side)",
        ylabel="token of the page",
        title=f"THREAD_GROUP_SIZE = {thread_group_size}, VEC_SIZE = {vec_size}",
    )
    request = (thread_group_size * vec_size, min(groups, block_size))
    frame: dict[str, Any] = {"edgecolor": "#D55E00", "linewidth": 3, "linestyle": "--", "clip_on": False}
    box(ax, 0, 0, *request, fill=False, **frame)
    return ax


def grouped_bars(
    labels: Sequence[str], series: dict[str, Sequence[float]], *, ylabel: str, title: str = "", ax: Axes | None = None
) -> Axes:
    """Draw bars of several series per label, hatched as well as coloured, and return the matplotlib Axes."""
    ax = new_axes(8, 3.2) if ax is None else ax
    width = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        places = [at + (index - (len(series) - 1) / 2) * width for at in range(len(labels))]
        bars = ax.bar(
            places, values, width, label=name, color=OKABE_ITO[index], hatch=("", "//", "..", "xx")[index % 4],
            edgecolor="white",
        )  # fmt: skip
        ax.bar_label(bars, fmt=figure, fontsize=8)
    ax.set_xticks(range(len(labels)), labels)
    ax.yaxis.set_major_formatter(lambda value, _: figure(value))
    ax.set(ylabel=ylabel, title=title)
    ax.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        ax.legend(frameon=False)
    return ax
