"""Tuning with the workers of any `concurrent.futures.Executor`: threads, processes, a Dask cluster.

    from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        run = wb.tune("paged_attention", executor=pool)

    from dask.distributed import Client  # python -m pip install -e ".[dask]"
    with Client("tcp://scheduler:8786") as client:
        run = wb.tune("paged_attention", executor=client.get_executor())

A worker compiles, checks and measures one configuration on one case; this process alone claims rows, and stores each
result as it comes. Workers need the same workbench and compilers: a result obtained with others is refused, as is one
of another GPU model. On GPUs exactly one task at a time may measure on each. For Dask that is a resource: start every
worker that has a GPU with ``--resources "GPU=1"`` (and ``CUDA_VISIBLE_DEVICES`` for one GPU each), and pass
``executor=client.get_executor(resources={"GPU": 1})``. Threads share one Python and one GPU: good for the simulator
and CUDA C++, where the work is done outside of Python; Triton compiles for one of them at a time.

``isolation`` and ``limits`` hold in the workers as they hold here: on a GPU, and with ``isolation="process"`` on the
simulator, each thread of a worker measures in a process of its own, and a kernel or a compiler that hangs there is
ended at its limit and costs its row (``timeout``). On the simulator the default is the worker itself, where a kernel
ends at the simulator's limits.

A task that raises costs its row (``crash``). When a worker is lost, all that was under way may be to blame, as a pool
does not say whose worker it was: it is tried again in halves, until the guilty one is found alone. One that is alone in
being lost twice is a ``crash``; no other row is lost.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.tuning import tasks
from workbench.tuning.measure import attempted
from workbench.tuning.shipping import Shipments
from workbench.tuning.tasks import Answer, Fatal, Stamp, Task, run_task

if TYPE_CHECKING:
    from workbench.tuning.attempts import Attempt, Tried
    from workbench.tuning.job import TuningJob

IN_FLIGHT = 128
"""Attempts that are claimed and handed to the executor, which queues those that its workers do not take at once."""

DEATHS = 2
"""What is lost this often, and nothing else with it, is a crash."""

POLL_SECONDS = 0.1
"""How long what is under way elsewhere is waited for, before it is asked for again."""

_RUNS: set[str] = set()
"""The tuning runs with an executor that go on in this process."""


class Workers:
    """Tries attempts with an executor's workers. A process pool that broke is replaced by a new one like it."""

    def __init__(self, job: TuningJob, executor: Executor):
        self._job, self._executor = job, executor
        self._run = uuid.uuid4().hex
        self._renewed: Executor | None = None
        self._shipments = Shipments()
        self._running: dict[Future[Answer | Fatal], Attempt] = {}
        self._lost: list[Attempt] = []
        self._suspects: deque[list[Attempt]] = deque()
        self._deaths: Counter[str] = Counter()
        _RUNS.add(self._run)

    @property
    def working(self) -> bool:
        """Whether some are not done, or are to be tried again."""
        return bool(self._running or self._lost or self._suspects)

    def room(self, hurried: bool) -> int:
        """How many more the executor is given now: none while it is found out who ended a worker."""
        return 0 if self._lost or self._suspects else IN_FLIGHT - len(self._running)

    def put(self, attempt: Attempt) -> None:
        """Hand it to the executor. Raises WorkbenchError if that broke, and is no pool that can be made anew."""
        job, shipped = self._job, self._shipments.of
        identity = attempt.identity
        task = Task(
            variant=shipped(attempt.variant),
            config=attempt.config,
            case=shipped(attempt.case),
            device=shipped(job.device),
            model=job.model,
            limits=job.options.limits,
            isolation=job.options.isolation,
            stamp=Stamp(identity.device, identity.arch, identity.toolchain, identity.source_hash),
            run=self._run,
            runs=frozenset(_RUNS),
            parent=os.getpid(),
            gpu=job.gpu,
        )
        try:
            future = self._executor.submit(run_task, task)
        except BrokenExecutor:
            self._renew()
            future = self._executor.submit(run_task, task)
        self._running[future] = attempt

    def take(self) -> Iterator[Tried]:
        """What has come back; waits a little if nothing has."""
        if not self._running:
            yield from self._try_again()
        done = wait(self._running, POLL_SECONDS, FIRST_COMPLETED).done if self._running else ()
        for future in done:
            attempt = self._running.pop(future)
            try:
                answer = future.result()
            except Exception as error:
                if _worker_lost(error):
                    self._lost.append(attempt)
                else:
                    yield self._crash(attempt, f"{type(error).__name__}: {error}")
                continue
            if isinstance(answer, Fatal):
                raise answer.reason
            yield attempt, answer.trial, answer.lost and answer.pid == os.getpid()

    def withdraw(self) -> list[Attempt]:
        """Give back what no worker has begun, and what would be tried again."""
        back = self._lost + [attempt for group in self._suspects for attempt in group]
        self._lost, self._suspects = [], deque()
        return back + [self._running.pop(future) for future in list(self._running) if future.cancel()]

    def close(self) -> list[Tried]:
        """End what is kept for the run, and cancel what can be cancelled; what has come back."""
        back = []
        for future, attempt in self._running.items():
            if not future.cancel() and future.done() and not future.exception():
                answer = future.result()
                if isinstance(answer, Answer):
                    back.append((attempt, answer.trial, answer.lost))
        if self._renewed is not None:
            self._renewed.shutdown(wait=False, cancel_futures=True)
        _RUNS.discard(self._run)
        tasks.close(self._run)
        return back

    # -- inside -------------------------------------------------------------------------------------------------

    def _try_again(self) -> Iterator[Tried]:
        """Find among those that were under way when a worker was lost the one that ends it."""
        lost, self._lost = self._lost, []
        if len(lost) == 1:
            (attempt,) = lost
            self._deaths[attempt.identity.key] += 1
            if self._deaths[attempt.identity.key] == DEATHS:
                yield self._crash(attempt, f"the worker process that tried it ended, {DEATHS} times")
            else:
                self._suspects.appendleft(lost)
        elif lost:
            middle = (len(lost) + 1) // 2
            self._suspects.extendleft((lost[middle:], lost[:middle]))
        if self._suspects:
            for attempt in self._suspects.popleft():
                self.put(attempt)

    def _crash(self, attempt: Attempt, message: str) -> Tried:
        now = time.time()
        facts = {"message": message, "started": now, "finished": now}
        return (
            attempt,
            attempted(attempt.variant, attempt.config, attempt.case, self._job.device, "crash", **facts),
            False,
        )

    def _renew(self) -> None:
        """Replace an executor that lost a worker and takes no more."""
        broken = self._executor
        if not isinstance(broken, ProcessPoolExecutor):
            raise WorkbenchError(
                f"the executor {type(broken).__name__} broke. What was finished is kept; tune again with a new one."
            )
        pool: Any = broken  # whose settings have no public names
        self._executor = self._renewed = ProcessPoolExecutor(
            pool._max_workers, pool._mp_context, pool._initializer, pool._initargs
        )
        broken.shutdown(wait=False, cancel_futures=True)


def _worker_lost(error: Exception) -> bool:
    """Whether the worker died, or its task with it; Dask says so with an error of its own."""
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ == "KilledWorker"
