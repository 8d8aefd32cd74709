"""The result of a sweep over sizes: the figures of each variant at each size, as a table, a line plot and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from workbench.base.documents import document
from workbench.base.frames import data_frame
from workbench.base.memory_counts import SECTOR_BYTES
from workbench.base.tables import Table, Tabular, cut
from workbench.base.trials.trial import Trial
from workbench.errors import ArgumentError, UnknownNameError

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

MEMORY = "memory limit"
"""Name of the line that no variant can pass: the least bytes, at the bandwidth of the GPU's memory."""
_MESSAGE_WIDTH = 160
PICTURES = (".png", ".svg", ".pdf")
"""Endings of the pictures that `SizeSweep.save` writes."""


@dataclass(frozen=True)
class SizePoint:
    """One variant at one size.

    ``operations`` are those of the reference's matrix products, or None where torch counts none.
    """

    sizes: Mapping[str, Any]
    case: str
    trial: Trial
    minimum_bytes: int
    operations: int | None
    origin: str
    """Origin of the configuration: "given", "default" or "tuned, LEVEL"; "" for a variant without tunables."""
    call_bytes: int | None = None
    """Bytes of the tensors that the calls of a function in plain torch read and write; None for other variants."""

    @property
    def figures(self) -> dict[str, float | None]:
        """Every figure of `FIGURES` that the attempt has; None for the others."""
        return {name: figure.of(self) for name, figure in FIGURES.items()}


@dataclass(frozen=True)
class SizeFigure:
    """A figure that can be drawn over sizes."""

    label: str
    of: Callable[[SizePoint], float | None]
    form: str = ",.0f"
    bound: Callable[[SizePoint, float | None], float | None] = lambda point, bandwidth: None
    """The memory limit, from the least bytes and, where it is known, the bandwidth in bytes per second."""
    counted: bool = True
    """True for a count, which only the simulator has."""


def _per_second(amount: Callable[[SizePoint], int | None], unit: float) -> Callable[[SizePoint], float | None]:
    def of(point: SizePoint) -> float | None:
        known = amount(point)
        return known / point.trial.seconds / unit if known and point.trial.seconds else None

    return of


def _counted(of: Callable[[Trial], float | None]) -> Callable[[SizePoint], float | None]:
    return lambda point: of(point.trial) if point.trial.ok and point.trial.counts else None


def _bytes(point: SizePoint) -> float | None:
    return point.call_bytes if point.call_bytes is not None else _MOVED(point)


_MOVED = _counted(lambda trial: trial.memory.bytes_moved)


FIGURES: Mapping[str, SizeFigure] = MappingProxyType(
    {
        "time": SizeFigure(
            "time in µs",
            lambda point: point.trial.seconds and point.trial.seconds * 1e6,
            ",.2f",
            lambda point, bandwidth: bandwidth and point.minimum_bytes / bandwidth * 1e6,
            counted=False,
        ),
        "bandwidth": SizeFigure(
            "GB/s of the least bytes",
            _per_second(lambda point: point.minimum_bytes, 1e9),
            ",.0f",
            lambda point, bandwidth: bandwidth and bandwidth / 1e9,
            counted=False,
        ),
        "throughput": SizeFigure(
            "TFLOP/s of matrix products", _per_second(lambda point: point.operations, 1e12), ",.2f", counted=False
        ),
        "instructions": SizeFigure("warp instructions", _counted(lambda trial: trial.counts.get("warp_instructions"))),
        "sectors": SizeFigure(
            "32-byte sectors of global memory",
            _counted(lambda trial: trial.memory.global_sectors),
            bound=lambda point, bandwidth: point.minimum_bytes / SECTOR_BYTES,
        ),
        "bytes": SizeFigure(
            "bytes moved",
            _bytes,
            bound=lambda point, bandwidth: point.minimum_bytes,
        ),
        "sectors_per_request": SizeFigure(
            "sectors per request", _counted(lambda trial: trial.memory.sectors_per_request), ",.2f"
        ),
        "conflicts": SizeFigure("bank conflicts", _counted(lambda trial: trial.counts.get("shared_conflicts"))),
    }
)
"""Figures by name; times first, then counts."""


def figure_of(name: str) -> SizeFigure:
    """Return the figure of that name. Raises UnknownNameError, with the names that there are."""
    if name not in FIGURES:
        raise UnknownNameError("figure", repr(name), ", ".join(FIGURES), "Name one of these.")
    return FIGURES[name]


