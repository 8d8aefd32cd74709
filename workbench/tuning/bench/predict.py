"""``workbench bench predict``: how far predicted times can be believed.

If a sweep was measured on a GPU, predictions are compared with it, those of the published figures and those of the
calibrated model, on rows that it was not fitted to. Without one there is no such number, and none is given. The
benchmark then shows how much the ranking depends on figures that may be wrong: each group of figures is scaled at
random, and the ranking and the first choice are compared with those of the published figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from workbench.analysis.device_models import device_model, model_of_gpu
from workbench.tuning.bench.results import Benchmark
from workbench.tuning.recorded.calibration import GROUPS, Parts, PredictionCalibration, calibrate, counted_for
from workbench.tuning.recorded.sweep import load, shipped
from workbench.tuning.recorded.sweep_record import Sweep
from workbench.tuning.search.ranking import agreement

SPREAD = 1.5
"""Factor of one standard deviation by which a figure is scaled up or down; two thirds lie between."""

DRAWS = 200


@dataclass(frozen=True)
class Stability:
    """Stability of one sweep's predicted ranking when the published figures are wrong: median and worst tenth.

    ``regret`` is the extra time of the published figures' first choice, as a share of the best under the others.
    ``ties`` is the share of configurations whose predicted time is within 1 % of the best.
    """

    sweep: str
    label: str
    rows: int
    spearman: tuple[float, float]
    kendall: tuple[float, float]
    regret: tuple[float, float]
    ties: float


@dataclass(frozen=True)
class PredictionBenchmark(Benchmark):
    """Calibrations of measured sweeps, and the stability of predicted ones."""

    kind = "bench-predict"

    calibrations: tuple[PredictionCalibration, ...]
    stabilities: tuple[Stability, ...]
    notes: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        calibrations = [
            {"model": one.model.key, "origin": one.origin, "rows": one.rows, "factors": dict(one.factors)}
            | {"published": asdict(one.published), "calibrated": asdict(one.calibrated)}
            for one in self.calibrations
        ]
        stabilities = [asdict(one) for one in self.stabilities]
        return {"calibrations": calibrations, "stabilities": stabilities, "notes": self.notes}

    def __str__(self) -> str:
        lines = list(self.notes)
        if self.calibrations:
            lines += [
                "",
                "predicted against measured",
                f"  {'':34}{'Spearman':>9}{'Kendall':>9}{'regret':>9}{'error':>9}",
            ]
            for each in self.calibrations:
                lines.append(f"  {each}")
                named = {"published figures": each.published, "calibrated, rows left out": each.calibrated}
                for name, found in named.items():
                    shares = f"{found.regret:>9.1%}{found.error:>9.1%}"
                    lines.append(f"    {name:32}{found.spearman:>9.3f}{found.kendall:>9.3f}{shares}")
        if self.stabilities:
            lines += [
                "",
                f"predicted against predicted, every group of figures scaled at random (a factor of {SPREAD:g})",
            ]
            lines.append(
                f"  {'median, and the worst tenth':34}{'Spearman':>16}{'Kendall':>16}{'regret':>16}{'ties':>8}"
            )
            for one in self.stabilities:
                lines += [f"  {one.sweep}: {one.rows} configurations", f"    {one.label}"]
                pairs = (one.spearman, one.kendall)
                ranks = "".join(f"{f'{middle:.3f}, {worst:.3f}':>16}" for middle, worst in pairs)
                lines.append(f"  {'':34}{ranks}{f'{one.regret[0]:.1%}, {one.regret[1]:.1%}':>16}{one.ties:>8.1%}")
        return "\n".join(lines)


def run(sweeps: Sequence[str] | None = None, *, draws: int = DRAWS, seed: int = 0) -> PredictionBenchmark:
    """Compare predictions with measured times, if there are any, and test how stable the predicted rankings are.

    Args:
        sweeps: files or names; default all that come with the package. Counts of a measured sweep may come from a
            simulator sweep of the same variant and case among them.
        draws: how often the figures are scaled.
        seed: seed of the random numbers.
    """
    loaded = [load(name) for name in (shipped() if sweeps is None else sweeps)]
    measured = [sweep for sweep in loaded if sweep.basis == "measured"]
    calibrations, notes = [], []
    for sweep in measured:
        model = model_of_gpu(sweep.device)
        if model is None:
            notes.append(f"{sweep.name}: no published figures for {sweep.device}, so nothing is predicted for it.")
        else:
            calibrations.append(calibrate(sweep, model, counted_for(sweep, loaded), seed=seed))
    if not measured:
        notes.append(
            "No sweep measured on a GPU has been recorded yet: nothing here says how close predicted times come to "
            "measured ones. Record one with `workbench tune --device cuda --save FILE`, then pass it as --sweep."
        )
    stabilities = [stability(sweep, draws, seed) for sweep in loaded if sweep.basis == "predicted"]
    return PredictionBenchmark(tuple(calibrations), tuple(stabilities), tuple(notes))


def stability(sweep: Sweep, draws: int = DRAWS, seed: int = 0) -> Stability:
    """Return how a predicted sweep's ranking depends on the device model's figures."""
    rows = [trial for trial in sweep.trials if trial.seconds is not None and trial.counts]
    parts = Parts([trial.counts for trial in rows], device_model(sweep.predicted_for))
    usual = parts.seconds(np.zeros(len(GROUPS)))
    scales = np.random.default_rng(seed).normal(0.0, np.log(SPREAD), (draws, len(GROUPS)))
    found = [agreement(usual, parts.seconds(scale)) for scale in scales]
    return Stability(
        sweep.name,
        sweep.label,
        len(rows),
        _middle_and_worst([one.spearman for one in found], 0.1),
        _middle_and_worst([one.kendall for one in found], 0.1),
        _middle_and_worst([one.regret for one in found], 0.9),
        float((usual <= 1.01 * usual.min()).mean()),
    )


def _middle_and_worst(values: Sequence[float], quantile: float) -> tuple[float, float]:
    return float(np.median(values)), float(np.quantile(values, quantile))
