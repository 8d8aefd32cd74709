"""Which multiprocessor is busy when: the blocks of a launch as bars over the places that they run in."""

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
    """One block: its number in the launch, the place that it ran in, and from when to when."""

    block: int
    place: int
    start: float
    end: float


def schedule(durations: Sequence[float], places: int) -> tuple[Span, ...]:
    """Blocks in launch order, each in the place that is free first, as a GPU hands them out.

    Args:
        durations: of each block, in any unit of time.
        places: multiprocessors times the blocks that fit on one.

    Raises:
        ArgumentError: there is no place.
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
    """Of all places, from the first block's start to the last one's end, the share of the time that is used."""
    last = max((span.end for span in spans), default=0.0)
    return sum(span.end - span.start for span in spans) / (places * last) if last else 0.0


def wave_picture(
    durations: Sequence[float],
    places: int,
    *,
    kinds: Sequence[int] | None = None,
    labels: Sequence[str] = (),
    xlabel: str = "time",
    title: str = "",
    xlim: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw `schedule`: a row per place, a bar per block; what stays white is idle.

    Args:
        durations, places: as in `schedule`.
        kinds: a number per block, which chooses its colour and hatch (e.g. its sequence); default all the same.
        labels: the name of each kind, for a legend.
        xlim: where the time axis ends, to compare two pictures; default the end of the last block.

    Returns:
        The matplotlib Axes. Its title says what share of the time the places are busy.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    ax = new_axes(7, 3.2) if ax is None else ax
    spans = schedule(durations, places)
    kinds = kinds if kinds is not None else [0] * len(spans)
    styles = {
        kind: {
            "facecolor": OKABE_ITO[kind % len(OKABE_ITO)],
            "hatch": _HATCHES[kind // 2 % len(_HATCHES)],
            "edgecolor": "white",
            "linewidth": 0.4,
        }
        for kind in set(kinds)
    }
    for kind, style in styles.items():
        bars = [
            [(span.start, span.place - 0.5), (span.end, span.place - 0.5), (span.end, span.place + 0.5),
             (span.start, span.place + 0.5)]
            for span in spans if kinds[span.block] == kind
        ]  # fmt: skip
        ax.add_collection(PolyCollection(bars, **style))  # one artist: a launch has hundreds of blocks
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
    if labels:
        patches = [Patch(label=label, **styles[kind]) for kind, label in enumerate(labels) if kind in styles]
        ax.legend(handles=patches, frameon=False, loc="lower right", fontsize=8)
    return ax
