"""Report of the benchmark: its rows as a table and as a plot."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.attention.bench.paged_attention.cells import CACHES, HEADS
from workbench.attention.bench.paged_attention.ledger import Ledger, LedgerRow
from workbench.base.packages import Table, replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NONE = "–"

UNKNOWN = (
    "A prediction does not model how close to its published bandwidth the memory gets, how often blocks find in L2 "
    "what a neighbour has just read, clocks under load, the machine code of ptxas for this architecture, or the order "
    "in which blocks end. It ranks variants and names what binds them."
)


def heading(head: Mapping[str, Any], rows: Sequence[LedgerRow] = ()) -> str:
    """Return the heading of the table: the origin of the figures, and the ceiling that is 100 %.

    For a row with a ceiling measured after its cell, 100 % is that one.
    """
    ceiling, machine = head["ceiling"], head["machine"]
    speed = f"{ceiling['bytes_per_second'] / 1e9:,.0f} GB/s"
    if head["basis"] == "predicted":
        return (
            f"Paged attention, PREDICTED for {machine['model']} from counts of the PTX machine, not measured; "
            f"% of its published bandwidth, {speed}"
        )
    again = [row.ceiling / 1e9 for row in rows if row.ceiling is not None]
    drift = f"; again after each cell, {min(again):,.0f} to {max(again):,.0f}" if again else ""
    config = " ".join(f"{name}={value}" for name, value in ceiling["config"].items())
    return (
        f"Paged attention, measured on {machine['gpu']}; % of {speed}, at which a streaming kernel reads "
        f"{ceiling['bytes_read'] / 1e9:.1f} GB on it ({config}, noise {ceiling['spread']:.1%}{drift})"
    )


def share(row: LedgerRow, head: Mapping[str, Any]) -> float:
    """Return a timed row's bytes per second as a fraction of the ceiling, the one measured closest in time."""
    assert row.bytes_per_second is not None
    return row.bytes_per_second / (row.ceiling or head["ceiling"]["bytes_per_second"])


def text(ledger: Ledger) -> str:
    """Return a table of cells by contenders, and below it the reasons for blank places."""
    names = list(dict.fromkeys(row.contender for row in ledger.rows))
    shown = [
        name for name in names if any(row.seconds or row.outcome in ("wrong", "failed") for row in _of(ledger, name))
    ]
    by_cell: dict = {}
    for row in ledger.rows:
        by_cell.setdefault(row.cell, {})[row.contender] = row
    places = []
    for cell, rows in by_cell.items():
        best = min((row.seconds for row in rows.values() if row.seconds), default=None)
        cells = [_place(rows.get(name), ledger.head, best) for name in shown]
        places.append((cell.label, f"{cell.minimum_bytes / 1e9:.2f}", *cells))
    heads = ("heads x size, cache, batch x context", "GB", *(name.replace("_", "\n") for name in shown))
    lines = [str(Table(heads, places, "lr" + "r" * len(shown), title=heading(ledger.head, ledger.rows)))]
    lines.append("In each place: GB/s of the minimum bytes and % of the ceiling; * marks the fastest of the row.")
    lines.append("Pages have 16 tokens unless the row names another size.")
    if ledger.head["basis"] == "predicted":
        lines.append(UNKNOWN)
    return "\n".join(lines + _in_flight(ledger) + _winners(ledger) + notes(ledger) + _held_down(ledger.head))


def _in_flight(ledger: Ledger) -> list[str]:
    """Return a table of bytes in flight per multiprocessor, by variant, and the number that the memory needs."""
    found: dict[str, list[float]] = {}
    for row in ledger.rows:
        if row.bytes_in_flight is not None:
            found.setdefault(row.contender, []).append(row.bytes_in_flight / 1e3)
    if not found:
        return []
    wanted = ledger.head["bytes_in_flight"]
    title = "kB of keys and values in flight per multiprocessor"
    if wanted is not None:
        title += f"; to keep the memory busy takes {wanted[0] / 1e3:.0f} to {wanted[1] / 1e3:.0f}"
    rows = []
    for name, sizes in found.items():
        below = _NONE if wanted is None else f"{sum(1e3 * size < wanted[0] for size in sizes)} of {len(sizes)}"
        rows.append((name, f"{min(sizes):.0f}", f"{max(sizes):.0f}", below))
    return [str(Table(("variant", "least", "most", "cells below"), rows, "lrrr", title=title))]


def _winners(ledger: Ledger) -> list[str]:
    """Return, for each contender with several ways, in how many cells each was the fastest."""
    counts: dict[str, Counter[str]] = {}
    for row in ledger.rows:
        if row.seconds is not None and row.way:
            counts.setdefault(row.contender, Counter())[row.way] += 1
    return [
        f"{name}: fastest were " + "; ".join(f"{way} ({count})" for way, count in ways.most_common())
        for name, ways in counts.items()
    ]


