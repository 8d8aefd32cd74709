"""Executors: separate processes, where one that ends loses only its own task, and the caller's own thread."""

from __future__ import annotations

import functools
import os
import queue
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from workbench.base.processes.process import ProcessEnded
from workbench.base.processes.worker import Worker

_Result = TypeVar("_Result")

_KILL_AGAIN_SECONDS = 0.05


class OneWorker(Executor):
    """An executor whose only worker is its caller: `work` runs the next task, and raises what the task raises."""

    def __init__(self) -> None:
        self._tasks: deque[tuple[Future, Callable[[], Any]]] = deque()

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Keep a task."""
        future: Future[_Result] = Future()
        self._tasks.append((future, functools.partial(fn, *args, **kwargs)))
        return future

    def work(self) -> None:
        """Run the next task that has not been cancelled, if there is one."""
        while self._tasks:
            future, task = self._tasks.popleft()
            if future.set_running_or_notify_cancel():
                future.set_result(task())
                return


class OwnProcesses(Executor):
    """An executor with ``count`` processes, by default one for each core that this process may use.

    ``imports`` are modules that each process imports as it starts. A task whose process ends raises BrokenExecutor; the
    next task has a new process. A script needs no ``if __name__ == "__main__"``.
    """

    def __init__(self, imports: Sequence[str] = (), count: int | None = None):
        count = count or len(os.sched_getaffinity(0))
        self.count = count
        self._threads = ThreadPoolExecutor(count)
        self._free: queue.LifoQueue[Worker] = queue.LifoQueue()
        self._workers = [Worker(imports) for _ in range(count)]
        self._given: dict[Future, list[Worker]] = {}
        for one in self._workers:
            self._free.put(one)

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Call ``fn`` with arguments that can be pickled, in one of the processes."""
        given: list[Worker] = []
        future = self._threads.submit(self._call, given, fn, *args, **kwargs)
        self._given[future] = given
        future.add_done_callback(self._forget)
        return future

    def end(self, future: Future) -> None:
        """End the process that works on a task, which then raises BrokenExecutor; a task that waits is cancelled."""
        while not (future.cancel() or future.done()):  # again: a process may not have started before
            for worker in tuple(self._given.get(future, ())):
                worker.kill()
            wait((future,), _KILL_AGAIN_SECONDS)

    def _forget(self, future: Future) -> None:
        self._given.pop(future, None)

    def _call(self, given: list[Worker], function: Callable[..., _Result], *arguments: Any) -> _Result:
        worker = self._free.get()
        given.append(worker)
        try:
            return worker.call(function, *arguments)
        except ProcessEnded as error:
            raise BrokenExecutor(str(error)) from error
        finally:
            given.clear()  # first, so that nobody ends the next task's process
            self._free.put(worker)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; with ``cancel_futures`` also those that are working."""
        if cancel_futures:
            for future in list(self._given):
                self.end(future)
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for one in self._workers:
            one.close()
