"""Rows of time in pictures of warps: their spans, labels and styles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from workbench.ui.picture import WAITING, lane_range
from workbench.ui.plots import box

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RUN: dict[str, Any] = {"facecolor": "#9CCBE8", "edgecolor": "white"}
WAIT: dict[str, Any] = {"facecolor": "white", "edgecolor": WAITING, "hatch": "////"}
"""Styles of spans in which a warp runs (`RUN`) or waits (`WAIT`)."""
TEXT_COLUMNS = 84
"""Largest number of characters of a strip of text."""


def span_of_time(
    ax: Axes, row: float, start: float, end: float, face: dict[str, Any], text: str = "", color: str = "black"
) -> None:
    """Draw a span of a row from ``start`` to ``end``, with a text in the middle, on white if the span is hatched."""
    box(ax, start, row + 0.1, end - start, 0.8, linewidth=0, **face)
    if text:
        behind = {"facecolor": "white", "linewidth": 0, "pad": 0.8} if "hatch" in face else None
        style = {"ha": "center", "va": "center", "fontsize": 7.5, "color": color}
        ax.text((start + end) / 2, row + 0.52, text, bbox=behind, **style)


def rows_over_time(ax: Axes, rows: Sequence[tuple[float, str]], xlabel: str) -> None:
    """Label the rows of a picture, given as (top, name), and the time axis."""
    ax.set_yticks([top + 0.5 for top, _ in rows], [name for _, name in rows])
    ax.tick_params(axis="y", length=0, labelsize=8)
    ax.tick_params(axis="x", labelsize=7.5)
    ax.set_xlabel(xlabel, fontsize=8, loc="left")
    ax.spines[["top", "right", "left"]].set_visible(False)


def warps_of(warps: Collection[int]) -> str:
    """Return warps as text, for example ``warp 3`` or ``warps 0–3, 7``."""
    return f"warp{'s' * (len(warps) > 1)} {lane_range(warps)}"
