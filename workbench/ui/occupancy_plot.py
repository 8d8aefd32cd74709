"""Plots of the occupancy over block size, registers and shared memory, as in NVIDIA's occupancy calculator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from workbench.errors import ArgumentError
from workbench.ui.figures import show_as_vectors
from workbench.ui.plots import OKABE_ITO, in_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench.toolchain.occupancy import Occupancy

_PANELS = (
    ("block", "threads per block", 256),
    ("registers", "registers per thread", 64),
    ("shared_bytes", "shared memory per block (KiB)", 32),
)
"""The figure of each panel, its label, and the distance of its ticks."""
_SIZE = (11, 3.2)


class _Tabulated(Protocol):
    """The occupancy of a launch, and over one of its figures."""

    @property
    def title(self) -> str: ...

    @property
    def figures(self) -> Any: ...

    @property
    def occupancy(self) -> Occupancy: ...

    def over(self, figure: str) -> Sequence[tuple[Any, Occupancy]]: ...


def occupancy_plot(table: _Tabulated, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Plot the occupancy over block size, registers and shared memory, the launch marked in each; return the Axes.

    A panel changes one figure and leaves the two others as they are. Raises ArgumentError for other than three Axes.
    """
    from matplotlib.ticker import MultipleLocator

    if axes is None:
        import matplotlib.pyplot as plt

        show_as_vectors()
        axes = list(plt.subplots(1, len(_PANELS), figsize=_SIZE, sharey=True, layout="constrained")[1])
        axes[0].figure.suptitle(table.title)
    if len(axes) != len(_PANELS):
        raise ArgumentError("axes", f"{len(axes)} Axes", f"{len(_PANELS)} Axes", "Make them with plt.subplots(1, 3).")
    for ax, (figure, label, distance) in zip(axes, _PANELS, strict=True):
        unit = 1024 if figure == "shared_bytes" else 1
        points = table.over(figure)
        places = [getattr(point, figure) / unit for point, _ in points]
        shares = [found.fraction for _, found in points]
        if figure == "block":
            ax.plot(places, shares, color=OKABE_ITO[0], marker=".", linewidth=1)
        else:
            # An amount has the occupancy of the next larger one that is allocated: the step stands before its place.
            ax.plot(places, shares, color=OKABE_ITO[0], drawstyle="steps-pre", linewidth=1.5)
        here = getattr(table.figures, figure) / unit
        share = table.occupancy.fraction
        ax.plot(here, share, linestyle="", marker="D", markersize=9, color=OKABE_ITO[5], label="this launch")
        ax.annotate(f"{here:g}: {share:.0%}", (here, share), (6, 8), textcoords="offset points", fontsize=9)
        ax.set(xlabel=label, ylim=(0, 1.12))
        ax.xaxis.set_major_locator(MultipleLocator(distance))
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    axes[0].set_ylabel("occupancy (share of warps)")
    in_percent(axes[0].yaxis)
    return axes
