"""What tries a run's attempts: the thread that tunes, or the workers of any `concurrent.futures.Executor`: threads,
processes, a Dask cluster. Either way an attempt is tried by `workbench.tuning.tasks.tried`.

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

from workbench.base.processes.executor import OneWorker
from workbench.base.processes.handing_out import HandedOut
from workbench.tuning import tasks
from workbench.tuning.attempt import Attempt, Setting, Tried
from workbench.tuning.gpu_choice import use_gpu
from workbench.tuning.isolation import InProcess, InWorker, measurer
from workbench.tuning.measure import Compiled, attempted, to_compile
from workbench.tuning.shipping import Shipments
from workbench.tuning.tasks import Answer, Fatal, Stamp, Task, run_task, tried

COMPILE_THREADS = 2
LOOK_AHEAD = 6
"""Attempts that are claimed, and being compiled, while another is measured."""

_RUNS: set[str] = set()
"""The tuning runs with an executor that go on in this process."""


class _Handed:
    """Attempts handed to an executor, as `workbench.tuning.attempt.Executor` wants them."""

    _handed: HandedOut[Attempt, Answer | Fatal]

    def __init__(self, setting: Setting):
        self._setting = setting

    @property
    def working(self) -> bool:
        """True while some are not done, or are to be tried again."""
        return self._handed.working

    def room(self, hurried: bool) -> int:
        """Return how many more the executor is given now."""
        return self._handed.room

    def put(self, attempt: Attempt) -> None:
        """Hand it to the executor. Raises WorkbenchError if that broke, and is no pool that can be made anew."""
        self._handed.put(attempt)

    def take(self) -> Iterator[Tried]:
        """Yield what has come back; wait a little if nothing has."""
        for attempt, answer, error in self._handed.take():
            if answer is None:
                yield self._crash(attempt, error)
            elif isinstance(answer, Fatal):
                raise answer.reason
            else:
                yield attempt, answer.trial, answer.lost and answer.pid == os.getpid()

    def withdraw(self) -> list[Attempt]:
        """Give back what no worker has begun, and what would be tried again."""
        return self._handed.withdraw()

    def close(self) -> list[Tried]:
        """End what is kept, and cancel what can be cancelled; return what has come back."""
        return [
            (attempt, answer.trial, answer.lost)
            for attempt, answer in self._handed.close()
            if isinstance(answer, Answer)
        ]

    def _crash(self, attempt: Attempt, message: str) -> Tried:
        now = time.time()
        facts = {"message": message, "started": now, "finished": now}
        device = self._setting.device
        return attempt, attempted(attempt.variant, attempt.config, attempt.case, device, "crash", **facts), False


class Here(_Handed):
    """Tries attempts one at a time, in the order in which they come, while those that follow are compiled in threads.

    It is the executor with one worker, the thread that asks. ``begin`` is told the key of each that is about to be
    measured.
    """

    def __init__(self, setting: Setting, begin: Callable[[str], object]):
        super().__init__(setting)
        self._begin = begin
        self._handed = HandedOut(OneWorker(), self._submit, most=LOOK_AHEAD)
        self._pool = ThreadPoolExecutor(COMPILE_THREADS, "compile", use_gpu, (setting.gpu,))
        # Triton's compiler is not made for several threads.
        self._triton_pool = ThreadPoolExecutor(1, "compile-triton", use_gpu, (setting.gpu,))

    @functools.cached_property
    def measurer(self) -> InProcess | InWorker:
        """What compiles and measures; made when it is first asked for."""
        return measurer(self._setting)

    def room(self, hurried: bool) -> int:
        """Return how many more it takes now, ``hurried`` only the one that it measures at once."""
        return self._handed.room - (LOOK_AHEAD - 1 if hurried else 0)

    def close(self) -> list[Tried]:
        """End. Whatever is being compiled ends by itself, and its result is in the compiler's cache."""
        for pool in (self._pool, self._triton_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        if "measurer" in vars(self):
            self.measurer.close()
        return super().close()

    def _submit(self, executor: Executor, attempt: Attempt) -> Future[Answer | Fatal]:
        problem = to_compile(attempt.variant, attempt.config, attempt.case, self._setting.device)
        pool = self._triton_pool if attempt.variant.language == "triton" else self._pool
        compiling = None
        if problem is not None:
            compiling = pool.submit(self.measurer.compile, attempt.variant, attempt.config, problem)
        return executor.submit(self._try, attempt, compiling)

    def _try(self, attempt: Attempt, compiling: Future[Compiled] | None) -> Answer | Fatal:
        self._begin(attempt.identity.key)
        given = (attempt.variant, attempt.config, attempt.case, self._setting.device)
        return tried(self.measurer, *given, compiling)


class Workers(_Handed):
    """Tries attempts with an executor's workers."""

    def __init__(self, setting: Setting, executor: Executor):
        super().__init__(setting)
        self._run = uuid.uuid4().hex
        self._shipments = Shipments()
        self._handed = HandedOut(executor, self._submit, "tune again with a new one.")
        _RUNS.add(self._run)

    def close(self) -> list[Tried]:
        """End what is kept for the run, and cancel what can be cancelled; return what has come back."""
        back = super().close()
        _RUNS.discard(self._run)
        tasks.close(self._run)
        return back

    def _submit(self, executor: Executor, attempt: Attempt) -> Future[Answer | Fatal]:
        setting, shipped = self._setting, self._shipments.of
        identity = attempt.identity
        task = Task(
            variant=shipped(attempt.variant),
            config=attempt.config,
            case=shipped(attempt.case),
            device=shipped(setting.device),
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
