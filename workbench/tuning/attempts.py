"""Attempts on their way through a tuning run: claimed, compiled ahead in threads, measured one at a time, stored."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from workbench.device_models import DeviceModel
from workbench.errors import WorkbenchError
from workbench.prediction.predict import VERSION as PREDICTION_VERSION
from workbench.trials.store import Identity, Store
from workbench.trials.trial import Trial, canonical
from workbench.tuning.gpu_choice import current_gpu, use_gpu
from workbench.tuning.gpu_timing import Clock
from workbench.tuning.isolation import InProcess, InWorker, measurer, to_compile
from workbench.tuning.measure import Compiled, DeviceLostError, Limits, with_prediction
from workbench.versions import toolchain, versions

if TYPE_CHECKING:
    from workbench.devices import Device
    from workbench.ops.variant import Case, Config, Variant

COMPILE_THREADS = 2
LOOK_AHEAD = 6
"""Attempts that are claimed, and being compiled, while another is measured."""

ALIKE = 3
"""When a run's first configurations, this many, crash with the same message, and nothing has come to another end, it is
not the configurations' fault."""

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Progress:
    """How far a tuning run is. An attempt is one configuration on one case; ``total`` is None where it is not known.

    While a run scouts, ``scouting`` says what and on which case, and the figures are those of the scouting alone.
    """

    done: int
    total: int | None
    new: int
    reused: int
    latest: Trial
    best: Trial | None
    scouting: str = ""


@dataclass
class Attempt:
    """One configuration on one case, from its claim in the store to its row."""

    variant: Variant
    config: Config
    case: Case
    identity: Identity
    compiled: Future | None = None
    number: int = -1
    """That of its configuration in the order in which this run takes them up: workers may end them in another."""


