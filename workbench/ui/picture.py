"""Base of the pictures of a kernel: a class with an SVG and a text form, and helpers for titles, lanes and numbers."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from workbench.ui.figures import embedded, image, show_as_vectors, svg_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench.ptx.recording import WarpRequest, WarpSpan

USED = "#0072B2"
WASTED = "#D55E00"
SHARED_BY_LANES = "#009E73"
WAITING = "#E69F00"
_WIDTH = 9.4  # inches


class Picture(ABC):
    """A picture that is an SVG in a notebook and on its web page, and text in a terminal.

    In a notebook its colours follow the theme (`workbench.ui.figures`); `to_html` is for pages of your own.
    """

    @property
    @abstractmethod
    def headline(self) -> str:
        """Summary of the picture with its numbers, in one sentence."""

    @abstractmethod
    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw with matplotlib and return the Axes; without ``ax``, make a figure of the right size."""

    @abstractmethod
    def __str__(self) -> str: ...

    def svg(self) -> str:
        """Return the picture as an SVG of a notebook cell's width."""
        return svg_of(self.draw().figure)

    def cell_html(self) -> str:
        """Return the picture as HTML for the output of a notebook cell."""
        return embedded(self.svg(), self.headline)

    def to_html(self) -> str:
        """Return an HTML ``<figure>`` with the SVG embedded, the headline, and the text form for screen readers."""
        return (
            f'<figure style="margin:0">{image(self.svg(), self.headline)}'
            f"<details><summary>{html.escape(self.headline)}</summary><pre>{html.escape(str(self))}</pre></details></figure>"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        return {"text/plain": str(self), "text/html": self.cell_html()}


def sheet(height: float, *, top: float = 0.6) -> Axes:
    """Make Axes of a notebook cell's width and exactly ``height`` inches, below ``top`` inches for the titles."""
    import matplotlib.pyplot as plt

    left, right, bottom = 0.85, 0.1, 0.5
    whole = top + height + bottom
    figure = plt.figure(figsize=(_WIDTH, whole))
    show_as_vectors()
    return figure.add_axes((left / _WIDTH, bottom / whole, 1 - (left + right) / _WIDTH, height / whole))


def title(ax: Axes, headline: str, caption: str, above: float = 4) -> None:
    """Write the headline in bold above the caption, ``above`` points above the Axes."""
    at = {"xy": (0, 1), "xycoords": "axes fraction", "textcoords": "offset points"}
    ax.annotate(caption, xytext=(0, above + 4), fontsize=8.5, color="#444444", **at)
    ax.annotate(headline, xytext=(0, above + 19), fontsize=10.5, weight="bold", **at)


def key(ax: Axes, marks: Sequence[tuple[dict, str]], below: float = 2.0) -> None:
    """Draw a legend of the faces of boxes in a line under the Axes, ``below`` lines of text further down."""
    from matplotlib.patches import Patch

    ax.legend(
        handles=[Patch(label=label, **face) for face, label in marks], loc="upper right", bbox_to_anchor=(1, 0),
        ncols=len(marks), frameon=False, fontsize=8, borderaxespad=below, handlelength=1.8, columnspacing=1.4,
    )  # fmt: skip


def folded(count: int, most: int) -> list[int | None]:
    """Return the indices of at most ``most`` rows to show: all, or the first ones, None for a gap, and the last two."""
    if count <= most:
        return list(range(count))
    return [*range(most - 3), None, count - 2, count - 1]


def lane_range(lanes: Iterable[int]) -> str:
    """Return lanes as short text, for example ``0–7``, ``0, 2, …, 14`` for a stride, or ``3, 9, 17``."""
    found = sorted(set(lanes))
    if len(found) < 3:
        return ", ".join(map(str, found))
    steps = {b - a for a, b in pairwise(found)}
    if steps == {1}:
        return f"{found[0]}–{found[-1]}"
    if len(steps) == 1 and len(found) > 3:
        return f"{found[0]}, {found[1]}, …, {found[-1]}"
    runs: list[list[int]] = []
    for lane in found:
        if runs and lane == runs[-1][-1] + 1:
            runs[-1].append(lane)
        else:
            runs.append([lane])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, for example ``1 sector`` or ``1,024 sectors``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def verb(request: WarpRequest) -> str:
    """Return the verb for a `WarpRequest`: loads, stores or updates."""
    if request.is_load and request.is_store:
        return "updates"
    return "loads" if request.is_load else "stores"


def asking(request: WarpRequest) -> str:
    """Describe a request, for example ``line 113, warp 0: lanes 0–7 only; each lane loads 4 bytes``."""
    active = [lane for lane, address in enumerate(request.addresses) if address is not None]
    lanes = "" if len(active) == 32 else f"lane{'s' * (len(active) > 1)} {lane_range(active)} only; "
    size = plural(request.bytes_per_lane, "byte")
    return f"{place(request)}, warp {request.warp}: {lanes}each lane {verb(request)} {size}"


def place(request: WarpRequest | WarpSpan) -> str:
    """Return the line of a request or barrier in the kernel's own file, such as ``line 113``, else its PTX line.

    A request that no kernel made has the name of its source.
    """
    if request.kernel_line:
        return f"line {request.kernel_line}"
    if request.source_line:
        return f"{request.source.rsplit('/', 1)[-1]}:{request.source_line}"
    ptx_line = getattr(request, "ptx_line", 0)
    return f"PTX line {ptx_line}" if ptx_line else request.source or "a line the compiler does not name"
