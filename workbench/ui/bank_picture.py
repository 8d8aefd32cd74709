"""Picture of one warp's request to shared memory: lanes, banks and wavefronts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.ui.picture import (
    SHARED_BY_LANES,
    USED,
    WASTED,
    Picture,
    asking,
    folded,
    key,
    lane_range,
    plural,
    sheet,
    title,
)
from workbench.ui.request_state import BANKS, Wavefront, wavefronts_of, words_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench.ptx.recording import WarpRequest

_MOST_TEXT_ROWS = 12
_KINDS = {
    "alone": ({"facecolor": USED, "edgecolor": "white"}, "words of one lane, with the lane"),
    "broadcast": ({"facecolor": SHARED_BY_LANES, "edgecolor": "white"}, "broadcast: a word for several lanes (×n)"),
    "conflict": ({"facecolor": WASTED, "edgecolor": "#F3B58F", "hatch": "////"}, "conflict: the bank was busy before"),
}


class BankMap(Picture):
    """The wavefronts of one request to shared memory, drawn by `bank_map`.

    Attributes:
        request: the `WarpRequest`.
        wavefronts: the passes through the banks, in order.
        words: distinct 4-byte words that the lanes touch.
        conflicts: number of wavefronts caused by banks that hold several of the words and serve one at a time.
        phases: number of parts of the warp that are served one after the other, without regard to banks.
    """

    def __init__(self, request: WarpRequest):
        self.request = request
        self.wavefronts: tuple[Wavefront, ...] = wavefronts_of(request)
        self.words = words_of(request)
        self.conflicts = sum(front.again > 0 for front in self.wavefronts)
        self.phases = len({front.phase for front in self.wavefronts})

    @property
    def headline(self) -> str:
        """Summary, such as ``32 wavefronts for 32 words (1 would do): 31 from bank conflicts``."""
        parts = []
        if self.phases > 1:
            parts.append(f"{8 * self.request.bytes_per_lane}-bit requests go in {self.phases} parts of the warp")
        parts.append(f"{self.conflicts} from bank conflicts" if self.conflicts else "no bank conflict")
        ideal = f" ({self.phases} would do)" if self.conflicts else ""
        count = plural(len(self.wavefronts), "wavefront")
        return f"{count} for {plural(self.words, 'word')}{ideal}: {', '.join(parts)}"

    @property
    def caption(self) -> str:
        """Line, warp, active lanes and size of the request."""
        return f"{asking(self.request)}, shared memory"

    # -- text ---------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<bank map of {self.caption}: {self.headline}>"

    def __str__(self) -> str:
        """Return a table of text with a row per wavefront and a column per bank, which has the lane that it serves.

        ``+`` marks the first of several lanes, ``!`` a conflict.
        """
        out = [self.headline, self.caption, "     bank " + "".join(f"{bank:3}" for bank in range(BANKS))]
        for number in folded(len(self.wavefronts), _MOST_TEXT_ROWS):
            if number is None:
                more = plural(len(self.wavefronts) - _MOST_TEXT_ROWS + 1, "more wavefront")
                out.append(f"{'⋮':>9} {more}")
                continue
            front = self.wavefronts[number]
            cells = ["  ·"] * BANKS
            for bank, (_, lanes) in front.banks.items():
                mark = "!" if front.again else "+" if len(lanes) > 1 else " "
                cells[bank] = f"{lanes[0]:2}{mark}"
            out.append(f"wave {number:>4} {''.join(cells)}".rstrip())
        marks = [
            ("+", "lanes", any(len(lanes) > 1 for front in self.wavefronts for _, lanes in front.banks.values())),
            ("!", "conflict", self.conflicts > 0),
        ]
        texts = {"+": "+ one word for several lanes, the first is named", "!": "! conflict: the bank was busy before"}
        shown = [texts[mark] for mark, _, there in marks if there]
        out.append(" " * 10 + "; ".join(["a cell names the lane that the bank serves", *shown]))
        return "\n".join(out)

    # -- picture ------------------------------------------------------------------------------------------------

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw a row per wavefront and a column per bank; a cell has the lane that it serves, or their number."""
        from matplotlib.patches import Rectangle
        from matplotlib.patheffects import withStroke

        height = len(self.wavefronts)
        pitch = 0.29 if height <= 8 else 0.19
        if ax is None:
            ax = sheet(pitch * height, top=0.8)
        ax.set(xlim=(0, BANKS), ylim=(height, 0))
        seen = set()
        for number, front in enumerate(self.wavefronts):
            ax.add_patch(Rectangle((0, number + 0.04), BANKS, 0.92, facecolor="#EFEFEF", edgecolor="none", zorder=0))
            for bank, width, lanes in _boxes(front):
                kind = "conflict" if front.again else "broadcast" if len(lanes) > 1 else "alone"
                seen.add(kind)
                face = _KINDS[kind][0]
                ax.add_patch(Rectangle((bank + 0.02, number + 0.04), width - 0.04, 0.92, linewidth=0, **face))
                text = lane_range(lanes)
                ax.text(
                    bank + width / 2, number + 0.52, text if len(text) < 4 * width else f"×{len(lanes)}", ha="center",
                    va="center", fontsize=7.5, color="white",
                    path_effects=[withStroke(linewidth=4, foreground=face["facecolor"])],
                )  # fmt: skip
            if number and front.phase != self.wavefronts[number - 1].phase:
                ax.axhline(number, color="black", linewidth=1.2)
        ax.set_xticks([bank + 0.5 for bank in range(BANKS)], [str(bank) for bank in range(BANKS)])
        ax.set_yticks([number + 0.5 for number in range(height)], [f"wavefront {number}" for number in range(height)])
        ax.xaxis.tick_top()
        ax.tick_params(length=0, labelsize=7)
        ax.spines[:].set_visible(False)
        for edge in range(1, BANKS):
            ax.axvline(edge, color="white", linewidth=0.7, zorder=0.5)
        title(ax, self.headline, f"{self.caption}; a column is a bank", above=14)
        key(ax, [mark for kind, mark in _KINDS.items() if kind in seen], below=0.8)
        return ax


def _boxes(front: Wavefront) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return (first bank, banks, lanes) for each run of banks that serve consecutive words to the same lanes."""
    boxes: list[list] = []
    for bank, (word, lanes) in front.banks.items():
        if boxes and boxes[-1][2] == lanes and boxes[-1][0] + boxes[-1][1] == bank and boxes[-1][3] == word - 1:
            boxes[-1][1] += 1
            boxes[-1][3] = word
        else:
            boxes.append([bank, 1, lanes, word])
    return [(bank, width, lanes) for bank, width, lanes, _ in boxes]


def bank_map(request: WarpRequest) -> BankMap:
    """Show which lane takes which word from which of the 32 banks in one request to shared memory.

    ``print`` writes a table of text, a notebook cell shows the picture, ``.draw(ax)`` draws into your own figure.

    Raises:
        ArgumentError: if the request is to global memory; `warp_map` shows those.
    """
    return BankMap(request)
