"""Instruction roofline (Ding and Williams, 2019) of compared variants under the ceilings of a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel, device_models
from workbench.base.memory_counts import SECTOR_BYTES
from workbench.errors import ArgumentError
from workbench.ui.plots import figure, marked, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench.base.trials.trial import Trial


def intensities(trial: Trial) -> tuple[float, float]:
    """Return warp instructions per 32-byte sector, for distinct and for all requested sectors.

    DRAM has to move the distinct sectors, L2 has to deliver all requested ones.
    """
    counts = trial.counts
    distinct = (counts["unique_bytes_read"] + counts["unique_bytes_written"]) / SECTOR_BYTES
    return counts["warp_instructions"] / distinct, counts["warp_instructions"] / trial.memory.global_sectors


def roofline(op: str, compared: Iterable[Trial], ax: Axes | None = None) -> Axes:
    """Plot billions of warp instructions per second over warp instructions per sector, under a GPU's ceilings.

    A variant has a full marker for its distinct sectors, to compare with the line of DRAM, and an empty one for all
    requested sectors, to compare with that of L2; both are at one height. The rate is computed from the predicted or
    measured time. Returns the matplotlib Axes.

    Raises:
        ArgumentError: if no variant has both a time and counts.
    """
    times = [
        (trial, trial.seconds)
        for trial in compared
        if trial.seconds is not None and trial.counts.get("global_load_sectors")
    ]
    if not times:
        raise ArgumentError(
            "comparison", "no variant with a time and counts", "at least one", 'Compare on the simulator: device="sim".'
        )
    first = times[0][0]
    model = next(one for one in device_models().values() if one.name == first.prediction["device"])
    ax = new_axes(8, 4.2) if ax is None else ax
    for row, (trial, seconds) in enumerate(times):
        dram, l2 = intensities(trial)
        rate = trial.counts["warp_instructions"] / seconds / 1e9
        style: dict[str, Any] = {**marked(row), "markersize": 9}
        ax.plot([l2, dram], [rate, rate], ":", color=style["color"], linewidth=1)
        ax.plot(dram, rate, linestyle="", label=trial.variant, **style)
        ax.plot(l2, rate, linestyle="", fillstyle="none", **style)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    _ceilings(ax, model)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: figure(value))
    ax.set(
        xlabel="warp instructions per 32-byte sector (full: distinct ones, empty: all requested)",
        ylabel="10⁹ warp instructions / s",
        title=f"{op}, {first.basis} for {model.name}",
    )
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return ax


def _ceilings(ax: Axes, model: DeviceModel) -> None:
    left, right = ax.get_xlim()
    left, right = left / 2, right * 2
    issue = model.multiprocessors * model.issue_slots * model.clock_hz / 1e9
    memories = {
        "DRAM": model.dram_bytes_per_second / SECTOR_BYTES / 1e9,
        "L2": model.l2_bytes_per_clock * model.clock_hz / SECTOR_BYTES / 1e9,
    }
    for (name, sectors), dashes in zip(memories.items(), ("-", "--"), strict=True):
        knee = issue / sectors
        ax.plot(
            [left, min(knee, right)],
            [left * sectors, min(knee, right) * sectors],
            dashes,
            color="#444444",
            linewidth=1.2,
        )
        ax.annotate(
            f"{name} {sectors * SECTOR_BYTES / 1e3:.1f} TB/s", (left, left * sectors), xytext=(10, 0), va="top",
            textcoords="offset points", fontsize=8, color="#444444",
        )  # fmt: skip
    ax.plot([min(left, issue / memories["L2"]), right], [issue, issue], "-.", color="#444444", linewidth=1.2)
    ax.annotate(
        f"issue {issue:,.0f}", (right, issue), xytext=(-4, 4), textcoords="offset points", ha="right", fontsize=8
    )
    ax.set_xlim(left, right)