class Attempts:
    """Tries configurations on cases; each result is in the store before the next one is measured.

    When ``stop`` is set, the attempt that is being made is the last one, and `run` raises KeyboardInterrupt.
    ``trials`` holds what came out, by :func:`trial_key`; ``new`` and ``reused`` count what was done here and what came
    from the store.
    """

    def __init__(
        self,
        cases: Iterable[Case],
        device: Device,
        model: DeviceModel,
        store: Store,
        *,
        limits: Limits | None = None,
        retry_failed: bool = False,
        progress: Callable[[Progress], None] | None = None,
        clock: Clock | None = None,
        total: int | None = None,
        stop: threading.Event | None = None,
        isolation: str = "auto",
    ):
        self.cases = tuple(cases)
        self.trials: dict[tuple, Trial] = {}
        self.new = self.reused = 0
        self._isolation, self._clock = isolation, clock
        self._device, self._model, self._store = device, model, store
        self._limits, self._retry_failed, self._progress = limits, retry_failed, progress
        self._total, self._stop = total, stop
        self._case_json = {case.name: canonical(case.to_dict()) for case in self.cases}
        self._source_hashes: dict[Variant, str] = {}
        gpu = (current_gpu(device),)
        self._pool = ThreadPoolExecutor(COMPILE_THREADS, "compile", use_gpu, gpu)
        self._triton_pool = ThreadPoolExecutor(1, "compile-triton", use_gpu, gpu)  # it is not made for several threads
        self._best: Trial | None = None
        self._least = math.inf
        self._numbers: dict[tuple[str, str], int] = {}
        self._crashes: list[tuple[int, str, str]] = []
        self._cause: str | None = None

    @functools.cached_property
    def measurer(self) -> InProcess | InWorker:
        """What compiles and measures in, or next to, this process; made when it is first asked for."""
        return measurer(self._isolation, self._device, self._model, self._limits, self._clock)

    def __enter__(self) -> Attempts:
        return self

    def __exit__(self, *_: object) -> None:
        # Whatever is being compiled ends by itself, and its result is in the compiler's cache.
        for pool in (self._pool, self._triton_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        if "measurer" in vars(self):
            self.measurer.close()

    def run(self, variant: Variant, configs: Iterable[Config], deadline: float = math.inf) -> bool:
        """Try configurations on every case; False if ``deadline`` (time.monotonic) came before all were done."""
        waiting = deque(self._attempt(variant, config, case) for config in configs for case in self.cases)
        mine: deque[Attempt] = deque()
        busy: list[Attempt] = []
        # Under a deadline nothing is claimed that may not be measured.
        ahead = LOOK_AHEAD if deadline == math.inf else 1
        while waiting or mine or busy:
            self._heed_stop()
            if time.monotonic() >= deadline and not mine:
                return False
            batch = [waiting.popleft() for _ in range(min(ahead - len(mine), len(waiting)))]
            if not batch and not mine:
                # Only what another process works on is left: ask again, until it is done or its process is gone.
                time.sleep(POLL_SECONDS)
                batch, busy = busy, []
            self._claim(batch, mine, busy)
            if mine:
                self._measure(mine.popleft())
        return True

    def identity(self, variant: Variant, config: Config, case: Case) -> Identity:
        """What identifies an attempt in the store."""
        if variant not in self._source_hashes:
            self._source_hashes[variant] = variant.source_hash
        return Identity(
            op=variant.op,
            variant=variant.name,
            language=variant.language,
            case_name=case.name,
            case_json=self._case_json[case.name],
            config=dict(config),
            device=device_label(self._device),
            device_description=self._device.description,
            arch=self._device.arch,
            source_hash=self._source_hashes[variant],
            toolchain=toolchain(variant.language),
            versions=versions(),
        )

    # -- inside -------------------------------------------------------------------------------------------------

    def _attempt(self, variant: Variant, config: Config, case: Case) -> Attempt:
        return Attempt(variant, config, case, self.identity(variant, config, case))

    def _claim(self, batch: list[Attempt], mine: deque, busy: list) -> None:
        if not batch:
            return
        claims = self._store.claim([attempt.identity for attempt in batch], retry_failed=self._retry_failed)
        for attempt, claim in zip(batch, claims, strict=True):
            if claim.trial is not None:
                self._reuse(attempt, claim.trial)
            elif claim.state == "busy":
                busy.append(attempt)
            else:
                configuration = attempt.variant.name, canonical(dict(attempt.config))
                attempt.number = self._numbers.setdefault(configuration, len(self._numbers))
                attempt.compiled = self._compile_ahead(attempt)
                mine.append(attempt)

    def _compile_ahead(self, attempt: Attempt) -> Future | None:
        problem = to_compile(attempt.variant, attempt.config, attempt.case, self._device)
        if problem is None:
            return None
        pool = self._triton_pool if attempt.variant.language == "triton" else self._pool
        return pool.submit(self.measurer.compile, attempt.variant, attempt.config, problem)

    def _measure(self, attempt: Attempt) -> None:
        compiled: Compiled | None = attempt.compiled.result() if attempt.compiled else None
        key = attempt.identity.key
        self._store.begin(key)
        try:
            trial = self.measurer.evaluate(attempt.variant, attempt.config, attempt.case, compiled)
        except DeviceLostError as error:
            self._store.finish(key, replace(error.trial, device=attempt.identity.device))
            raise
        self._finish(attempt, replace(trial, device=attempt.identity.device))

    @property
    def _stopping(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    def _heed_stop(self) -> None:
        if self._stopping:
            raise KeyboardInterrupt

    def _finish(self, attempt: Attempt, trial: Trial) -> None:
        key = attempt.identity.key
        if trial.outcome == "crash" and trial.message == self._cause:
            self._store.release(key)  # it came in after the run was given up for this very reason
            return
        self._store.finish(key, trial)
        self.new += 1
        if trial.outcome == "crash":
            self._crashes.append((attempt.number, key, trial.message))
            self._stop_if_alike()
        self._keep(attempt, trial)

    def _stop_if_alike(self) -> None:
        first = [(number, message) for number, _, message in self._crashes if number < ALIKE]
        numbers, messages = set(dict(first)), {message for _, message in first}
        if len(self._crashes) < self.new or len(numbers) < ALIKE or len(messages) > 1:
            return
        (self._cause,) = messages
        self._store.forget(*(key for _, key, message in self._crashes if message == self._cause))
        raise WorkbenchError(
            f"the first {ALIKE} configurations crashed alike: {self._cause}. That is hardly the configurations' doing, "
            "so nothing of it was kept; correct the cause (see `workbench doctor`) and start again."
        )

    def _reuse(self, attempt: Attempt, trial: Trial) -> None:
        # Counts are kept, so another device model, or a better version of the prediction, needs no new run.
        current = (trial.predicted_for, trial.prediction.get("version")) == (self._model.key, PREDICTION_VERSION)
        if trial.counts and trial.ok and not current:
            trial = with_prediction(trial, self._model)
            self._store.amend(attempt.identity.key, trial)
        self.reused += 1
        # The store spells a configuration with sorted names; here its order is the space's.
        self._keep(attempt, replace(trial, config=dict(attempt.config)))

    def _keep(self, attempt: Attempt, trial: Trial) -> None:
        self.trials[trial_key(trial)] = trial
        if trial.seconds is not None and trial.seconds < self._least:
            self._best, self._least = trial, trial.seconds
        if self._progress:
            done = self.new + self.reused
            self._progress(Progress(done, self._total, self.new, self.reused, trial, self._best))


def device_label(device: Device) -> str:
    """The name under which results on a device are kept: on a GPU that of its model."""
    if device.counts:
        return device.name
    import torch

    return torch.cuda.get_device_name()


def trial_key(trial: Trial) -> tuple[str, str, str]:
    """What tells the trials of one run apart: variant, case and configuration."""
    return trial.variant, trial.case, canonical(dict(trial.config))
