"""Work handed to the workers of any `concurrent.futures.Executor`, some of which may end because of it.

When a worker is lost, any item under way may be to blame, because a pool does not tell which worker had which item. The
items are tried again in halves until the guilty one is alone. An item that is lost alone twice has ended its worker; no
other item is lost.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from typing import Any, Generic, TypeVar

from workbench.base.processes.executor import OneWorker
from workbench.errors import ArgumentError, WorkbenchError

IN_FLIGHT = 128
"""Largest number of items handed to the executor, which queues those that its workers do not take at once."""

DEATHS = 2
"""Number of times that an item must be lost alone to be blamed for the end of its worker."""

POLL_SECONDS = 0.1
"""Seconds to wait for items under way elsewhere before asking again."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def check_executor(executor: Executor | None) -> None:
    """Raise ArgumentError for an object that is not an executor, such as Dask's client, and for a pool that forks.

    Children forked from a process with torch's threads hang, or have no GPU.
    """
    if executor is not None and not isinstance(executor, Executor):
        remedy = "Of Dask's client it is client.get_executor(...)."
        raise ArgumentError("executor", type(executor).__name__, "a concurrent.futures.Executor", remedy)
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        remedy = 'Make it with mp_context=multiprocessing.get_context("spawn").'
        raise ArgumentError("executor", "a ProcessPoolExecutor that forks", "one that spawns", remedy)


class HandedOut(Generic[Item, Answer]):
    """Items that an executor's workers try. A process pool that broke is replaced by a new one like it.

    ``submit`` gives one item to an executor, which holds at most ``most`` of them. ``again`` ends the error message for
    another kind of executor that broke.
    """

    def __init__(
        self,
        executor: Executor,
        submit: Callable[[Executor, Item], Future[Answer]],
        again: str = "",
        most: int = IN_FLIGHT,
    ):
        self._executor, self._submit, self._again, self._most = executor, submit, again, most
        self._renewed: Executor | None = None
        self._running: dict[Future[Answer], Item] = {}
        self._lost: list[Item] = []
        self._suspects: deque[list[Item]] = deque()
        self._deaths: Counter[int] = Counter()

    @property
    def working(self) -> bool:
        """True if some items are not done or will be tried again."""
        return bool(self._running or self._lost or self._suspects)

    @property
    def room(self) -> int:
        """Number of further items that the executor takes now; 0 during the search for the item that ended a worker."""
        return 0 if self._lost or self._suspects else self._most - len(self._running)

    def put(self, item: Item) -> None:
        """Hand an item to the executor. Raises WorkbenchError if the executor broke and cannot be replaced."""
        try:
            future = self._submit(self._executor, item)
        except BrokenExecutor:
            self._renew()
            future = self._submit(self._executor, item)
        self._running[future] = item

    def take(self) -> Iterator[tuple[Item, Answer | None, str]]:
        """Yield each item that came back, its answer or None, and the reason for None; wait a little if none has."""
        if not self._running:
            yield from self._try_again()
        if isinstance(self._executor, OneWorker):
            self._executor.work()
        done = wait(self._running, POLL_SECONDS, FIRST_COMPLETED).done if self._running else ()
        for future in done:
            item = self._running.pop(future)
            try:
                answer = future.result()
            except Exception as error:
                if _worker_lost(error):
                    self._lost.append(item)
                else:
                    yield item, None, f"{type(error).__name__}: {error}"
                continue
            yield item, answer, ""

    def withdraw(self) -> list[Item]:
        """Cancel and return the items that no worker has begun, and those that would be tried again."""
        back = self._lost + [item for group in self._suspects for item in group]
        self._lost, self._suspects = [], deque()
        return back + [self._running.pop(future) for future in list(self._running) if future.cancel()]

    def close(self) -> list[tuple[Item, Answer]]:
        """Cancel pending items and end a pool that was made here; return the items that came back, with answers."""
        back = []
        for future, item in self._running.items():
            if not future.cancel() and future.done() and not future.exception():
                back.append((item, future.result()))
        if self._renewed is not None:
            self._renewed.shutdown(wait=False, cancel_futures=True)
        return back

    def _try_again(self) -> Iterator[tuple[Item, None, str]]:
        """Search the items under way when a worker was lost for the one that ends it; yield it once it is found."""
        lost, self._lost = self._lost, []
        if len(lost) == 1:
            (item,) = lost
            self._deaths[id(item)] += 1
            if self._deaths[id(item)] == DEATHS:
                yield item, None, f"the worker process that tried it ended, {DEATHS} times"
            else:
                self._suspects.appendleft(lost)
        elif lost:
            middle = (len(lost) + 1) // 2
            self._suspects.extendleft((lost[middle:], lost[:middle]))
        if self._suspects:
            for item in self._suspects.popleft():
                self.put(item)

    def _renew(self) -> None:
        """Replace an executor that lost a worker and takes no more."""
        broken = self._executor
        if not isinstance(broken, ProcessPoolExecutor):
            raise WorkbenchError(
                f"the executor {type(broken).__name__} broke. What was finished is kept; {self._again}"
            )
        pool: Any = broken  # its settings have no public names
        self._executor = self._renewed = ProcessPoolExecutor(
            pool._max_workers, pool._mp_context, pool._initializer, pool._initargs
        )
        broken.shutdown(wait=False, cancel_futures=True)


def _worker_lost(error: Exception) -> bool:
    """Return True if the error means that the worker, and its task with it, was lost; Dask has an error of its own."""
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ == "KilledWorker"
