"""Picture of one warp's request to global memory: the bytes that lanes access, and the sectors that have to move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.base.memory_counts import SECTOR_BYTES
from workbench.ui.picture import USED, WASTED, Picture, asking, folded, key, lane_range, plural, sheet, title
from workbench.ui.request_state import LINE_BYTES, Run, Sector, cache_lines, sectors_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench.ptx.recording import WarpRequest

_CELL_BYTES = 4  # of the text form: three characters each
_MOST_TEXT_ROWS = 10
_MOST_ROWS = 18
_UNUSED: dict[str, Any] = {"facecolor": "white", "edgecolor": WASTED, "hatch": "/////", "linewidth": 0}
_STILL: dict[str, Any] = {"facecolor": "white", "edgecolor": "#BBBBBB", "linewidth": 0.8, "linestyle": ":"}


class WarpMap(Picture):
    """The sectors of one request to global memory, drawn by `warp_map`.

    Attributes:
        request: the `WarpRequest`.
        sectors: the 32-byte sectors that it moves, by address.
        bytes_used: number of distinct bytes that lanes access.
        bytes_moved: number of bytes moved, 32 for each sector.
        ideal_sectors: the fewest sectors that could hold the bytes used.
    """

    def __init__(self, request: WarpRequest):
        self.request = request
        self.sectors: tuple[Sector, ...] = sectors_of(request)
        self.bytes_used = sum(sector.used for sector in self.sectors)
        self.bytes_moved = SECTOR_BYTES * len(self.sectors)
        self.ideal_sectors = -(-self.bytes_used // SECTOR_BYTES)

    @property
    def headline(self) -> str:
        """Summary, such as ``8 sectors for 256 bytes used: 100 % of the bytes moved are used``."""
        ideal = "" if self.ideal_sectors == len(self.sectors) else f" ({self.ideal_sectors} would do)"
        return (
            f"{plural(len(self.sectors), 'sector')}{ideal} for {plural(self.bytes_used, 'byte')} used: "
            f"{100 * self.bytes_used / self.bytes_moved:.3g} % of the bytes moved are used"
        )

    @property
    def caption(self) -> str:
        """Line, warp, active lanes, size and buffer of the request."""
        return f"{asking(self.request)}, {self.request.buffer or 'memory of the program itself'}"

    # -- text ---------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<warp map of {self.caption}: {self.headline}>"

    def __str__(self) -> str:
        """Return a strip of text per 128-byte line, with three characters for 4 bytes.

        A lane is at its first byte; ░ marks bytes that are moved but not used.
        """
        rows = cache_lines(self.sectors)
        first = rows[0][0]
        out = [self.headline, self.caption]
        for at in folded(len(rows), _MOST_TEXT_ROWS):
            if at is None:
                out.append(f"{'⋮':>9} {plural(len(rows) - _MOST_TEXT_ROWS + 1, 'more line')}")
                continue
            base, sectors = rows[at]
            cells = "|".join(_cells(sectors.get(at)) for at in range(LINE_BYTES // SECTOR_BYTES))
            out.append(f"{f'+{base - first:,}':>9} |{cells}|")
        notes = ["a cell is 4 bytes, with the lane that begins there"]
        if self.request.bytes_per_lane > _CELL_BYTES:
            notes.append("── the same lane goes on")
        if any(len(run.lanes) > 1 for sector in self.sectors for run in sector.runs) or self.request.bytes_per_lane < 4:
            notes.append("* the first of several lanes")
        if self.bytes_used < self.bytes_moved:
            notes.append("░░ moved but not used")
        return "\n".join([*out, " " * 10 + "; ".join(notes)])

    # -- picture ------------------------------------------------------------------------------------------------

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw a row per 128-byte line, by address; the shade goes with the lane, hatched bytes are unused."""
        rows = cache_lines(self.sectors)
        shown = folded(len(rows), _MOST_ROWS)
        if ax is None:
            ax = sheet(0.29 * len(shown))
        ax.set(xlim=(0, LINE_BYTES), ylim=(len(shown), 0))
        for top, at in enumerate(shown):
            if at is None:
                left_out = f"⋮  {plural(len(rows) - _MOST_ROWS + 1, 'more line')}  ⋮"
                ax.text(LINE_BYTES / 2, top + 0.45, left_out, ha="center", va="center", fontsize=8)
                continue
            base, sectors = rows[at]
            _draw_line(ax, sectors, top)
            ax.text(-1.2, top + 0.44, f"+{base - rows[0][0]:,}", ha="right", va="center", fontsize=8)
        ax.set_xticks(range(0, LINE_BYTES + 1, SECTOR_BYTES), [f"byte {at}" for at in range(0, LINE_BYTES + 1, 32)])
        ax.set_yticks([])
        ax.tick_params(length=0, labelsize=7.5)
        ax.spines[:].set_visible(False)
        title(ax, self.headline, f"{self.caption}; a row is a 128-byte line; the shade goes with the lane")
        marks: list[tuple[dict, str]] = [({"facecolor": lane_colour(20)}, "bytes used, with the lane")]
        if self.bytes_used < self.bytes_moved:
            marks.append((_UNUSED, "moved, not used"))
        if any(len(sectors) < LINE_BYTES // SECTOR_BYTES for _, sectors in rows):
            marks.append((_STILL, "sector not moved"))
        key(ax, marks)
        return ax


def warp_map(request: WarpRequest) -> WarpMap:
    """Show which lane of a warp accesses which bytes in one request to global memory.

    ``print`` writes strips of text, a notebook cell shows the picture, ``.draw(ax)`` draws into your own figure.

    Raises:
        ArgumentError: if the request is to shared memory; `bank_map` shows those.
    """
    return WarpMap(request)


def lane_colour(lane: int) -> tuple[float, float, float, float]:
    """Return the colour of a lane, from pale for lane 0 to dark for lane 31, so that the order shows without colour."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("lanes", ["#CFE6F5", "#56B4E9", USED, "#003A5C"])(lane / 31)


def _cells(sector: Sector | None) -> str:
    if sector is None:
        return "   " * (SECTOR_BYTES // _CELL_BYTES)
    cells: list[str] = []
    before: tuple[int, ...] = ()
    for start in range(0, SECTOR_BYTES, _CELL_BYTES):
        runs = [run for run in sector.runs if run.start < start + _CELL_BYTES and run.end > start]
        lanes = tuple(dict.fromkeys(lane for run in runs for lane in run.lanes))
        if not lanes:
            cells.append(" ░░")
        elif lanes == before and len(lanes) == 1:
            cells.append(" ──")
        else:
            cells.append(f"{lanes[0]:>2}*" if len(lanes) > 1 else f"{lanes[0]:>3}")
        before = lanes
    return "".join(cells)


def _draw_line(ax: Axes, sectors: dict[int, Sector], top: float) -> None:
    from matplotlib.patches import Rectangle

    for at in range(LINE_BYTES // SECTOR_BYTES):
        left = at * SECTOR_BYTES
        sector = sectors.get(at)
        if sector is None:
            ax.add_patch(Rectangle((left, top), SECTOR_BYTES, 0.85, **_STILL))
            continue
        for run in sector.runs:
            _draw_run(ax, run, left, top)
        ax.add_patch(Rectangle((left, top), SECTOR_BYTES, 0.85, fill=False, edgecolor="black", linewidth=0.9))
    ax.add_patch(Rectangle((0, top), LINE_BYTES, 0.85, fill=False, edgecolor="black", linewidth=1.8, clip_on=False))


def _draw_run(ax: Axes, run: Run, left: int, top: float) -> None:
    from matplotlib.patches import Rectangle

    box = (left + run.start, top), run.end - run.start, 0.85
    if not run.lanes:
        ax.add_patch(Rectangle(*box, **_UNUSED))
        return
    lane = run.lanes[0]
    ax.add_patch(Rectangle(*box, facecolor=lane_colour(lane), edgecolor="white", linewidth=0.6))
    size = run.end - run.start
    text = lane_range(run.lanes)
    if len(text) * 1.35 > size and len(run.lanes) > 1:
        text = f"×{len(run.lanes)}"
    if size == 1 and len(run.lanes) == 1 and lane % 4:
        return  # one byte is too narrow for a number, four are not
    ax.text(
        left + (run.start + run.end) / 2, top + 0.44, text, ha="center", va="center",
        fontsize=7.5 if size > 2 else 5.5, color="white" if lane > 14 else "black",
    )  # fmt: skip
