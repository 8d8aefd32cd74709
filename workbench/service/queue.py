"""The queue: what is judged next, by priority, and among equals in turn for each client."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from workbench.service.judging import Work


@dataclass(eq=False)
class Job:
    """One judgement that tickets wait for. ``future`` is that of the worker, once it has the work."""

    work: Work
    priority: int
    cancelled: bool = False
    future: Future[dict[str, Any]] | None = field(default=None, repr=False)

    @property
    def key(self) -> str:
        """Key of the verdict."""
        return self.work.key


class JobQueue:
    """Jobs that wait and jobs that run, by key. The caller locks it.

    Of one priority, each client has one job in turn, so that many jobs of one client do not hold up another.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Job]] = []
        self._waiting: dict[str, Job] = {}
        self._running: dict[str, Job] = {}
        self._numbers = itertools.count()
        self._turns: dict[str, int] = {}
        self._turn = 0

    def put(self, work: Work, priority: int, client: str) -> None:
        """Add a job; if there is one of the same key, raise its priority instead."""
        running, job = self._running.get(work.key), self._waiting.get(work.key)
        if running is not None:
            running.cancelled = False  # if its worker is just being ended, another one gets the work
        elif job is None:
            self._waiting[work.key] = job = Job(work, priority)
            self._push(job, client)
        elif priority > job.priority:
            job.priority = priority
            self._push(job, client)  # its earlier place is skipped

    def _push(self, job: Job, client: str) -> None:
        self._turns[client] = turn = max(self._turns.get(client, 0), self._turn) + 1
        heapq.heappush(self._heap, (-job.priority, turn, next(self._numbers), job))

    def take(self) -> Job | None:
        """Return the next job, which runs from now on; None if none waits."""
        while self._heap:
            _, turn, _, job = heapq.heappop(self._heap)
            if self._waiting.get(job.key) is job:
                self._turn = max(self._turn, turn)
                del self._waiting[job.key]
                self._running[job.key] = job
                return job
        return None

    def put_back(self, job: Job) -> None:
        """Have a job that ran wait again, as the first of its priority."""
        self._running.pop(job.key, None)
        job.future = None
        self._waiting[job.key] = job
        heapq.heappush(self._heap, (-job.priority, 0, next(self._numbers), job))

    def done(self, job: Job) -> None:
        """Forget a job that ran."""
        self._running.pop(job.key, None)

    def cancel(self, key: str) -> Job | None:
        """Take back the job of a key; return it if it runs, so that its worker can be ended."""
        if self._waiting.pop(key, None) is not None:
            return None
        job = self._running.get(key)
        if job is not None:
            job.cancelled = True
        return job

    @property
    def waiting(self) -> int:
        """Number of jobs that wait."""
        return len(self._waiting)

    @property
    def running(self) -> Collection[Job]:
        """Jobs that workers have."""
        return self._running.values()
