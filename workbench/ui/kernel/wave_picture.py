"""Picture of the waves of a launch: its blocks as bars over time on the multiprocessors."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import ArgumentError
from workbench.ui.plots import OKABE_ITO, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HATCHES = ("", "///", "...", "xxx")


@dataclass(frozen=True)
class Span:
    """Run of one block: its number in the launch, its place, its start and its end."""

    block: int
    place: int
    start: float
    end: float


def schedule(durations: Sequence[float], places: int) -> tuple[Span, ...]:
    """Assign blocks in launch order, each to the place that becomes free first, as a GPU does.

    Args:
        durations: duration of each block, in any unit of time.
        places: multiprocessors times the blocks that fit on one.

    Raises:
        ArgumentError: if there is no place.
    """
    if places < 1:
        raise ArgumentError("places", places, "1 or more", "Count multiprocessors times the blocks that fit on one.")
    free = [(0.0, place) for place in range(places)]
    spans = []
    for block, duration in enumerate(durations):
        start, place = heapq.heappop(free)
        spans.append(Span(block, place, start, start + duration))
        heapq.heappush(free, (start + duration, place))
    return tuple(spans)


def busy_share(spans: Sequence[Span], places: int) -> float:
    """Return the fraction of the time until the last block ends in which the places are used."""
    last = max((span.end for span in spans), default=0.0)
    return sum(span.end - span.start for span in spans) / (places * last) if last else 0.0


def wave_picture(
    durations: Sequence[float],
    places: int,
    *,
    kinds: Sequence[str] = (),
    xlabel: str = "time",
    title: str = "",
    xlim: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw `schedule` with a row per place and a bar per block; white is idle time.

    Args:
        durations: duration of each block, in any unit of time.
        places: multiprocessors times the blocks that fit on one.
        kinds: the kind of each block, by which colour, hatch and legend tell them apart; default all alike.
        xlabel: label of the time axis.
        title: title of the picture, to which the busy fraction is added.
        xlim: end of the time axis, to compare two pictures; default the end of the last block.
        ax: the Axes to draw into; default new ones.

    Returns:
        The matplotlib Axes. Their title has the fraction of the time in which the places are busy.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    ax = new_axes(7, 3.2) if ax is None else ax
    spans = schedule(durations, places)
    of_blocks = kinds or [""] * len(spans)
    styles = {
        kind: {
            "facecolor": OKABE_ITO[number % len(OKABE_ITO)],
            "hatch": _HATCHES[number // 2 % len(_HATCHES)],
            "edgecolor": "white",
            "linewidth": 0.4,
        }
        for number, kind in enumerate(dict.fromkeys(of_blocks))
    }
    for kind, style in styles.items():
        bars = [
            [(span.start, span.place - 0.5), (span.end, span.place - 0.5), (span.end, span.place + 0.5),
             (span.start, span.place + 0.5)]
            for span in spans if of_blocks[span.block] == kind
        ]  # fmt: skip
        ax.add_collection(PolyCollection(bars, **style))  # one artist per kind, because a launch has hundreds of blocks
    end = max((span.end for span in spans), default=1.0)
    busy = f"{busy_share(spans, places):.0%} busy"
    ax.set(
        xlim=(0, xlim or end),
        ylim=(places - 0.5, -0.5),
        xlabel=xlabel,
        ylabel="multiprocessor",
        title=f"{title}: {busy}" if title else busy,
    )
    ax.spines[["top", "right"]].set_visible(False)
    if kinds:
        patches = [Patch(label=kind, **style) for kind, style in styles.items()]
        ax.legend(handles=patches, frameon=False, loc="lower right", fontsize=8)
    return ax
