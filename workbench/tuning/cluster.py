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

import math
import os
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.errors import ArgumentError, WorkbenchError
from workbench.trials.trial import Trial
from workbench.tuning import tasks
from workbench.tuning.attempts import POLL_SECONDS, Attempt, Attempts
from workbench.tuning.gpu_choice import current_gpu
from workbench.tuning.measure import DeviceLostError
from workbench.tuning.shipping import Shipments
from workbench.tuning.tasks import Answer, Fatal, Stamp, Task, run_task

if TYPE_CHECKING:
    from workbench.ops.variant import Config, Variant

IN_FLIGHT = 128
"""Attempts that are claimed and handed to the executor, which queues those that its workers do not take at once."""

DEATHS = 2
"""What is lost this often, and nothing else with it, is a crash."""

_RUNS: set[str] = set()
"""The tuning runs with an executor that go on in this process."""


def check_executor(executor: Executor | None) -> None:
    """Raise ArgumentError for what is no executor, such as Dask's client itself, and for a process pool that forks: the
    children of torch's threads hang, or have no GPU."""
    if executor is not None and not isinstance(executor, Executor):
        remedy = "Of Dask's client it is client.get_executor(...)."
        raise ArgumentError("executor", type(executor).__name__, "a concurrent.futures.Executor", remedy)
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ArgumentError(
            "executor",
            "a ProcessPoolExecutor that forks",
            "one that spawns",
            'Make it with mp_context=multiprocessing.get_context("spawn").',
        )


class ClusterAttempts(Attempts):
    """`Attempts` that an executor's workers make. A process pool that broke is replaced by a new one like it."""

    def __init__(self, *args: Any, executor: Executor, **options: Any):
        super().__init__(*args, **options)
        self._executor = executor
        self._run = uuid.uuid4().hex
        self._renewed: Executor | None = None
        self._shipments = Shipments()
        self._running: dict[Future[Answer | Fatal], Attempt] = {}
        self._lost: list[Attempt] = []
        self._suspects: deque[list[Attempt]] = deque()
        self._deaths: Counter[str] = Counter()

    def __enter__(self) -> ClusterAttempts:
        _RUNS.add(self._run)
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for future, attempt in self._running.items():
            # What has come back is kept, whatever the reason for leaving.
            if not future.cancel() and future.done() and not future.exception():
                answer = future.result()
                if isinstance(answer, Answer) and not self._unlike(attempt, answer):
                    self._finish(attempt, replace(answer.trial, device=attempt.identity.device))
        if self._renewed is not None:
            self._renewed.shutdown(wait=False, cancel_futures=True)
        _RUNS.discard(self._run)
        tasks.close(self._run)

    def run(self, variant: Variant, configs: Iterable[Config], deadline: float = math.inf) -> bool:
        """Try configurations on every case; False if ``deadline`` (time.monotonic) came before all were done."""
        waiting = deque(self._attempt(variant, config, case) for config in configs for case in self.cases)
        busy: list[Attempt] = []
        whole = True
        while waiting or busy or self._lost or self._suspects or self._running:
            if self._stopping or time.monotonic() >= deadline:
                whole = not (self._withdraw() or waiting or busy) and whole
                waiting.clear()
                busy.clear()
            elif self._lost or self._suspects:
                if not self._running:
                    self._try_again()
            elif room := IN_FLIGHT - len(self._running):
                mine: deque[Attempt] = deque()
                self._claim([waiting.popleft() for _ in range(min(room, len(waiting)))], mine, busy)
                self._submit(mine)
                if not self._running and not waiting and busy:
                    time.sleep(POLL_SECONDS)
                    waiting.extend(busy)
                    busy.clear()
            self._collect()
        if not whole:
            self._heed_stop()
        return whole

    # -- inside -------------------------------------------------------------------------------------------------

    def _compile_ahead(self, attempt: Attempt) -> None:
        """Nothing: the worker compiles."""

    def _submit(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            task = Task(
                variant=self._shipments.of(attempt.variant),
                config=attempt.config,
                case=self._shipments.of(attempt.case),
                device=self._shipments.of(self._device),
                model=self._model,
                limits=self._limits,
                isolation=self._isolation,
                run=self._run,
                runs=frozenset(_RUNS),
                parent=os.getpid(),
                gpu=current_gpu(self._device),
            )
            try:
                future = self._executor.submit(run_task, task)
            except BrokenExecutor:
                self._renew()
                future = self._executor.submit(run_task, task)
            self._running[future] = attempt

    def _try_again(self) -> None:
        """Find among those that were under way when a worker was lost the one that ends it."""
        if len(self._lost) == 1:
            (attempt,) = self._lost
            self._deaths[attempt.identity.key] += 1
            if self._deaths[attempt.identity.key] == DEATHS:
                self._finish(attempt, self._crash(attempt, f"the worker process that tried it ended, {DEATHS} times"))
            else:
                self._suspects.appendleft(self._lost)
        elif self._lost:
            middle = (len(self._lost) + 1) // 2
            halves = self._lost[:middle], self._lost[middle:]
            self._suspects.extendleft(half for half in reversed(halves) if half)
        self._lost = []
        if self._suspects:
            self._submit(self._suspects.popleft())

    def _collect(self) -> None:
        """Store what has come back; wait a little if nothing has."""
        if not self._running:
            return
        done, _ = wait(self._running, POLL_SECONDS, FIRST_COMPLETED)
        for future in done:
            attempt = self._running.pop(future)
            try:
                answer = future.result()
            except Exception as error:
                if _worker_lost(error):
                    self._lost.append(attempt)
                else:
                    self._finish(attempt, self._crash(attempt, f"{type(error).__name__}: {error}"))
            else:
                self._accept(attempt, answer)

    def _accept(self, attempt: Attempt, answer: Answer | Fatal) -> None:
        if isinstance(answer, Fatal):
            raise type(answer.reason)(f"a worker of the executor can try nothing: {answer.reason}")
        if difference := self._unlike(attempt, answer):
            raise WorkbenchError(
                f"a worker of the executor is not like this process, so its result was not kept: {difference}. "
                "Give every worker the same workbench, compilers and GPU model."
            )
        trial = replace(answer.trial, device=attempt.identity.device)
        if answer.lost and answer.pid == os.getpid():
            self._store.finish(attempt.identity.key, trial)
            raise DeviceLostError(trial)
        self._finish(attempt, trial)

    @staticmethod
    def _unlike(attempt: Attempt, answer: Answer) -> str:
        identity = attempt.identity
        here = Stamp(identity.device, identity.arch, identity.toolchain, identity.source_hash)
        return here.difference(answer.stamp)

    def _crash(self, attempt: Attempt, message: str) -> Trial:
        identity, now = attempt.identity, time.time()
        return Trial(
            op=identity.op,
            variant=identity.variant,
            language=identity.language,
            case=identity.case_name,
            config=dict(attempt.config),
            device=identity.device,
            arch=identity.arch,
            outcome="crash",
            message=message,
            started=now,
            finished=now,
        )

    def _withdraw(self) -> bool:
        """Give back what no worker has begun, and what would be tried again; whether there was any."""
        back = self._lost + [attempt for group in self._suspects for attempt in group]
        self._lost, self._suspects = [], deque()
        back += [self._running.pop(future) for future in list(self._running) if future.cancel()]
        self._store.release(*(attempt.identity.key for attempt in back))
        return bool(back)

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
