"""Line plots whose series differ in marker and dash as well as in colour (Okabe-Ito)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.ui.plots import marked, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ("-", "--", "-.", ":")


def marked_lines(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    xscale: str = "linear",
    yscale: str = "linear",
    first_style: int = 0,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot one line per series over the same ``x``.

    Args:
        x: positions of the points.
        series: values of each series, by its name; one value per x.
        xlabel: label of the x axis.
        ylabel: label of the y axis.
        title: title of the plot.
        xscale: scale of the x axis, as in matplotlib; "log2" is logarithmic with powers of two as ticks.
        yscale: scale of the y axis, like ``xscale``.
        first_style: number of the first line's colour, marker and dash, from 0.
        legend: False if a plot beside this one has the legend already.
        ax: the Axes to draw into; default new ones.

    Returns:
        The matplotlib Axes.
    """
    from matplotlib.ticker import FuncFormatter

    ax = new_axes(6, 3.4) if ax is None else ax
    for index, (name, values) in enumerate(series.items(), first_style):
        ax.plot(
            x,
            values,
            label=name,
            linestyle=_DASHES[index % len(_DASHES)],
            markersize=5,
            **marked(index),
        )
    for scale, axis in ((xscale, "x"), (yscale, "y")):
        if scale == "log2":
            getattr(ax, f"set_{axis}scale")("log", base=2)
            getattr(ax, f"{axis}axis").set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        else:
            getattr(ax, f"set_{axis}scale")(scale)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    if legend and len(series) > 1:
        ax.legend(frameon=False)
    return ax
