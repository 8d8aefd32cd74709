"""A tuning run in the background: the caller goes on working, can look at it, stop it and await it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from workbench.base.trials.trial import Trial
from workbench.tuning.job import TuningJob
from workbench.tuning.measuring.attempt import Progress
from workbench.tuning.result.run import TuningRun

if TYPE_CHECKING:
    from workbench.tuning.result.view import TuningView


RunJob = Callable[[TuningJob, Callable[[Progress], None], threading.Event], TuningRun]
"""A function that runs a job: it tells its progress, and ends early if the event is set."""


class LiveTuning:
    """A tuning run in a thread of its own, as ``tune(..., background=True)`` returns it.

    ``progress`` is the latest `Progress`, None before the first attempt. With strategy "predicted" it may be that of
    the scouting, whose attempts are not among ``trials``. `result` and ``await`` give the `TuningRun`.
    """

    def __init__(self, job: TuningJob, run_job: RunJob, progress: Callable[[Progress], None] | None = None):
        self._job, self._run_job = job, run_job
        self._tell = progress
        self._trials: list[Trial] = []
        self._stop = threading.Event()
        self._run: TuningRun | None = None
        self._error: BaseException | None = None
        self._outcome: Future[TuningRun] = Future()
        self._listeners: list[Callable[[], None]] = []
        self._begun, self._ended = time.monotonic(), 0.0
        # When the present stage (scouting or search) began, and when the latest attempt ended.
        self._stage_begun = self._latest = self._begun
        self.progress: Progress | None = None
        # A daemon: a notebook's kernel can shut down without waiting, since the store has every finished row.
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
        """Largest number of attempts that the run will make; None if its budget is a time."""
        return self._job.total

    @property
    def error(self) -> BaseException | None:
        """The exception that ended the run, if it failed."""
        return self._error

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The finished trials, in the order in which they ended."""
        return tuple(self._trials)

    @property
    def outline(self) -> TuningRun:
        """The run without its trials: op, cases, variants, spaces, device."""
        return self._job.result((), new=0, reused=0, interrupted=False)

    @property
    def seconds(self) -> float:
        """Seconds since the run began, up to its end."""
        return (self._ended or time.monotonic()) - self._begun

    @property
    def scouting(self) -> str:
        """The variant that is being scouted before the search, and on which case; empty during the search."""
        return self.progress.scouting if self.progress else ""

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the present stage, search or scouting, ends at its present pace; None if unknown."""
        progress = self.progress
        if self.phase != "running" or progress is None or not progress.total:
            return None
        # Attempts from the store took no time and say nothing about the rest.
        each = (time.monotonic() - self._stage_begun) / (progress.new or progress.done)
        return each * (progress.total - progress.done)

    def snapshot(self) -> TuningRun:
        """Return the results so far as a `TuningRun`; after the end, the final result."""
        if self._run is not None:
            return self._run
        trials, progress = self.trials, self.progress
        new, reused = (progress.new, progress.reused) if progress and not progress.scouting else (0, 0)
        return self._job.result(trials, new=new, reused=reused, interrupted=False, seconds=self.seconds)

    def widget(self) -> TuningView:
        """Return a view that follows the run, with a Stop button.

        Put it last in a notebook cell. Needs anywidget (``[lab]``).
        """
        from workbench.tuning.result.view import TuningView

        return TuningView(self)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each attempt and at the end, in the thread that tunes."""
        self._listeners.append(listener)

    # -- ending it ----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the run after the present attempt.

        Finished attempts are kept; the same call of `tune` goes on from there.
        """
        self._stop.set()

    def result(self, timeout: float | None = None) -> TuningRun:
        """Wait for the end and return the run.

        Raises the exception that ended the run, or TimeoutError after ``timeout`` seconds. Ctrl-C ends only the
        waiting.
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
            self._run = self._run_job(self._job, self._on_progress, self._stop)
        except BaseException as error:
            self._error = error
        self._ended = time.monotonic()
        # Listeners are called before the threads that wait for the result go on.
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
