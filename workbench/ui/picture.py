"""What the views of a kernel share: a picture that is also text, and how numbers and lanes are written."""

from __future__ import annotations

import base64
import html
import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from workbench.ptx.recording import WarpRequest, WarpSpan

USED = "#0072B2"
WASTED = "#D55E00"
SHARED_BY_LANES = "#009E73"
WAITING = "#E69F00"
_DPI = 100
_WIDTH = 9.4  # inches


class Picture(ABC):
    """Something to look at: a PNG in a notebook and on its web page, text in a terminal.

    There is no ``_repr_html_`` on purpose: pages that show notebooks prefer HTML to PNG and then strip its styles.
    `to_html` is for pages of one's own.
    """

    @property
    @abstractmethod
    def headline(self) -> str:
        """What the picture shows, in one sentence with its numbers."""

    @abstractmethod
    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw with matplotlib; returns the Axes. Without ``ax`` a figure of the right size is made."""

    @abstractmethod
    def __str__(self) -> str: ...

    def png(self) -> bytes:
        """The picture as a PNG of a notebook cell's width."""
        return png_of(self.draw().figure, _DPI)

    def to_html(self) -> str:
        """A figure of HTML that needs no other file: the PNG, its headline, and the text for who cannot see it."""
        data, text = base64.b64encode(self.png()).decode(), html.escape(self.headline)
        return (
            f'<figure style="margin:0"><img alt="{text}" src="data:image/png;base64,{data}" style="max-width:100%">'
            f"<details><summary>{text}</summary><pre>{html.escape(str(self))}</pre></details></figure>"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        return {"text/plain": str(self), "image/png": self.png()}


def png_of(figure: Figure, dpi: int) -> bytes:
    """A figure as a PNG; it is closed then."""
    import matplotlib.pyplot as plt

    data = io.BytesIO()
    figure.savefig(data, format="png", bbox_inches="tight", dpi=dpi, facecolor="white")
    plt.close(figure)
    return data.getvalue()


def sheet(height: float, *, top: float = 0.6) -> Axes:
    """A new Axes of a notebook cell's width and of exactly ``height`` inches, with ``top`` inches for the titles."""
    import matplotlib.pyplot as plt

    left, right, bottom = 0.85, 0.1, 0.5
    whole = top + height + bottom
    figure = plt.figure(figsize=(_WIDTH, whole))
    return figure.add_axes((left / _WIDTH, bottom / whole, 1 - (left + right) / _WIDTH, height / whole))


def title(ax: Axes, headline: str, caption: str, above: float = 4) -> None:
    """The headline in bold over the caption, ``above`` points over the Axes."""
    at = {"xy": (0, 1), "xycoords": "axes fraction", "textcoords": "offset points"}
    ax.annotate(caption, xytext=(0, above + 4), fontsize=8.5, color="#444444", **at)
    ax.annotate(headline, xytext=(0, above + 19), fontsize=10.5, weight="bold", **at)


def key(ax: Axes, marks: Sequence[tuple[dict, str]], below: float = 2.0) -> None:
    """What the faces of boxes mean, in a line under the Axes; ``below`` lines of text further down."""
    from matplotlib.patches import Patch

    ax.legend(
        handles=[Patch(label=label, **face) for face, label in marks], loc="upper right", bbox_to_anchor=(1, 0),
        ncols=len(marks), frameon=False, fontsize=8, borderaxespad=below, handlelength=1.8, columnspacing=1.4,
    )  # fmt: skip


def folded(count: int, most: int) -> list[int | None]:
    """Indices of rows to show: all, or the first ones, None for a gap, and the last two."""
    if count <= most:
        return list(range(count))
    return [*range(most - 3), None, count - 2, count - 1]


def lane_range(lanes: Iterable[int]) -> str:
    """Lanes as short as they can be said: ``0–7``, ``0, 2, …, 14`` for a stride, ``3, 9, 17``."""
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
    """``1 sector``, ``2 sectors``, ``1,024 sectors``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def verb(request: WarpRequest) -> str:
    """What a `WarpRequest` does, as a verb."""
    if request.is_load and request.is_store:
        return "updates"
    return "loads" if request.is_load else "stores"


def place(request: WarpRequest | WarpSpan) -> str:
    """Where a request or a barrier stands in the kernel's own file: ``line 113``, else its PTX line."""
    if request.kernel_line:
        return f"line {request.kernel_line}"
    if request.source_line:
        return f"{request.source.rsplit('/', 1)[-1]}:{request.source_line}"
    ptx_line = getattr(request, "ptx_line", 0)
    return f"PTX line {ptx_line}" if ptx_line else "a line the compiler does not name"