@dataclass(frozen=True)
class SizeSweep(Tabular):
    """Figures of an op's variants over sizes of its inputs; `Op.sweep` makes one.

    It has every figure of `FIGURES`; ``figure`` is the one that tables and plots show unless another is named. This is
    not a `Sweep`, which records the configurations of one case that `tune` has tried.
    """

    op: str
    case: str
    names: tuple[str, ...]
    """The sizes that vary, the one of the horizontal axis first."""
    figure: str
    times: str
    """Basis of the times: measured or predicted, and the GPU."""
    bandwidth: float | None
    """Bytes per second of the memory of the GPU that times are predicted for; None where they are measured."""
    points: tuple[SizePoint, ...]
    together: bool = False
    """True if the sizes went in step, False if every combination was tried."""

    @property
    def all_correct(self) -> bool:
        """True if every variant met its error bound wherever its configuration is legal."""
        return all(point.trial.ok or point.trial.outcome == "restricted" for point in self.points)

    @cached_property
    def _variants(self) -> list[str]:
        return list(dict.fromkeys(point.trial.variant for point in self.points))

    @property
    def without_line(self) -> tuple[str, ...]:
        """Variants that ran everywhere and have no value of ``figure``: those in plain torch, on the simulator."""
        return self._without(self.figure)

    def _without(self, figure: str) -> tuple[str, ...]:
        having = {
            point.trial.variant for point in self.points if not point.trial.ok or point.figures[figure] is not None
        }
        return tuple(name for name in self._variants if name not in having)

    @cached_property
    def _places(self) -> list[Mapping[str, Any]]:
        """The combinations of sizes, in the order of the arguments."""
        return list({tuple(point.sizes.values()): point.sizes for point in self.points}.values())

    def at(self, variant: str, **sizes: Any) -> SizePoint:
        """Return the point of a variant at a size, which may leave out names that settle nothing.

        Raises:
            UnknownNameError: there is none; lists the sizes that there are.
        """
        for point in self.points:
            if point.trial.variant == variant and sizes.items() <= point.sizes.items():
                return point
        known = f"{', '.join(self._variants)} at {'; '.join(map(_text, self._places))}"
        raise UnknownNameError("sizes", f"{variant} at {_text(sizes)}", known, "Only these sizes were run.")

    # -- as data ------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One plain dictionary per variant and size: the sizes, the configuration, and every figure."""
        return [
            {
                **point.sizes,
                "variant": point.trial.variant,
                "config": point.trial.config_text if point.trial.config else "",
                "configuration_is": point.origin,
                "outcome": point.trial.outcome,
                "time_is": point.trial.basis or None,
                **point.figures,
                "minimum_bytes": point.minimum_bytes,
                "operations": point.operations,
            }
            for point in self.points
        ]

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame. Needs pandas (``[lab]``)."""
        return data_frame(self.rows)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the rows as CSV, and write them to a file if ``path`` names one."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        if path is not None:
            Path(path).write_text(text.getvalue())
        return text.getvalue()

    def to_json(self) -> str:
        """Return the rows as JSON; see `workbench.base.documents`."""
        rows = [
            {
                "sizes": point.sizes,
                "case": point.case,
                "variant": point.trial.variant,
                "config": dict(point.trial.config),
                "configuration_is": point.origin,
                "outcome": point.trial.outcome,
                "message": point.trial.message,
                "time_is": point.trial.basis or None,
                **point.figures,
                "minimum_bytes": point.minimum_bytes,
                "operations": point.operations,
            }
            for point in self.points
        ]
        return document(
            "bench-over",
            op=self.op,
            case=self.case,
            names=self.names,
            figure=self.figure,
            times=self.times,
            bytes_per_second=self.bandwidth,
            all_correct=self.all_correct,
            without_line=self.without_line,
            rows=rows,
        )

    # -- as a table ---------------------------------------------------------------------------------------------

    def bound(self, sizes: Mapping[str, Any], figure: str | None = None) -> float | None:
        """Return the memory limit of a figure at a size; None for a figure that has none."""
        point = next(one for one in self.points if one.sizes == sizes)
        return figure_of(figure or self.figure).bound(point, self.bandwidth)

    def tables(self) -> list[Table]:
        """Return a table with a row for each size and a column for each variant, as the plot has a line."""
        shown, by_place = figure_of(self.figure), self._by_place()
        bounds = [self.bound(place) for place in self._places]
        limited = any(bound is not None for bound in bounds)
        rows, columns = [], [name for name in self._variants if name not in self.without_line]
        for place, bound in zip(self._places, bounds, strict=True):
            cells = [_cell(by_place[_key(place)][name], shown) for name in columns]
            rows.append(
                [*map(str, place.values()), *cells, *([format(bound, shown.form) if bound else "–"] if limited else [])]
            )
        heads = [*self._places[0], *columns, *([MEMORY] if limited else [])]
        return [Table(heads, rows, "r" * len(heads), title=self.title, note="\n".join(self._notes(limited)))]

    @property
    def title(self) -> str:
        """Op, case, sizes, figure and the origin of the figures."""
        about = self.times if not figure_of(self.figure).counted else "counted in the PTX machine"
        return f"{self.op}, {self.case} over {', '.join(self.names)}: {figure_of(self.figure).label}, {about}"

    def _notes(self, limited: bool) -> list[str]:
        notes = []
        if limited:
            notes.append(f"{MEMORY}: inputs read once and outputs written once")
            if not figure_of(self.figure).counted:
                notes[0] += ", at the published bandwidth of the GPU's memory"
        if self.without_line:
            notes.append(
                f"no line for {', '.join(self.without_line)}: what runs in torch does not run in the PTX machine, and "
                "has no such counts and no predicted time. On a GPU it is measured."
            )
        if self.figure == "bytes" and any(point.call_bytes is not None for point in self.points):
            notes.append("bytes of torch: of the tensors that its calls read and write; caches answer some of it")
        failed: dict[tuple[str, str], list[SizePoint]] = {}
        for point in self.points:
            if not point.trial.ok:
                failed.setdefault((point.trial.variant, point.trial.outcome), []).append(point)
        for (variant, outcome), (first, *more) in failed.items():
            why = cut(next(iter(first.trial.message.splitlines()), ""), _MESSAGE_WIDTH)
            also = f" and at {len(more)} more" if more else ""
            notes.append(f"{variant} is {outcome} at {_text(first.sizes)}{also}: {why}")
        return notes

    def _by_place(self) -> dict[tuple, dict[str, SizePoint]]:
        found: dict[tuple, dict[str, SizePoint]] = {}
        for point in self.points:
            found.setdefault(_key(point.sizes), {})[point.trial.variant] = point
        return found

    # -- as a picture -------------------------------------------------------------------------------------------

    def plot(self, ax: Axes | None = None, *, figure: str | None = None) -> Axes:
        """Plot a figure over the first size, a line for each variant and each value of the other sizes.

        The memory limit is dotted. Needs matplotlib (``[lab]``). Returns the axes.

        Raises:
            UnknownNameError: a figure that does not exist.
            ArgumentError: no variant has the figure at any size.
        """
        from workbench.ui.size_plot import line_plot

        name, shown = figure or self.figure, figure_of(figure or self.figure)
        axis, by_place = self.names[0], self._by_place()
        xs = list(dict.fromkeys(place[axis] for place in self._places))
        others = [] if self.together else list(self.names[1:])
        lines: dict[tuple[str, str], list[float | None]] = {}
        bounds: dict[tuple[str, str], list[float | None]] = {}
        for place in self._places:
            rest = " ".join(f"{other}={place[other]}" for other in others)
            at = xs.index(place[axis])
            for variant, point in by_place[_key(place)].items():
                lines.setdefault((variant, rest), [None] * len(xs))[at] = shown.of(point)
            if (bound := self.bound(place, name)) is not None:
                bounds.setdefault((MEMORY, rest), [None] * len(xs))[at] = bound
        drawn = {label: values for label, values in lines.items() if any(value is not None for value in values)}
        if not drawn:
            have = [one for one in FIGURES if any(point.figures[one] is not None for point in self.points)]
            remedy = "No variant has this one at any of the sizes."
            raise ArgumentError("figure", name, ", ".join(have) or "none: no variant gave a right result", remedy)
        basis = "counted" if shown.counted else self.times
        label = " = ".join(self.names) if self.together else axis
        return line_plot(xs, drawn, bounds, ax, xlabel=label, ylabel=shown.label, title=f"{self.op}, {basis}")

    def save(self, path: str | Path, *, figure: str | None = None) -> tuple[Path, Path]:
        """Write the plot and, beside it, the rows as CSV; return both paths.

        ``path`` ends in one of `PICTURES`; without an ending it gets ``.png``.
        """
        picture = check_picture(path)
        ax = self.plot(figure=figure)
        from matplotlib import pyplot

        made: Any = ax.figure
        made.savefig(picture, dpi=150, bbox_inches="tight")
        pyplot.close(made)
        table = picture.with_suffix(".csv")
        self.to_csv(table)
        return picture, table


def check_picture(path: str | Path) -> Path:
    """Return the path of a picture with its ending. Raises ArgumentError for an ending that is not in `PICTURES`."""
    picture = Path(path)
    picture = picture if picture.suffix else picture.with_suffix(PICTURES[0])
    if picture.suffix not in PICTURES:
        remedy = "The rows are written beside it, as .csv."
        raise ArgumentError("save", repr(str(path)), f"a path ending in {', '.join(PICTURES)}", remedy)
    return picture


def _key(sizes: Mapping[str, Any]) -> tuple:
    return tuple(sizes.values())


def _text(sizes: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in sizes.items())


def _cell(point: SizePoint, shown: SizeFigure) -> str:
    if not point.trial.ok:
        return point.trial.outcome
    value = shown.of(point)
    return "–" if value is None else format(value, shown.form)
