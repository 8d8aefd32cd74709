"""A tuning run in the background: the caller goes on working, looks at it, stops it, awaits it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from workbench.base.trials.trial import Trial
from workbench.tuning.attempt import Progress
from workbench.tuning.job import TuningJob
from workbench.tuning.run import TuningRun
from workbench.tuning.searching import run_job

if TYPE_CHECKING:
    from workbench.tuning.view import TuningView


class LiveTuning:
    """What ``tune(..., background=True)`` returns: a search that a thread of its own works on.

    ``progress`` is the latest `Progress`, None before the first attempt; with strategy "predicted" it may be one of the
    scouting, whose attempts are not among ``trials``. `result` gives the `TuningRun`, as does
    ``await``.
    """

    def __init__(self, job: TuningJob, progress: Callable[[Progress], None] | None = None):
        self._job = job
        self._tell = progress
        self._trials: list[Trial] = []
        self._stop = threading.Event()
        self._run: TuningRun | None = None
        self._error: BaseException | None = None
        self._outcome: Future[TuningRun] = Future()
        self._listeners: list[Callable[[], None]] = []
        self._begun, self._ended = time.monotonic(), 0.0
        # The present stage's beginning, scouting or search, and the latest attempt's end.
        self._stage_begun = self._latest = self._begun
        self.progress: Progress | None = None
        # A daemon: a notebook's kernel that shuts down does not wait for it, and the store has every finished row.
        self._thread = threading.Thread(target=self._work, name="tuning", daemon=True)
        self._thread.start()

    # -- looking at it ------------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """One of "running", "stopping" (the present attempt is the last one), "stopped", "done" or "failed"."""
        if self._error is not None:
            return "failed"
        if self._run is not None:
            return "stopped" if self._run.interrupted else "done"
        return "stopping" if self._stop.is_set() else "running"

    @property
    def total(self) -> int | None:
        """Attempts that it will make at most; None where time decides."""
        return self._job.total

    @property
    def error(self) -> BaseException | None:
        """What ended it, if it failed."""
        return self._error

    @property
    def trials(self) -> tuple[Trial, ...]:
        """What has been finished, in that order."""
        return tuple(self._trials)

    @property
    def outline(self) -> TuningRun:
        """The run without its trials: op, cases, variants, spaces, device."""
        return self._job.result((), new=0, reused=0, interrupted=False)

    @property
    def seconds(self) -> float:
        """How long it has been running, or ran."""
        return (self._ended or time.monotonic()) - self._begun

    @property
    def scouting(self) -> str:
        """What is being scouted, on which case, before the search; empty in the search itself."""
        return self.progress.scouting if self.progress else ""

    @property
    def seconds_left(self) -> float | None:
        """How long the search, or its scouting, will go on at the pace that it has; None where nobody can say."""
        progress = self.progress
        if self.phase != "running" or progress is None or not progress.total:
            return None
        # What came from the store took no time, and says nothing about the rest.
        each = (time.monotonic() - self._stage_begun) / (progress.new or progress.done)
        return each * (progress.total - progress.done)

    def snapshot(self) -> TuningRun:
        """What has been found so far, as a `TuningRun`; the result itself once there is one."""
        if self._run is not None:
            return self._run
        trials, progress = self.trials, self.progress
        new, reused = (progress.new, progress.reused) if progress and not progress.scouting else (0, 0)
        return self._job.result(trials, new=new, reused=reused, interrupted=False, seconds=self.seconds)

    def widget(self) -> TuningView:
        """A view that follows it, with a Stop button; put it last in a notebook cell. Needs anywidget (``[lab]``)."""
        from workbench.tuning.view import TuningView

        return TuningView(self)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each attempt and at the end, in the thread that tunes."""
        self._listeners.append(listener)

    # -- ending it ----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it after the present attempt. What is finished is kept; the same call of `tune` goes on from there."""
        self._stop.set()

    def result(self, timeout: float | None = None) -> TuningRun:
        """Wait for the end and return the run; raises what ended it, and TimeoutError after ``timeout`` seconds.

        Ctrl-C while waiting ends the waiting only.
        """
        return self._outcome.result(timeout)

    def __await__(self) -> Generator[object, None, TuningRun]:
        return asyncio.wrap_future(self._outcome).__await__()

    def __repr__(self) -> str:
        what, done, total = "", len(self._trials), self.total
        progress = self.progress
        if progress is not None and progress.scouting:
            what, done, total = f"scouting {progress.scouting}, ", progress.done, progress.total
        of = "" if total is None else f" of at most {total}"
        return f"<tuning of {self._job.op.name}, {self.phase}: {what}{done}{of} attempts>"

    # -- inside -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._run = run_job(self._job, self._on_progress, self._stop)
        except BaseException as error:
            self._error = error
        self._ended = time.monotonic()
        # Who listens knows before who waits goes on.
        self._notify()
        if self._run is not None:
            self._outcome.set_result(self._run)
        else:
            self._outcome.set_exception(self._error)

    def _on_progress(self, progress: Progress) -> None:
        if progress.scouting != self.scouting:
            self._stage_begun = self._latest
        self.progress, self._latest = progress, time.monotonic()
        if not progress.scouting:
            self._trials.append(progress.latest)
        self._notify()
        if self._tell:
            self._tell(progress)

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            try:
                listener()
            except Exception:
                # A view whose browser has gone must not end the search.
                logging.getLogger(__name__).exception("a listener of %r failed, and is not called any more", self)
                self._listeners.remove(listener)
