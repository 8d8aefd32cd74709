"""``Trial``, the outcome of one attempt at one configuration, which everything else stores, ranks and prints."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.base.memory_counts import MemoryCounts
from workbench.base.trials.values import Counts, PredictionRecord, Resources, Timing

REFUTED = "refuted"
"""Outcome of a configuration that a proof refutes. It is not tried, and a store has no row of it."""

OUTCOMES = ("ok", "restricted", "compile_error", "launch_error", "wrong_result", "timeout", "crash", REFUTED)
"""Every way that an attempt can end; only ``ok`` carries a time."""

OUTCOME_MEANING = {
    "ok": "correct, and counted or timed",
    "restricted": "breaks a rule of its variant; nothing was compiled",
    "compile_error": "the compiler refused it",
    "launch_error": "it could not be launched, or stopped on an illegal access",
    "wrong_result": "its output misses the error bound; it was not timed",
    "timeout": "it was stopped at its time or instruction limit",
    "crash": "it ended the process that ran it, or failed in an unforeseen way",
    REFUTED: "a proof found sizes or an order at which it fails; it was not run",
}


def canonical(value: object) -> str:
    """Return JSON with one spelling for equal values: keys sorted, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def digest(*parts: str) -> str:
    """Return 32 hex digits that identify a sequence of texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Trial:
    """One attempted configuration of one variant on one case and device.

    Times are in seconds. ``measured_seconds`` is the median of ``samples`` (a GPU's clock). ``predicted_seconds`` comes
    from the simulator's ``counts`` and the published limits of the device model named in ``predicted_for``. At most one
    of the two ranks a row: see :attr:`seconds`.
    """

    op: str
    variant: str
    language: str
    case: str
    config: Mapping[str, Any]
    device: str
    arch: str
    outcome: str
    message: str = ""
    compile_seconds: float | None = None
    from_cache: bool | None = None
    resources: Resources = field(default_factory=Resources)
    counts: Counts = field(default_factory=Counts)
    samples: tuple[float, ...] = ()
    leader_samples: tuple[float, ...] = ()
    timing: Timing = field(default_factory=Timing)
    measured_seconds: float | None = None
    predicted_seconds: float | None = None
    predicted_for: str | None = None
    prediction: PredictionRecord = field(default_factory=PredictionRecord)
    max_error: float | None = None
    error_bound: float | None = None
    started: float | None = None
    finished: float | None = None
    reused: bool = False

    @property
    def ok(self) -> bool:
        """True if the attempt was correct, and counted or timed."""
        return self.outcome == "ok"

    @property
    def seconds(self) -> float | None:
        """Time that ranks the trial, in seconds: measured if a GPU measured it, else predicted; None unless ``ok``."""
        if not self.ok:
            return None
        return self.measured_seconds if self.measured_seconds is not None else self.predicted_seconds

    @property
    def basis(self) -> str:
        """Basis of the time: ``"measured"``, ``"predicted"``, or ``""`` if there is no time."""
        if self.seconds is None:
            return ""
        return "measured" if self.measured_seconds is not None else "predicted"

    @property
    def spread_seconds(self) -> float | None:
        """Noise of a measured time: the median absolute deviation of the samples that it was taken from."""
        samples = self.leader_samples or self.samples
        if len(samples) < 2:
            return None
        middle = statistics.median(samples)
        return statistics.median(abs(sample - middle) for sample in samples)

    @property
    def memory(self) -> MemoryCounts:
        """Memory counts of the trial; its requests to global memory are loads and stores, as no atomics are kept."""
        counts = self.counts
        return MemoryCounts(
            global_requests=counts.get("global_load_requests", 0) + counts.get("global_store_requests", 0),
            global_sectors=counts.get("global_load_sectors", 0) + counts.get("global_store_sectors", 0),
            shared_requests=counts.get("shared_requests", 0),
            shared_wavefronts=counts.get("shared_wavefronts", 0),
            shared_ideal_wavefronts=counts.get("shared_ideal_wavefronts", 0),
        )

    @property
    def config_text(self) -> str:
        """Text of the configuration, such as ``"BLOCK_SIZE=16 num_warps=4"``."""
        return " ".join(f"{name}={value}" for name, value in self.config.items()) or "(nothing to tune)"


def geometric_mean(values: Iterable[float]) -> float:
    """Return exp of the mean logarithm; infinity if one of the values is."""
    values = list(values)
    if any(math.isinf(value) for value in values):
        return math.inf
    return math.exp(sum(map(math.log, values)) / len(values))


def median_error(samples: Sequence[float]) -> float:
    """Return the standard error of the median, from the median absolute deviation (1.4826 x it estimates sigma)."""
    middle = statistics.median(samples)
    deviation = 1.4826 * statistics.median(abs(sample - middle) for sample in samples)
    return 1.2533 * deviation / math.sqrt(len(samples))
