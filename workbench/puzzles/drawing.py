"""The pictures of puzzles: rows and grids of cells, and arrows between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workbench.ui.picture import Picture
from workbench.ui.plots import OKABE_ITO, box, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FACES = ("#CFE6F5", "#FBE3B5", "#BFE3D7", "#EBD0E0")
"""Pale colours of cells: the first threads or blocks, the second, and so on; a number or a label says the same."""
BLANK = "white"
SHARED = "#E4E4E4"
"""Face of cells in shared memory."""


class Drawing(Picture):
    """A picture of a puzzle; its text form is the headline with a caption."""

    def __init__(self, headline: str, caption: str, columns: float, rows: float, paint: Callable[[Axes], None]):
        self._headline, self._caption, self._columns, self._rows, self._paint = headline, caption, columns, rows, paint

    @property
    def headline(self) -> str:
        """Summary of the picture."""
        return self._headline

    def __str__(self) -> str:
        return f"{self._headline}\n{self._caption}"

    def __repr__(self) -> str:
        return f"<drawing: {self._headline}>"

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw the cells; a unit of the Axes is a cell."""
        if ax is None:
            scale = min(0.42, 9.0 / self._columns)
            ax = new_axes(self._columns * scale, (self._rows + 1.2) * scale)
        ax.set(xlim=(-0.2, self._columns), ylim=(self._rows, -0.2), aspect="equal")
        ax.axis("off")
        self._paint(ax)
        ax.set_title(self._headline, fontsize=10, loc="left", weight="bold")
        ax.text(0, self._rows + 0.1, self._caption, fontsize=8.5, color="#444444", va="top")
        return ax


def cells(
    ax: Axes, left: float, top: float, texts: Sequence[object], faces: Sequence[str] | str = BLANK, name: str = "",
    dashed: bool = False,
) -> None:  # fmt: skip
    """Draw a row of cells with texts, and a name before it."""
    for at, text in enumerate(texts):
        face = faces if isinstance(faces, str) else faces[at]
        style = (0, (2, 2)) if dashed else "-"
        box(ax, left + at, top, 1, 1, facecolor=face, edgecolor="#333333", linewidth=0.8, linestyle=style)
        ax.text(left + at + 0.5, top + 0.52, str(text), ha="center", va="center", fontsize=8)
    if name:
        ax.text(left - 0.25, top + 0.52, name, ha="right", va="center", fontsize=9, family="monospace")


def grid(
    ax: Axes, left: float, top: float, rows: Sequence[Sequence[object]], faces: Callable[[int, int], str],
    name: str = "",
) -> None:  # fmt: skip
    """Draw rows of cells, with a name above."""
    for at, row in enumerate(rows):
        cells(ax, left, top + at, row, [faces(at, column) for column in range(len(row))])
    if name:
        ax.text(left, top - 0.2, name, ha="left", va="bottom", fontsize=9, family="monospace")


def arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = "#333333") -> None:
    """Draw an arrow."""
    ax.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1, "shrinkA": 1, "shrinkB": 1}
    )


def label(ax: Axes, x: float, y: float, text: str, colour: str = "#333333", side: str = "center") -> None:
    """Write a text."""
    ax.text(x, y, text, ha=side, va="center", fontsize=8.5, color=colour)


def brace(ax: Axes, left: float, right: float, y: float, text: str, above: bool = True) -> None:
    """Draw a line over cells, with a text on it."""
    ax.plot([left + 0.08, right - 0.08], [y, y], color="#333333", linewidth=1.2)
    ax.text((left + right) / 2, y + (-0.3 if above else 0.35), text, ha="center", va="center", fontsize=8.5)


WRONG = OKABE_ITO[5]
"""Colour of what goes wrong; a word or a cross says the same."""