def notes(ledger: Ledger) -> list[str]:
    """Return a line per contender and reason: why places are blank, wrong or failed, and in how many cells.

    Further ways of a contender that has a time are included.
    """
    reasons: dict[tuple[str, str, str], int] = {}
    for row in ledger.rows:
        if row.seconds is None or row.note:
            key = (row.contender, row.outcome, row.note)
            reasons[key] = reasons.get(key, 0) + 1
    return [
        f"{name}: {outcome} in {count} of {len(_of(ledger, name))} cells: {note}"
        for (name, outcome, note), count in reasons.items()
    ]


def _held_down(head: Mapping[str, Any]) -> list[str]:
    """Return a line for each reason that throttled the GPU's clocks after a cell.

    Fractions of the ceiling remain valid then; seconds are less comparable.
    """
    states = head.get("states", [])
    reasons = [reason for state in states for reason in state.get("throttled_by") or ()]
    return [
        f"Clocks were throttled by {reason} after {reasons.count(reason)} of {len(states)} cells."
        for reason in dict.fromkeys(reasons)
    ]


def _of(ledger: Ledger, name: str) -> list[LedgerRow]:
    return [row for row in ledger.rows if row.contender == name]


def _place(row: LedgerRow | None, head: Mapping[str, Any], best: float | None) -> str:
    if row is None or row.bytes_per_second is None:
        return _NONE if row is None or row.outcome == "blank" else row.outcome.upper()
    mark = "*" if row.seconds == best else " "
    return f"{row.bytes_per_second / 1e9:,.0f} {share(row, head):4.0%}{mark}"


def plot(ledger: Ledger, path: Path | None = None) -> Figure:
    """Plot the fraction of the ceiling over the bytes of a cell's cache, and return the matplotlib figure.

    There is a panel per geometry and cache type, and a line per contender through its best cell at each number of
    bytes. Only the cells of one page size are shown, that of most cells. The figure is saved to ``path`` if given.

    Raises:
        ModuleNotFoundError: without matplotlib (extra ``lab``).
    """
    import matplotlib.pyplot as plt

    rows = [row for row in ledger.rows if row.seconds]
    sizes = Counter(row.cell.block_size for row in rows).most_common(1)
    rows = [row for row in rows if row.cell.block_size == sizes[0][0]]
    names = list(dict.fromkeys(row.contender for row in rows))
    heads = [pair for pair in HEADS if any(_heads(row) == pair for row in rows)]
    caches = [cache for cache in CACHES if any(row.cell.cache == cache for row in rows)]
    figure, axes = plt.subplots(
        max(len(heads), 1), max(len(caches), 1), squeeze=False, sharex=True, sharey=True,
        figsize=(1.5 + 4.2 * max(len(caches), 1), 1.4 + 2.7 * max(len(heads), 1)),
    )  # fmt: skip
    for pair, line in zip(heads, axes, strict=False):
        for cache, ax in zip(caches, line, strict=False):
            here = [row for row in rows if _heads(row) == pair and row.cell.cache == cache]
            ax.set_title(f"{pair[0]} query heads, {pair[1]} KV heads, {cache}", fontsize=9)
            ax.set_visible(bool(here))
            _panel(ax, here, names, ledger.head)
    for column in axes.T:
        lowest = [ax for ax in column if ax.get_visible()][-1:]
        for ax in lowest:
            ax.set_xlabel("keys and values (MB)")
            ax.tick_params(labelbottom=True)
    for ax in axes[:, 0]:
        ax.set_ylabel("% of the ceiling")
    handles = {label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=4, frameon=False, fontsize=9)
    title = heading(ledger.head, ledger.rows)
    figure.suptitle(title.replace("; ", "\n"), fontsize=10)
    figure.tight_layout(rect=(0, 0.04 + 0.1 / len(axes), 1, 1))
    if path is not None:
        content = io.BytesIO()
        figure.savefig(content, format=Path(path).suffix.lstrip(".") or None, dpi=120)
        replace_file(path, content.getvalue())
    return figure


def _panel(ax: Axes, rows: Sequence[LedgerRow], names: Sequence[str], head: Mapping[str, Any]) -> None:
    from workbench.ui import LineAxes, marked_lines

    for style, name in enumerate(names):
        best: dict[float, float] = {}
        for row in rows:
            if row.contender == name:
                size = row.cell.kv_bytes / 1e6
                best[size] = max(best.get(size, 0.0), 100 * share(row, head))
        if best:
            sizes = sorted(best)
            marked_lines(
                sizes, {name: [best[size] for size in sizes]}, LineAxes("", "", xscale="log"),
                first_style=style, legend=False, ax=ax,
            )  # fmt: skip
    ax.axhline(100, color="black", linewidth=0.8)
    ax.set_ylim(0, 110)


def _heads(row: LedgerRow) -> tuple[int, int]:
    return row.cell.num_heads, row.cell.num_kv_heads
