"""Tuning with the workers of any `concurrent.futures.Executor`: threads, processes, a Dask cluster.

    from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        run = wb.tune("paged_attention", executor=pool)

    from dask.distributed import Client  # python -m pip install -e ".[dask]"
    with Client("tcp://scheduler:8786") as client:
        run = wb.tune("paged_attention", executor=client.get_executor())

A worker compiles, checks and measures one configuration on one case. This process alone claims rows in the store, and
stores each result as it arrives. Workers need the same workbench, compilers and GPU model as this process; a result
obtained with others is refused. Only one task at a time may measure on a GPU. For Dask that is a resource: start every
worker that has a GPU with ``--resources "GPU=1"`` (and ``CUDA_VISIBLE_DEVICES`` for one GPU each), and pass
``executor=client.get_executor(resources={"GPU": 1})``. Threads share one Python and one GPU. They suit the simulator
and CUDA C++, which work outside of Python; Triton compiles for one thread at a time.

``isolation`` and ``limits`` hold in the workers too. On a GPU, and with ``isolation="process"`` on the simulator, each
thread of a worker measures in a process of its own. A kernel or a compiler that hangs there is ended at its limit and
costs its row (``timeout``). By default the simulator runs in the worker itself, where a kernel ends at the simulator's
limits.

A task that raises costs its row (``crash``), and so does one that ends its worker; no other row is lost
(`workbench.base.processes.handing_out`).
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING

from workbench.base.processes.handing_out import HandedOut
from workbench.tuning import tasks
from workbench.tuning.measure import attempted
from workbench.tuning.shipping import Shipments
from workbench.tuning.tasks import Answer, Fatal, Stamp, Task, run_task

if TYPE_CHECKING:
    from workbench.tuning.attempts import Attempt, Tried
    from workbench.tuning.job import TuningJob

_RUNS: set[str] = set()
"""Identifiers of this process's active tuning runs that use an executor."""


class Workers:
    """An executor of attempts that uses the workers of a `concurrent.futures.Executor`."""

    def __init__(self, job: TuningJob, executor: Executor):
        self._job = job
        self._run = uuid.uuid4().hex
        self._shipments = Shipments()
        self._handed: HandedOut[Attempt, Answer | Fatal] = HandedOut(
            executor, self._submit, "tune again with a new one."
        )
        _RUNS.add(self._run)

    @property
    def working(self) -> bool:
        """True if attempts are under way or will be tried again."""
        return self._handed.working

    def room(self, hurried: bool) -> int:
        """Return how many more attempts the executor takes now."""
        return self._handed.room

    def put(self, attempt: Attempt) -> None:
        """Submit an attempt to the executor. Raises WorkbenchError if the executor broke and cannot be made anew."""
        self._handed.put(attempt)

    def take(self) -> Iterator[Tried]:
        """Yield the attempts that have come back; wait a little if there are none."""
        for attempt, answer, error in self._handed.take():
            if answer is None:
                yield self._crash(attempt, error)
            elif isinstance(answer, Fatal):
                raise answer.reason
            else:
                yield attempt, answer.trial, answer.lost and answer.pid == os.getpid()

    def withdraw(self) -> list[Attempt]:
        """Cancel and return the attempts that no worker has begun, and those that would be tried again."""
        return self._handed.withdraw()

    def close(self) -> list[Tried]:
        """End the workers' state for the run and cancel pending attempts; return those that have come back."""
        back = [
            (attempt, answer.trial, answer.lost)
            for attempt, answer in self._handed.close()
            if isinstance(answer, Answer)
        ]
        _RUNS.discard(self._run)
        tasks.close(self._run)
        return back

    def _submit(self, executor: Executor, attempt: Attempt) -> Future[Answer | Fatal]:
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
        return executor.submit(run_task, task)

    def _crash(self, attempt: Attempt, message: str) -> Tried:
        now = time.time()
        facts = {"message": message, "started": now, "finished": now}
        return (
            attempt,
            attempted(attempt.variant, attempt.config, attempt.case, self._job.device, "crash", **facts),
            False,
        )
