"""Comparison of predicted times with measured ones, for complete search spaces that others have published.

A folder of measurements holds Kernel Tuner caches or T4 results (``NAME/GPU.json.gz``), a folder of sources the kernel
and its launch (:mod:`workbench.tuning.bench.spaces`). From each space the best ten configurations are taken, and others
spread over the order of the times. Each is compiled for the GPU's architecture, a sample of its blocks is run, and its
time is predicted for the GPU's device model. The counts are kept on disk, so that the same command goes on where it
stopped.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from workbench.analysis.device_models import DeviceModel, device_model, model_of_gpu
from workbench.analysis.prediction.confidence import OURS
from workbench.analysis.prediction.predict import predict_counts
from workbench.base.trials.trial import Trial
from workbench.base.trials.values import Counts
from workbench.errors import CompileError, CompileTimeout, StoreError, UnknownKeyError
from workbench.toolchain.nvrtc_client import DEFAULT_SECONDS
from workbench.toolchain.occupancy import occupancy
from workbench.tuning.bench.results import Benchmark
from workbench.tuning.bench.spaces import SHIPPED, MeasuringConditions, PublishedSpace, load_space
from workbench.tuning.recorded.sweep import load
from workbench.tuning.recorded.sweep_checks import RefusedSweep
from workbench.tuning.recorded.sweep_record import SUFFIXES, Sweep
from workbench.tuning.search.ranking import kendall, spearman

BEST = 10
"""Number of the best configurations that are always among the rows."""

AGREEMENT = 0.05
"""Most by which times of configurations that should take the same time may differ."""

APART = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, math.inf)
"""Upper bounds of the classes of pairs of configurations, by how far their predicted times differ."""


@dataclass(frozen=True)
class Ranking:
    """Quality of one way to order configurations: rank correlations with the measured times, and regrets.

    A regret is a measured time as a multiple of the best of the whole space: ``first`` for the first choice among the
    rows, ``best_of_ten`` for the best measured of the first ten choices (means over ties).
    """

    spearman: float
    kendall: float
    first: float
    best_of_ten: float


@dataclass(frozen=True)
class Judged:
    """Comparison on one space and GPU: ``rows`` configurations of ``valid``, ranked by prediction and by baselines.

    The rows are the best ten and others, spread evenly over the order of the times by ``seed``; ``measured`` says
    where the times are from, ``clock_mhz`` for which clock they were predicted. ``unconfirmed`` measured times are
    left out of everything, as repeated measurements disagree (see `confirmed`). ``refused`` counts configurations
    that were measured but cannot be predicted: the compiler takes too long for them or refuses them, or they do not
    fit. ``rankings`` has the quality of each order. ``ratio`` is predicted / measured: median, 10th and 90th
    percentile. ``bounds`` has, by the prediction's bound, the number of rows and that ratio. ``order`` has, for pairs
    of rows by how far their predicted times differ (at most this share), their number and the share that is in the
    measured order. Some caches keep single runs whose mean is not the time beside them. The order by that mean ("its
    own single runs") shows how far measurements agree among themselves, and is more than a prediction can reach.
    """

    space: str
    gpu: str
    model: str
    source: str
    measured: str
    seed: int
    rows: int
    valid: int
    clock_mhz: float
    unconfirmed: int
    refused: Mapping[str, int]
    rankings: Mapping[str, Ranking]
    ratio: tuple[float, float, float]
    bounds: Mapping[str, tuple[int, float, float, float]]
    order: Mapping[str, tuple[int, float]]

    def __str__(self) -> str:
        refused = "".join(f", {count} more {why}" for why, count in self.refused.items())
        lines = [
            f"{self.space} on {self.gpu} ({self.source}) at {self.clock_mhz:,.0f} MHz: "
            f"{self.rows} of {self.valid} configurations{refused}",
            *([f"  {self.unconfirmed} more times are not used: repeated measurements differ"] * (self.unconfirmed > 0)),
            f"  {'':22}{'Spearman':>10}{'Kendall':>10}{'first':>10}{'best of 10':>12}",
        ]
        for name, found in self.rankings.items():
            ranks = "".join(f"{value:>10.3f}" for value in (found.spearman, found.kendall))
            lines.append(f"  {name:22}{ranks}{found.first:>9.2f}x{found.best_of_ten:>11.2f}x")
        lines.append(f"  predicted / measured: {_spread(self.ratio)}")
        for name, (rows, *ratio) in self.bounds.items():
            lines.append(f"    {f'bound by {name}, {rows}':26}{_spread(ratio)}")
        pairs = ", ".join(f"{within} {right:.0%}" for within, (_, right) in self.order.items())
        lines.append(f"  pairs in the measured order, by how far their predicted times differ: {pairs}")
        return "\n".join(lines)


def _spread(ratio: Sequence[float]) -> str:
    middle, low, high = ratio
    return f"median {middle:.2f}, p10 {low:.2f}, p90 {high:.2f}"


@dataclass(frozen=True)
class PredictionJudgement(Benchmark):
    """Results of all spaces that could be compared, and notes on the others."""

    kind = "bench-measured"

    spaces: tuple[Judged, ...]
    notes: tuple[str, ...]
    limit: int
    seed: int

    def __str__(self) -> str:
        head = (
            f"Predicted against measured times: the best {BEST} configurations and others, spread evenly over the\n"
            f"order of the times (at most {self.limit}, seed {self.seed}).\n"
            "first: the measured time of the first choice among these; best of 10: the best measured of the first\n"
            "ten choices; both as multiples of the best of the whole space."
        )
        return "\n\n".join([head, *map(str, self.spaces), *self.notes])


def sampled(trials: Sequence[Trial], limit: int, seed: int = 0) -> list[Trial]:
    """Return the best ten trials, then others spread evenly over the order of the times; all if there are no more.

    A sample is the beginning of every larger one of its seed, so that counted rows are used again.
    """
    timed = [(t.measured_seconds, t) for t in trials if t.measured_seconds is not None]
    ordered = [trial for _, trial in sorted(timed, key=lambda one: one[0])]
    best, others = ordered[:BEST], ordered[BEST:]
    begin = np.random.default_rng(seed).random()
    drawn: dict[int, None] = {}
    at = 0
    while len(drawn) < min(limit - BEST, len(others)):
        drawn[int((begin + _reversed_bits(at)) % 1 * len(others))] = None
        at += 1
    return [*best, *(others[place] for place in drawn)]


def confirmed(trials: Sequence[Trial], conditions: MeasuringConditions) -> list[Trial]:
    """Return the measured trials whose time is confirmed by the configurations that should take the same time.

    Those differ from a trial only in the tunables ``conditions.same_time``; there must be at least one, and all their
    times must agree within `AGREEMENT`. Without such tunables, all measured trials are returned.
    """
    timed = [trial for trial in trials if trial.measured_seconds is not None]
    if not conditions.same_time:
        return timed
    alike: dict[tuple, list[Trial]] = {}
    for trial in timed:
        key = tuple(sorted((name, value) for name, value in trial.config.items() if name not in conditions.same_time))
        alike.setdefault(key, []).append(trial)
    found: set[int] = set()
    for group in alike.values():
        times = [trial.measured_seconds or 0.0 for trial in group]
        if len(group) > 1 and max(times) <= (1 + AGREEMENT) * min(times):
            found.update(map(id, group))
    return [trial for trial in timed if id(trial) in found]


def _reversed_bits(number: int) -> float:
    """Return an element of the van der Corput sequence: 0, 1/2, 1/4, 3/4, 1/8, ...."""
    return int(f"{number:b}"[::-1], 2) / 2 ** number.bit_length()


def sweeps_in(folder: Path) -> Iterator[tuple[str, Sweep]]:
    """Yield (name of the space, sweep) of every file of measured times in a folder and its subfolders, sorted by name.

    The space has the name of the folder that the file lies in. Raises StoreError if there is none, and for a file whose
    content is refused.
    """
    found = False
    for path in sorted(path for path in _files(folder) if path.name.endswith(SUFFIXES)):
        try:
            sweep = load(path)
        except StoreError as error:
            if isinstance(error.__cause__, RefusedSweep):
                raise
            continue  # a description of a space, or other JSON
        if sweep.basis == "measured":
            found = True
            yield path.parent.name, sweep
    if not found:
        raise StoreError(
            f"{folder}: no file of measured times. It must hold Kernel Tuner caches or T4 results, NAME/GPU.json."
        )


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files of a folder and its subfolders, following links, each folder once."""
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(place, name) for name in names)


