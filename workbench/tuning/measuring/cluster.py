"""Executors of a run's attempts: the thread that tunes, or the workers of any `concurrent.futures.Executor`.

Such workers are threads, processes or a Dask cluster's. A measurer of
`workbench.tuning.measuring.isolation` tries each attempt.

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

import functools
import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace

from workbench.base.processes.executor import OneWorker
from workbench.base.processes.handing_out import HandedOut
from workbench.tuning.measuring import tasks
from workbench.tuning.measuring.attempt import Attempt, Setting
from workbench.tuning.measuring.gpu_choice import use_gpu
from workbench.tuning.measuring.isolation import InWorker, measurer
from workbench.tuning.measuring.measure import InProcess
from workbench.tuning.measuring.shipping import SentAttempt, Shipments
from workbench.tuning.measuring.tasks import Fatal, Stamp, Task, TaskAnswer, run_task

COMPILE_THREADS = 2
LOOK_AHEAD = 6
"""Largest number of attempts held at a time: one is measured while the others are compiled."""

_RUNS: set[str] = set()
"""Identifiers of this process's active tuning runs that use an executor."""


class _Handed:
    """Attempts handed to an executor; fulfils `workbench.tuning.measuring.attempt.Executor`."""

    _handed: HandedOut[Attempt, TaskAnswer | Fatal]

    def __init__(self, setting: Setting):
        self._setting = setting

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

    def take(self) -> Iterator[Attempt]:
        """Yield the attempts that have come back; wait a little if there are none."""
        for attempt, answer, error in self._handed.take():
            if answer is None:
                now = time.time()
                ended = attempt.ending("crash", error)
                yield replace(ended, trial=replace(ended.trial, started=now, finished=now))
            elif isinstance(answer, Fatal):
                raise answer.reason
            else:
                yield answer.of(attempt)

    def withdraw(self) -> list[Attempt]:
        """Cancel and return the attempts that no worker has begun, and those that would be tried again."""
        return self._handed.withdraw()

    def close(self) -> list[Attempt]:
        """Cancel pending attempts; return those that have come back."""
        return [answer.of(attempt) for attempt, answer in self._handed.close() if isinstance(answer, TaskAnswer)]


class Here(_Handed):
    """Executor that tries attempts one at a time, in order, while the next ones are compiled in threads.

    Its one worker is the thread that asks. ``begin`` is called with the key of each attempt that is about to be
    measured.
    """

    def __init__(self, setting: Setting, begin: Callable[[str], object]):
        super().__init__(setting)
        self._begin = begin
        self._handed = HandedOut(OneWorker(), self._submit, most=LOOK_AHEAD)
        self._pool = ThreadPoolExecutor(COMPILE_THREADS, "compile", use_gpu, (setting.gpu,))
        # Triton's compiler is not safe for several threads.
        self._triton_pool = ThreadPoolExecutor(1, "compile-triton", use_gpu, (setting.gpu,))

    @functools.cached_property
    def measurer(self) -> InProcess | InWorker:
        """Measurer of this run, made on first use."""
        return measurer(self._setting)

    def room(self, hurried: bool) -> int:
        """Return how many more attempts the executor takes now; if ``hurried``, one that is measured at once."""
        return self._handed.room - (LOOK_AHEAD - 1 if hurried else 0)

    def close(self) -> list[Attempt]:
        """End the measurer. Compilations under way finish by themselves; the compiler's cache keeps their results."""
        for pool in (self._pool, self._triton_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        if "measurer" in vars(self):
            self.measurer.close()
        return super().close()

    def _submit(self, executor: Executor, attempt: Attempt) -> Future[TaskAnswer | Fatal]:
        """Ask the rules at once, compile in a thread, and measure when it is the attempt's turn."""
        legal = self.measurer.legal(attempt)
        triton = attempt.variant.language == "triton"
        compiling = None
        if not legal.ended and not (triton and not self._setting.device.counts):
            # On a GPU Triton's own JIT compiles, in the measurement.
            pool = self._triton_pool if triton else self._pool
            compiling = pool.submit(self.measurer.compiled, legal)
        return executor.submit(self._try, legal, compiling)

    def _try(self, attempt: Attempt, compiling: Future[Attempt] | None) -> TaskAnswer | Fatal:
        self._begin(attempt.key)
        tried = self.measurer.measured(attempt if compiling is None else compiling.result())
        return TaskAnswer(tried.trial, tried.lost)


class Workers(_Handed):
    """An executor of attempts that uses the workers of a `concurrent.futures.Executor`."""

    def __init__(self, setting: Setting, executor: Executor):
        super().__init__(setting)
        self._run = uuid.uuid4().hex
        self._shipments = Shipments()
        self._handed = HandedOut(executor, self._submit, "tune again with a new one.")
        _RUNS.add(self._run)

    def close(self) -> list[Attempt]:
        """End the workers' state for the run and cancel pending attempts; return those that have come back."""
        back = super().close()
        _RUNS.discard(self._run)
        tasks.close(self._run)
        return back

    def _submit(self, executor: Executor, attempt: Attempt) -> Future[TaskAnswer | Fatal]:
        setting, identity = self._setting, attempt.identity
        assert identity is not None
        task = Task(
            attempt=SentAttempt.of(attempt, self._shipments),
            model=setting.model,
            limits=setting.limits,
            isolation=setting.isolation,
            stamp=Stamp(identity.device, identity.arch, identity.toolchain, identity.source_hash),
            run=self._run,
            runs=frozenset(_RUNS),
            parent=os.getpid(),
            gpu=setting.gpu,
        )
        return executor.submit(run_task, task)
