"""Executors: separate processes, where one that ends loses only its own task, and the caller's own thread."""

from __future__ import annotations

import functools
import os
import queue
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as _wait
from typing import Any, TypeVar

from workbench.base.processes.fork_server import ForkServer
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

    ``server``, called with a task's arguments, returns the server that forks the process for such tasks (see `Worker`),
    or None. The servers end with the executor.
    """

    def __init__(
        self,
        imports: Sequence[str] = (),
        count: int | None = None,
        server: Callable[..., ForkServer | None] = lambda *_: None,
    ):
        count = count or len(os.sched_getaffinity(0))
        self.count = count
        self._imports, self._server = imports, server
        self._threads = ThreadPoolExecutor(count)
        self._places: list[dict[ForkServer | None, Worker]] = [{} for _ in range(count)]
        self._free: queue.LifoQueue[dict[ForkServer | None, Worker]] = queue.LifoQueue()
        self._given: dict[Future, list[Worker]] = {}
        for one in self._places:
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
            _wait((future,), _KILL_AGAIN_SECONDS)

    def _forget(self, future: Future) -> None:
        self._given.pop(future, None)

    def _call(self, given: list[Worker], function: Callable[..., _Result], *arguments: Any) -> _Result:
        place = self._free.get()
        try:
            server = self._server(*arguments)
            if server not in place:
                place[server] = Worker(self._imports, server=server)
            given.append(place[server])
            return place[server].call(function, *arguments)
        except ProcessEnded as error:
            raise BrokenExecutor(str(error)) from error
        finally:
            given.clear()  # first, so that nobody ends the next task's process
            self._free.put(place)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; with ``cancel_futures`` also those that are working."""
        if cancel_futures:
            left = [future for future in list(self._given) if not future.cancel()]
            while [future for future in left if not future.done()]:
                for server in self._servers():  # again: one may have been started since, for a call that was under way
                    server.kill()
                for worker in self._workers():
                    worker.kill()
                _wait(left, _KILL_AGAIN_SECONDS)
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for worker in self._workers():
            worker.close()
        for server in self._servers():
            server.close()

    def _workers(self) -> list[Worker]:
        return [worker for place in self._places for worker in tuple(place.values())]

    def _servers(self) -> set[ForkServer]:
        return {server for place in self._places for server in tuple(place) if server is not None}
