"""Picture of the warps of one block over logical time: runs, waits and the barriers between them."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from workbench.ui.kernel.warp_rows import RUN, TEXT_COLUMNS, WAIT, rows_over_time, span_of_time, warps_of
from workbench.ui.picture import Picture, key, place, plural, sheet, title
from workbench.ui.request_stepper import recording_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench.ptx.recording import Recording, WarpSpan

_MOST_JOINTS = 12  # of the text form


@dataclass(frozen=True)
class Joint:
    """One completion of a barrier.

    Attributes:
        clock: logical time at which the barrier released its warps.
        barrier: number of the barrier.
        place: lines at which warps arrived.
        text: source line of the barrier.
        warps: warps that arrived.
        waits: warp instructions that each waiting warp waited.
    """

    clock: int
    barrier: int
    place: str
    text: str
    warps: tuple[int, ...]
    waits: dict[int, int]

    @property
    def last(self) -> tuple[int, ...]:
        """Warps that arrived last, and so did not wait."""
        return tuple(warp for warp in self.warps if warp not in self.waits)

    @property
    def waited(self) -> int:
        """Warp instructions of waiting, summed over all warps."""
        return sum(self.waits.values())


class WarpTimeline(Picture):
    """Run and wait spans of every warp, drawn by `warp_timeline`.

    Attributes:
        recording: the `Recording`.
        joints: completions of its barriers, in the order of time.
        end: logical time at which the last warp ends, in warp instructions.
        waited: warp instructions of waiting, summed over all warps.
    """

    def __init__(self, recording: Recording):
        self.recording = recording
        self.joints = _joints(recording)
        self.end = max((span.end for span in recording.spans), default=0)
        self.waited = sum(span.end - span.start for span in recording.spans if span.kind == "wait")

    @property
    def headline(self) -> str:
        """Summary, such as ``4 warps, 747 instructions long, 4 barriers: warps wait 41 % of the time``."""
        whole = self.end * self.recording.warps
        share = f"{100 * self.waited / whole:.2g}" if whole else "0"
        return (
            f"{plural(self.recording.warps, 'warp')}, {plural(self.end, 'instruction')} long, "
            f"{plural(len(self.joints), 'barrier')}: warps wait {share} % of the time"
        )

    @property
    def caption(self) -> str:
        """Index of the block, and the limits of the picture."""
        cut = "; only the first spans were kept" if self.recording.truncated else ""
        return f"block {self.recording.block}; who waits for whom, not for how many nanoseconds{cut}"

    @property
    def longest(self) -> Joint | None:
        """Barrier with the most waiting, summed over its warps; None if no warp waited."""
        return max((joint for joint in self.joints if joint.waits), key=lambda joint: joint.waited, default=None)

    # -- text ---------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<warp timeline of block {self.recording.block}: {self.headline}>"

    def __str__(self) -> str:
        """Return a strip of text per warp, then the barriers in order.

        ``=`` is a run, ``.`` a wait, ``|`` the release of a barrier.
        """
        per_column = max(1, -(-self.end // TEXT_COLUMNS))
        out = [self.headline, self.caption]
        for warp in range(self.recording.warps):
            spans = [span for span in self.recording.spans if span.warp == warp]
            out.append(f"warp {warp:>2} {_strip(spans, per_column)}")
        column = f"a column is {plural(per_column, 'instruction')} of the warp"
        out.append(f"{'':7} = runs, . waits, | a barrier lets go; {column}")
        for joint in self.joints[:_MOST_JOINTS]:
            if joint.waits:
                late = warps_of(joint.last) if joint.last else "a warp that ended"
                who = f"{plural(joint.waited, 'instruction')} of waiting, all for {late}"
            else:
                who = "all arrive together"
            out.append(f"{joint.clock:>7,} {joint.place}: {who}")
        if len(self.joints) > _MOST_JOINTS:
            out.append(f"{'⋮':>7} {plural(len(self.joints) - _MOST_JOINTS, 'more barrier')}")
        return "\n".join(out)

    # -- picture ------------------------------------------------------------------------------------------------

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw a row per warp: waits are hatched, a black line is a barrier that releases its warps."""
        warps = self.recording.warps
        if ax is None:
            ax = sheet((0.34 if warps <= 8 else 0.2) * warps, top=0.8)
        ax.set(xlim=(0, self.end or 1), ylim=(warps, 0))
        for span in self.recording.spans:
            width = span.end - span.start
            text = ""
            if span.kind == "wait" and width > 0.028 * self.end:
                text = f"waits {width:,}" if width > 0.1 * self.end else f"{width:,}"
            span_of_time(ax, span.warp, span.start, span.end, WAIT if span.kind == "wait" else RUN, text)
        labelled = -1.0
        for joint in self.joints:
            top, bottom = min(joint.warps), max(joint.warps) + 1
            ax.plot([joint.clock] * 2, [top + 0.02, bottom - 0.02], color="black", linewidth=1.6, solid_capstyle="butt")
            if joint.clock - labelled > 0.06 * self.end:
                ax.annotate(
                    joint.place, (joint.clock, 0), (0, 3), textcoords="offset points", ha="center", fontsize=7.5
                )
                labelled = joint.clock
        rows_over_time(ax, [(warp, f"warp {warp}") for warp in range(warps)], "the warp's own instructions")
        title(ax, self.headline, self.caption, above=14)
        marks = [({"facecolor": RUN["facecolor"]}, "runs")]
        if self.waited:
            marks.append((WAIT | {"linewidth": 0}, "waits, for so many instructions"))
        marks.append(({"facecolor": "black"}, "a barrier lets its warps go"))
        key(ax, marks)
        return ax


