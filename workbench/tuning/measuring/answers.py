"""Answers to a strategy's questions, whoever gives them: a device or a recorded sweep."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from workbench.base.trials.trial import Trial
from workbench.tuning.job import TuningJob
from workbench.tuning.measuring.attempt import Progress, trial_key

if TYPE_CHECKING:
    from workbench.ops.variant import Config


class Answers:
    """Answers to a strategy's questions, from attempts on a device or from a recorded sweep.

    ``trials`` holds the results by :func:`trial_key`; ``new`` and ``reused`` count the attempts made here and those
    known before. When ``stop`` is set, the attempts under way are the last, and `run` raises KeyboardInterrupt.
    """

    def __init__(
        self, job: TuningJob, progress: Callable[[Progress], None] | None = None, stop: threading.Event | None = None
    ):
        self.cases = job.cases
        self.trials: dict[tuple, Trial] = {}
        self.new = self.reused = 0
        self._total, self._progress, self._stop = job.total, progress, stop
        self._best: Trial | None = None
        self._least = math.inf

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, variant: Any, configs: Iterable[Config], deadline: float = math.inf) -> bool:
        """Try configurations on every case.

        Returns False if ``deadline``, a value of time.monotonic, came before all were done.
        """
        raise NotImplementedError

    @property
    def _stopping(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    def _heed_stop(self) -> None:
        if self._stopping:
            raise KeyboardInterrupt

    def _keep(self, trial: Trial) -> None:
        self.trials[trial_key(trial)] = trial
        if trial.seconds is not None and trial.seconds < self._least:
            self._best, self._least = trial, trial.seconds
        if self._progress:
            done = self.new + self.reused
            self._progress(Progress(done, self._total, self.new, self.reused, trial, self._best))