def judge(
    sweep: Sweep,
    space: PublishedSpace,
    model: DeviceModel,
    limit: int,
    seed: int = 0,
    said: Callable[[str], None] | None = None,
    compile_seconds: float = DEFAULT_SECONDS,
) -> Judged:
    """Predict a sample of a measured sweep's configurations and compare. ``said`` is called with progress lines."""
    conditions = space.conditions(sweep.machine)
    timed = confirmed(sweep.trials, conditions)
    trials = sampled(timed, limit, seed)
    if conditions.clock_mhz is not None:
        model = replace(model, clock_hz=1e6 * conditions.clock_mhz)

    def counted(trial: Trial) -> Counts | str:
        try:
            return space.counts(trial.config, model.arch, compile_seconds)
        except CompileTimeout:
            return f"not compiled within {compile_seconds:g} s"
        except CompileError:
            return "refused by the compiler"

    counts: list[Counts | str] = []
    refused = Counter[str]()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for at, one in enumerate(pool.map(counted, trials)):
            counts.append(one)
            if said and (at + 1) % 20 == 0:
                said(f"{space.name} on {sweep.machine}: {at + 1} of {len(trials)}")
    kept = []
    for trial, one in zip(trials, counts, strict=True):
        if isinstance(one, str):
            refused[one] += 1
            continue
        prediction = predict_counts(one, model)
        if math.isfinite(prediction.seconds):
            kept.append((trial, one, prediction))
        else:
            refused["too large for a multiprocessor"] += 1
    predicted = np.array([prediction.seconds for *_, prediction in kept])
    measured = np.array([trial.measured_seconds for trial, *_ in kept])
    best = min(t.measured_seconds for t in timed if t.measured_seconds is not None)
    orders = {"prediction": predicted} | baselines([one for _, one, _ in kept], model)
    repeated = [trial.samples for trial, *_ in kept]
    if all(repeated):
        orders["its own single runs"] = np.array([np.mean(samples) for samples in repeated])
    rankings = {name: ranking(order, measured, best) for name, order in orders.items()}
    rankings["random"] = _random(measured, best)
    bound_by = np.array([prediction.bound_by for *_, prediction in kept])
    bounds = {name: bound_by == name for name, _ in Counter(bound_by.tolist()).most_common()}
    return Judged(
        space=space.name,
        gpu=sweep.machine,
        model=model.key,
        source=OURS if space.path.parent == SHIPPED else "its published source",
        measured=sweep.label,
        seed=seed,
        rows=len(kept),
        valid=len(timed),
        clock_mhz=model.clock_hz / 1e6,
        unconfirmed=sum(t.measured_seconds is not None for t in sweep.trials) - len(timed),
        refused=dict(refused),
        rankings=rankings,
        ratio=_ratio(predicted, measured),
        bounds={name: (int(those.sum()), *_ratio(predicted[those], measured[those])) for name, those in bounds.items()},
        order=in_order(predicted, measured),
    )