def warp_timeline(recording: Any) -> WarpTimeline:
    """Show when the warps of one block ran and waited, by the machine's logical clock, and at which barriers.

    The clock counts warp instructions, so the picture is the same on every machine. It shows which warps wait for
    which, not for how many nanoseconds.

    Args:
        recording: a `Recording`, or a trace or launch report that has one (``record_block=``).

    Raises:
        ArgumentError: if nothing was recorded.
    """
    return WarpTimeline(recording_of(recording))


def _joints(recording: Recording) -> tuple[Joint, ...]:
    """Collect the barriers of a recording.

    A run that ends at a barrier arrives there. Its barrier releases at the end of the run, or of the wait after it.
    """
    found: dict[tuple[int, int], list[tuple[WarpSpan, int]]] = {}
    for span, after in zip(recording.spans, (*recording.spans[1:], None), strict=True):
        if span.kind != "run" or span.barrier is None:
            continue
        clock, waited = span.end, 0
        if after is not None and after.warp == span.warp and after.kind == "wait":
            clock, waited = after.end, after.end - after.start
        found.setdefault((clock, span.barrier), []).append((span, waited))
    joints = []
    for (clock, barrier), arrivals in sorted(found.items()):
        places = dict.fromkeys(place(span) for span, _ in arrivals)
        first = arrivals[0][0]
        joints.append(
            Joint(
                clock,
                barrier,
                " and ".join(places),
                linecache.getline(first.kernel_source, first.kernel_line).strip(),
                tuple(span.warp for span, _ in arrivals),
                {span.warp: waited for span, waited in arrivals if waited},
            )
        )
    return tuple(joints)


def _strip(spans: list[WarpSpan], per_column: int) -> str:
    """Return one character per ``per_column`` instructions; a wait shows where it fills half or more of them."""
    end = max((span.end for span in spans), default=0)
    waits = [span for span in spans if span.kind == "wait"]
    cells = []
    for column in range(-(-end // per_column)):
        low, high = column * per_column, (column + 1) * per_column
        waiting = sum(max(0, min(high, span.end) - max(low, span.start)) for span in waits)
        cells.append("." if 2 * waiting >= min(high, end) - low else "=")
    for span, after in pairwise(spans):
        if after.kind == "run":
            cells[min(len(cells) - 1, max(0, span.end - 1) // per_column)] = "|"
    return "".join(cells)
