"""An executor with separate processes: if one ends, only its own task is lost."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from workbench.base.processes.process import ProcessEnded
from workbench.base.processes.worker import Worker

_Result = TypeVar("_Result")


class OwnProcesses(Executor):
    """An executor with one process for each core that this process may use.

    ``imports`` are modules that each process imports as it starts. A task whose process ends raises BrokenExecutor; the
    next task has a new process. A script needs no ``if __name__ == "__main__"``.
    """

    def __init__(self, imports: Sequence[str] = ()):
        count = len(os.sched_getaffinity(0))
        self._threads = ThreadPoolExecutor(count)
        self._free: queue.LifoQueue[Worker] = queue.LifoQueue()
        self._workers = [Worker(imports) for _ in range(count)]
        for one in self._workers:
            self._free.put(one)

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Call ``fn`` with arguments that can be pickled, in one of the processes."""
        return self._threads.submit(self._call, fn, *args, **kwargs)

    def _call(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        worker = self._free.get()
        try:
            return worker.call(function, *arguments)
        except ProcessEnded as error:
            raise BrokenExecutor(str(error)) from error
        finally:
            self._free.put(worker)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; with ``cancel_futures`` also those that are working."""
        if cancel_futures:
            for one in self._workers:
                one.close()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for one in self._workers:
            one.close()
