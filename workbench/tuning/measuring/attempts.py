"""Attempts of a tuning run: claimed in the store, tried by an executor, stored as they end.

The executor is `workbench.tuning.measuring.cluster.Here`, which measures in this thread, or `Workers` beside it, which
uses the workers of the user's own executor.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.analysis.prediction.predict import VERSION as PREDICTION_VERSION
from workbench.base.processes.handing_out import POLL_SECONDS
from workbench.base.trials.store import Identity, Store
from workbench.base.trials.trial import REFUTED, Trial, canonical
from workbench.base.versions import toolchain, versions
from workbench.errors import WorkbenchError
from workbench.tuning.job import TuningJob
from workbench.tuning.measuring.answers import Answers
from workbench.tuning.measuring.attempt import Attempt, Executor, Progress, attempted, trial_key
from workbench.tuning.measuring.cluster import Here, Workers
from workbench.tuning.measuring.gpu_choice import device_label
from workbench.tuning.measuring.measure import DeviceLostError, with_prediction
from workbench.tuning.measuring.proving import ConfigurationProofs

if TYPE_CHECKING:
    from workbench.ops.variant import Case, Config, Variant

ALIKE = 3
"""Number of first configurations whose equal crashes end a run.

If they crash with the same message and nothing has ended otherwise, the configurations are not at fault.
"""


class Attempts(Answers):
    """Answers from a device; each result is in the store as soon as it is known."""

    def __init__(
        self, job: TuningJob, progress: Callable[[Progress], None] | None = None, stop: threading.Event | None = None
    ):
        super().__init__(job, progress, stop)
        self._device, self._model, self._options = job.device, job.model, job.options
        given = job.options.store
        self._store = given if isinstance(given, Store) else Store(given)
        self._here = Here(job.setting, self._store.begin)
        self._executor: Executor = (
            self._here if job.options.executor is None else Workers(job.setting, job.options.executor)
        )
        self._proofs = ConfigurationProofs(job.op, job.cases, job.device.arch) if job.options.prove else None
        self._case_json = {case.name: canonical(case.to_dict()) for case in self.cases}
        self._source_hashes: dict[Variant, str] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._crashes: list[tuple[int, str, str]] = []
        self._cause: str | None = None

    def __exit__(self, *_: object) -> None:
        try:
            # Keep finished attempts, whatever the reason for leaving.
            for attempt in self._executor.close():
                self._finish(attempt)
        finally:
            self._here.close()
            if self._store is self._options.store:
                self._store.release_all()
            else:
                self._store.close()

    def run(self, variant: Variant, configs: Iterable[Config], deadline: float = math.inf) -> bool:
        """Try configurations on every case.

        Returns False if ``deadline``, a value of time.monotonic, came before all were done.
        """
        coming, waiting = deque(configs), deque[Attempt]()
        busy: list[Attempt] = []
        whole = True
        while coming or waiting or busy or self._executor.working:
            if self._stopping or time.monotonic() >= deadline:
                back = self._executor.withdraw()
                self._store.release(*(attempt.key for attempt in back))
                whole = whole and not (back or coming or waiting or busy)
                coming.clear()
                waiting.clear()
                busy.clear()
            elif room := self._executor.room(hurried=deadline != math.inf):
                self._refill(variant, coming, waiting)
                self._claim([waiting.popleft() for _ in range(min(room, len(waiting)))], busy)
                if busy and not (coming or waiting or self._executor.working):
                    # Only attempts of other processes are left: ask again until they are done or their process is gone.
                    time.sleep(POLL_SECONDS)
                    waiting.extend(busy)
                    busy.clear()
            for attempt in self._executor.take():
                if attempt.lost:
                    self._store.finish(attempt.key, self._row_of(attempt))
                    raise DeviceLostError(attempt.trial)
                self._finish(attempt)
        if not whole:
            self._heed_stop()
        return whole

    def _refill(self, variant: Variant, coming: deque[Config], waiting: deque[Attempt]) -> None:
        """Have configurations wait: all that come, or the next one if they are proved first, so that workers go on."""
        while coming and (self._proofs is None or not waiting):
            config = coming.popleft()
            found = "" if self._proofs is None else self._proofs.refutation(variant, config)
            for case in self.cases:
                if found:
                    self.new += 1
                    self._keep(attempted(variant, config, case, self._device, REFUTED, message=found))
                else:
                    waiting.append(self._attempt(variant, config, case))

    @property
    def notes(self) -> list[str]:
        """Notes of the run on the proofs of its configurations."""
        return [] if self._proofs is None else self._proofs.notes

    def time_again(self, leaders: list[tuple[Variant, Trial]], case: Case, rounds: int) -> None:
        """Time configurations against each other, in turns, and replace their earlier times.

        Raises NotTimedError with the reason if that fails.
        """
        configs = [(variant, trial.config) for variant, trial in leaders]
        taken = self._here.measurer.time_again(configs, case, rounds)
        for (variant, trial), samples in zip(leaders, taken, strict=True):
            better = replace(trial, leader_samples=samples, measured_seconds=statistics.median(samples))
            self.trials[trial_key(trial)] = better
            self._store.amend(self._attempt(variant, trial.config, case).key, better)

    def known(self, variant: Variant, configs: Iterable[Config], case: Case) -> list[Trial]:
        """Return the correct trials of configurations that earlier runs have left in the store for a case."""
        stored = {
            canonical(dict(trial.config))
            for trial in self._store.trials(op=variant.op, device=device_label(self._device), case=case.name)
            if trial.variant == variant.name
        }
        found = []
        for config in configs if stored else ():
            if canonical(dict(config)) not in stored:
                continue
            attempt = self._attempt(variant, config, case)
            trial = self._store.get(attempt.key)
            if trial is not None and trial.ok:
                found.append(self._current(attempt, trial))
        return found

    # -- inside -------------------------------------------------------------------------------------------------

    def _attempt(self, variant: Variant, config: Config, case: Case) -> Attempt:
        if variant not in self._source_hashes:
            self._source_hashes[variant] = variant.source_hash
        identity = Identity(
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
        return Attempt.of(variant, config, case, self._device, identity=identity)

    def _claim(self, batch: list[Attempt], busy: list[Attempt]) -> None:
        """Claim attempts and hand the executor ours; add those that another process works on to ``busy``."""
        if not batch:
            return
        identities = [attempt.identity for attempt in batch if attempt.identity is not None]
        claims = self._store.claim(identities, retry_failed=self._options.retry_failed)
        for attempt, claim in zip(batch, claims, strict=True):
            if claim.trial is not None:
                self._reuse(attempt, claim.trial)
            elif claim.state == "busy":
                busy.append(attempt)
            else:
                configuration = attempt.variant.name, canonical(dict(attempt.config))
                number = self._numbers.setdefault(configuration, len(self._numbers))
                self._executor.put(replace(attempt, number=number))

    def _row_of(self, attempt: Attempt) -> Trial:
        return replace(attempt.trial, device=device_label(self._device))

    def _finish(self, attempt: Attempt) -> None:
        key, trial = attempt.key, self._row_of(attempt)
        if trial.outcome == "crash" and trial.message == self._cause:
            self._store.release(key)  # it came in after the run had been given up for this reason
            return
        self._store.finish(key, trial)
        self.new += 1
        if trial.outcome == "crash":
            self._crashes.append((attempt.number, key, trial.message))
            self._stop_if_alike()
        self._keep(trial)

    def _stop_if_alike(self) -> None:
        first = [(number, message) for number, _, message in self._crashes if number < ALIKE]
        numbers, messages = set(dict(first)), {message for _, message in first}
        if len(self._crashes) < self.new or len(numbers) < ALIKE or len(messages) > 1:
            return
        (self._cause,) = messages
        self._store.forget(*(key for _, key, message in self._crashes if message == self._cause))
        raise WorkbenchError(
            f"the first {ALIKE} configurations crashed alike: {self._cause}. The configurations are probably not the "
            "cause, so no result was kept; correct the cause (see `workbench doctor`) and start again."
        )

    def _reuse(self, attempt: Attempt, trial: Trial) -> None:
        self.reused += 1
        self._keep(self._current(attempt, trial))

    def _current(self, attempt: Attempt, trial: Trial) -> Trial:
        """Return a stored trial with the time that this run's device model predicts, in the space's order of names.

        Stored counts suffice for another device model, or a newer version of the prediction, without a new run.
        """
        current = (trial.predicted_for, trial.prediction.get("version")) == (self._model.key, PREDICTION_VERSION)
        if trial.counts and trial.ok and not current:
            trial = with_prediction(trial, self._model)
            self._store.amend(attempt.key, trial)
        return replace(trial, config=dict(attempt.config))