def _ratio(predicted: np.ndarray, measured: np.ndarray) -> tuple[float, float, float]:
    middle, low, high = (float(np.quantile(predicted / measured, q)) for q in (0.5, 0.1, 0.9))
    return middle, low, high


def in_order(predicted: np.ndarray, measured: np.ndarray) -> dict[str, tuple[int, float]]:
    """Return the number of pairs and the fraction ranked correctly, grouped by predicted difference."""
    one, other = np.triu_indices(len(predicted), 1)
    apart = np.maximum(predicted[one], predicted[other]) / np.minimum(predicted[one], predicted[other]) - 1
    right = np.sign(predicted[one] - predicted[other]) == np.sign(measured[one] - measured[other])
    found, least = {}, -1.0
    for most in APART:
        those = (apart > least) & (apart <= most)
        if those.any():
            name = f"to {most:.0%}" if math.isfinite(most) else f"above {least:.0%}"
            found[name] = int(those.sum()), float(right[those].mean())
        least = most
    return found


def baselines(counts: Sequence[Mapping], model: DeviceModel) -> dict[str, np.ndarray]:
    """Return orders that need no model, small first: instructions of the PTX, and (negative) occupancy."""
    full = [
        occupancy(model.arch, one["block_threads"], one["registers"], one["shared_bytes"]).fraction for one in counts
    ]
    return {
        "fewest instructions": np.array([one["warp_instructions"] for one in counts], float),
        "highest occupancy": -np.array(full),
    }


def ranking(order: np.ndarray, measured: np.ndarray, best: float) -> Ranking:
    """Return how well ``order`` (small first) orders ``measured``; ``best`` is the best time of the whole space."""
    first = measured[order <= order.min() + 1e-9 * abs(order.min())].mean()
    # Ties at the tenth place are broken at random; the result is the mean over many draws.
    rng = np.random.default_rng(0)
    tens = [measured[np.lexsort((rng.random(len(order)), order))[:10]].min() for _ in range(20)]
    return Ranking(
        spearman(order, measured), kendall(order, measured), float(first / best), float(np.mean(tens) / best)
    )


def _random(measured: np.ndarray, best: float) -> Ranking:
    rng = np.random.default_rng(0)
    tens = [rng.choice(measured, min(10, len(measured)), replace=False).min() for _ in range(1000)]
    return Ranking(0.0, 0.0, float(measured.mean() / best), float(np.mean(tens) / best))


def judge_all(
    measured: str | Path,
    sources: str | Path | None = None,
    *,
    model: str | None = None,
    limit: int = 60,
    seed: int = 0,
    compile_seconds: float = DEFAULT_SECONDS,
    said: Callable[[str], None] | None = None,
) -> PredictionJudgement:
    """Compare predictions for every space in ``measured`` whose kernel is in ``sources`` or among ours.

    Args:
        measured: a folder of Kernel Tuner caches and T4 results.
        sources: a folder of kernels and their launches, searched before ours.
        model: the device model, if the files do not name a GPU that has one.
        limit: configurations of each space and GPU.
        seed: seed of the sample.
        compile_seconds: a configuration that takes longer to compile is refused.
        said: called with lines on the progress.
    """
    folders = [*([Path(sources)] if sources is not None else []), SHIPPED]
    judged, notes = [], []
    for name, sweep in sweeps_in(Path(measured)):
        found = device_model(model) if model is not None else model_of_gpu(sweep.machine)
        if found is None:
            notes.append(f"{name} on {sweep.machine}: no published figures for this GPU; name a model.")
            continue
        try:
            space = load_space(name, folders)
        except UnknownKeyError:
            notes.append(f"{name} on {sweep.machine}: no {name}.toml in {', '.join(map(str, folders))}.")
            continue
        judged.append(judge(sweep, space, found, limit, seed, said, compile_seconds))
    return PredictionJudgement(tuple(judged), tuple(notes), limit, seed)
