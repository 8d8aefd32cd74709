"""Line plots whose series differ in marker and dash as well as in colour (Okabe-Ito)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.ui.plots import marked, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class LineAxes:
    """Labels, title and scales of the axes of a line plot.

    A scale is one of matplotlib's, or "log2": logarithmic with powers of two as ticks.
    """

    xlabel: str
    ylabel: str
    title: str = ""
    xscale: str = "linear"
    yscale: str = "linear"

    def apply(self, ax: Axes) -> None:
        """Set the labels, the title and the scales of ``ax``."""
        from matplotlib.ticker import FuncFormatter

        for scale, axis in ((self.xscale, "x"), (self.yscale, "y")):
            if scale == "log2":
                getattr(ax, f"set_{axis}scale")("log", base=2)
                getattr(ax, f"{axis}axis").set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            else:
                getattr(ax, f"set_{axis}scale")(scale)
        ax.set(xlabel=self.xlabel, ylabel=self.ylabel, title=self.title)


def marked_lines(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    axes: LineAxes,
    *,
    first_style: int = 0,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot one line per series over the same ``x``.

    Args:
        x: positions of the points.
        series: values of each series, by its name; one value per x.
        axes: labels, title and scales of the axes.
        first_style: number of the first line's colour, marker and dash, from 0.
        legend: False if a plot beside this one has the legend already.
        ax: the Axes to draw into; default new ones.

    Returns:
        The matplotlib Axes.
    """
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
    axes.apply(ax)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    if legend and len(series) > 1:
        ax.legend(frameon=False)
    return ax
