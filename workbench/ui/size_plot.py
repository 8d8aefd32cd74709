"""Line plot of a figure over the sizes of an op's inputs, a line for each variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.errors import MissingToolError
from workbench.ui.plots import figure, legend_beside, marked, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SPREAD = 8
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
_DASHES = ("-", "--", "-.")
_DECADES = 100
"""Ratio of the largest to the smallest value up to which a logarithmic axis has labels between the powers of ten."""
_NEAR = 10
"""Factor within which a bound is shown beside lines."""


def line_plot(
    xs: Sequence[Any],
    lines: Mapping[tuple[str, str], Sequence[float | None]],
    bounds: Mapping[tuple[str, str], Sequence[float | None]],
    ax: Axes | None = None,
    **labels: str,
) -> Axes:
    """Plot lines over values, which may be numbers or words; ``bounds`` are dotted, and None leaves a gap.

    The first part of a line's name gives its colour and marker, the second, which may be empty, its dashes. A bound
    that is nowhere within a factor of ten of a line is left out, so that it does not press the lines together. An axis
    of widely spread numbers is logarithmic. ``labels`` are those of `Axes.set`.
    """
    try:
        from matplotlib.ticker import LogLocator, NullLocator

        ax = new_axes(7, 4) if ax is None else ax
    except ImportError as error:
        raise MissingToolError('plot() needs matplotlib: python -m pip install -e ".[lab]"') from error
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in xs)
    at = list(xs) if numbers else list(range(len(xs)))
    series, variations = (list(dict.fromkeys(name[part] for name in lines)) for part in (0, 1))
    for name, values in lines.items():
        index = series.index(name[0])
        size = max(9.0 - 1.5 * index, 4.0)  # equal lines lie on each other: the first ones show around the later
        dashes = _DASHES[variations.index(name[1]) % len(_DASHES)] if numbers else "none"
        label, style = " ".join(name).strip(), marked(index)
        ax.plot(at, _gaps(values), label=label, **style, linestyle=dashes, markersize=size, linewidth=size / 4)
    values_of_lines = [value for values in lines.values() for value in values if value]
    low, high = min(values_of_lines, default=0) / _NEAR, max(values_of_lines, default=0) * _NEAR
    bounds = {name: them for name, them in bounds.items() if any(one and low <= one <= high for one in them)}
    for name, values in bounds.items():
        label = " ".join(name).strip()
        ax.plot(at, _gaps(values), ":", color="#777777", linewidth=1.5, label=label, zorder=1)
    if numbers and min(at) > 0 and max(at) / min(at) >= _SPREAD:
        ax.set_xscale("log", base=2)
    drawn = [*values_of_lines, *(value for values in bounds.values() for value in values if value)]
    if drawn and max(drawn) / min(drawn) >= _SPREAD:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    ax.set_xticks(at, [figure(x) if numbers else str(x) for x in xs])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(lambda value, _: figure(value))
    if ax.get_yscale() == "log":
        few = max(drawn) / min(drawn) < _DECADES
        ax.yaxis.set_minor_locator(LogLocator(subs=(2, 5)) if few else NullLocator())
        ax.yaxis.set_minor_formatter(lambda value, _: figure(value))
    ax.set(**labels)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    legend_beside(ax, handlelength=4)
    return ax


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]
