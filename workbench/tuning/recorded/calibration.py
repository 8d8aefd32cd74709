"""Calibration of a device model: correct its published figures by sweeps that were measured on that GPU.

The prediction is launch + first access + the overlapped parts, and each published figure scales one part. A calibration
has one factor for each of six groups of figures, above 1 where the GPU takes longer than published. With the factors,

    log seconds(measured) = log seconds(predicted, factors) + error

is fitted by least squares with a penalty on log factors: a prior that the figures are about right, so that a part that
never bounds keeps the factor 1. There are few parameters for hundreds of rows. The reported errors come from rows left
out of the fit (k-fold cross-validation).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from workbench.analysis.device_models import DeviceModel, model_of_gpu
from workbench.analysis.prediction.predict import overlapped, predict_counts
from workbench.base.trials.trial import canonical
from workbench.base.trials.values import Counts
from workbench.errors import ArgumentError
from workbench.tuning.recorded.sweep import load, shipped
from workbench.tuning.recorded.sweep_record import Sweep
from workbench.tuning.search.ranking import Agreement, agreement

GROUPS: Mapping[str, tuple[str, ...]] = {
    "launch": ("launch",),
    "latency": ("latency", "first access"),
    "memory": ("dram",),
    "caches": ("l2", "l2 to sm", "l1"),
    "shared": ("shared",),
    "instructions": ("issue", "tensor", "fp32", "fp16", "fp64", "integer", "conversion", "special"),
}
"""The parts of a prediction whose times share one factor, by group."""

_TIMES: dict[str, tuple[str, ...]] = {
    "launch": ("launch_seconds",),
    "latency": ("dram_latency_clocks", "l2_latency_clocks", "shared_latency_clocks", "arithmetic_latency_clocks"),
}
_RATES = {
    "memory": ("dram_bytes_per_second",),
    "caches": ("l2_bytes_per_clock", "l2_bytes_per_clock_sm", "l1_bytes_per_clock"),
    "shared": ("shared_bytes_per_clock", "memory_lanes"),
    "instructions": (
        "issue_slots",
        "tensor_flops_per_clock",
        *(
            field.name
            for field in fields(DeviceModel)
            if field.name.endswith("_lanes") and field.name != "memory_lanes"
        ),
    ),
}

PENALTY = 0.001
"""Weight of a squared log factor against the mean squared log error: a factor of 2 costs as much as 2 % of error."""
FOLDS = 5
_LEAST_ROWS = 20
_STEPS = 60


@dataclass(frozen=True)
class PredictionCalibration:
    """Factors by group, and the agreement of predictions with ``rows`` measured times without and with the factors.

    ``published`` is the agreement of the uncalibrated model, ``calibrated`` that of rows left out of the fit.
    """

    model: DeviceModel
    factors: Mapping[str, float]
    rows: int
    published: Agreement
    calibrated: Agreement
    origin: str

    def apply(self) -> DeviceModel:
        """Return the device model with its figures corrected and the calibration in its name."""
        return scaled(self.model, self.factors, f"{self.model.name}, calibrated on {self.origin}")

    def __str__(self) -> str:
        factors = ", ".join(f"{name} x {factor:.2f}" for name, factor in self.factors.items())
        return f"{self.model} from {self.origin}, {self.rows} rows: {factors}"


class Parts:
    """The parts of many predictions as arrays, so that they can be added up again under other factors.

    Raises ArgumentError for counts of a launch whose blocks fit no multiprocessor of the model.
    """

    def __init__(self, counts: Sequence[Counts], model: DeviceModel):
        launches, rows, first = [], [], []
        for row, each in enumerate(counts):
            for at, launch in enumerate(each.get("parts", (each,))):
                launches.append(predict_counts(launch, model).parts)
                rows.append(row)
                first.append(at == 0)
        if not all(launches):
            raise ArgumentError(
                "counts", "a launch whose blocks do not fit", f"launches that fit {model}", "Leave it out."
            )
        names = [(group, part) for group, parts in GROUPS.items() for part in parts]
        self._groups = list(GROUPS)
        self._of = np.array([self._groups.index(group) for group, _ in names])
        self._added = np.array([part in ("launch", "first access") for _, part in names])
        self._latency = np.array([part == "latency" for _, part in names])
        self._parts = np.array([[parts[part] for _, part in names] for parts in launches])
        # The launches after the first are queued while it runs: their overhead is hidden.
        self._parts[~np.array(first), [part for _, part in names].index("launch")] = 0.0
        self._rows, self.count = np.array(rows), len(counts)

    def seconds(self, log_factors: np.ndarray) -> np.ndarray:
        """Return the predicted seconds of each row, for the logarithms of the factors in the order of `GROUPS`."""
        parts = self._parts * np.exp(log_factors)[self._of]
        together = overlapped(parts[:, ~(self._added | self._latency)], parts[:, self._latency][:, 0])
        each = parts[:, self._added].sum(axis=1) + together
        return np.bincount(self._rows, weights=each, minlength=self.count)


def scaled(model: DeviceModel, factors: Mapping[str, float], name: str) -> DeviceModel:
    """Return a device model whose groups of figures take ``factors`` times as long."""
    figures = {figure: getattr(model, figure) * factors[group] for group, names in _TIMES.items() for figure in names}
    figures |= {figure: getattr(model, figure) / factors[group] for group, names in _RATES.items() for figure in names}
    return replace(model, name=name, **figures)


def fit(parts: Parts, measured: np.ndarray, rows: np.ndarray, penalty: float = PENALTY) -> np.ndarray:
    """Fit log factors to the measured seconds of ``rows``: damped Gauss-Newton from the published figures."""
    target = np.log(measured[rows])

    def residuals(theta: np.ndarray) -> np.ndarray:
        errors = (np.log(parts.seconds(theta)[rows]) - target) / np.sqrt(len(rows))
        return np.concatenate([errors, np.sqrt(penalty) * theta])

    theta, damping = np.zeros(len(GROUPS)), 1e-3
    now = residuals(theta)
    for _ in range(_STEPS):
        step = 1e-4 * np.eye(len(theta))
        slopes = np.stack([(residuals(theta + e) - residuals(theta - e)) / 2e-4 for e in step], axis=1)
        normal = slopes.T @ slopes
        move = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slopes.T @ now)
        tried = residuals(theta + move)
        if tried @ tried < now @ now:
            theta, now, damping = theta + move, tried, damping / 3
            if np.abs(move).max() < 1e-6:
                break
        else:
            damping *= 4
    return theta


def calibrate(
    sweep: Sweep, model: DeviceModel, counted: Sweep | None = None, *, seed: int = 0
) -> PredictionCalibration:
    """Calibrate a device model by a measured sweep.

    Args:
        sweep: times measured on the model's GPU.
        model: the published figures.
        counted: a simulator sweep of the same variant and case, for the counts that measured rows lack.
        seed: random seed of the assignment of rows to folds.

    Raises:
        ArgumentError: the times of the sweep are not measured, or fewer than 20 of its rows have counts.
    """
    if sweep.basis != "measured":
        raise ArgumentError("sweep", sweep.label, "a sweep measured on a GPU", "A prediction cannot calibrate itself.")
    counts, measured = joined(sweep, counted)
    if len(counts) < _LEAST_ROWS:
        got = f"{len(counts)} rows with counts"
        remedy = "Record a simulator sweep of the same variant and case beside it."
        raise ArgumentError("sweep", got, f"{_LEAST_ROWS} or more", remedy)
    parts = Parts(counts, model)
    everything = np.arange(len(counts))
    folds = np.random.default_rng(seed).permutation(len(counts)) % FOLDS
    left_out = np.empty(len(counts))
    for fold in range(FOLDS):
        theta = fit(parts, measured, everything[folds != fold])
        left_out[folds == fold] = parts.seconds(theta)[folds == fold]
    factors = dict(zip(GROUPS, np.exp(fit(parts, measured, everything)).tolist(), strict=True))
    published = agreement(parts.seconds(np.zeros(len(GROUPS))), measured)
    return PredictionCalibration(model, factors, len(counts), published, agreement(left_out, measured), sweep.name)


def joined(sweep: Sweep, counted: Sweep | None) -> tuple[list[Counts], np.ndarray]:
    """Return the counts and the measured seconds of the rows that have both."""
    others = counted.by_config if counted is not None else {}
    counts, seconds = [], []
    for trial in sweep.trials:
        known = trial.counts or getattr(others.get(canonical(dict(trial.config))), "counts", None)
        if trial.measured_seconds is not None and known:
            counts.append(known)
            seconds.append(trial.measured_seconds)
    return counts, np.array(seconds)


def counted_for(sweep: Sweep, sweeps: Sequence[Sweep]) -> Sweep | None:
    """Return the first simulator sweep of the same variant and case, or None."""
    same = (sweep.op, sweep.variant, sweep.case_name)
    found = (o for o in sweeps if o.basis == "predicted" and (o.op, o.variant, o.case_name) == same)
    return next(found, None)


@functools.cache
def calibrated_model(model: DeviceModel) -> DeviceModel:
    """Return the model calibrated by the largest shipped sweep measured on its GPU, or itself if there is none."""
    sweeps = [load(name) for name in shipped()]
    measured = [sweep for sweep in sweeps if sweep.basis == "measured" and model_of_gpu(sweep.device) == model]
    if not measured:
        return model
    largest = max(measured, key=lambda sweep: len(sweep.trials))
    return calibrate(largest, model, counted_for(largest, sweeps)).apply()
