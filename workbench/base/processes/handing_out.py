"""Work handed to the workers of any `concurrent.futures.Executor`, some of which may die of it.

When a worker is lost, all that was under way may be to blame, as a pool does not say whose worker it was: it is tried
again in halves, until the guilty one is found alone. One that is alone in being lost twice has ended its worker;
nothing else is lost.
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
"""Items that are handed to the executor, which queues those that its workers do not take at once."""

DEATHS = 2
"""Losses after which an item that is lost alone has ended its worker."""

POLL_SECONDS = 0.1
"""How long what is under way elsewhere is waited for, before it is asked for again."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def check_executor(executor: Executor | None) -> None:
    """Raise ArgumentError for what is no executor, such as Dask's client itself, and for a process pool that forks.

    The forked children of torch's threads hang, or have no GPU.
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

    ``submit`` gives one item to an executor, which is given ``most`` at a time; ``again`` is how the error for another
    executor that broke ends.
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
        """Return whether some are not done, or are to be tried again."""
        return bool(self._running or self._lost or self._suspects)

    @property
    def room(self) -> int:
        """How many more the executor is given now: none while it is found out who ended a worker."""
        return 0 if self._lost or self._suspects else self._most - len(self._running)

    def put(self, item: Item) -> None:
        """Hand it to the executor. Raises WorkbenchError if that broke, and is no pool that can be made anew."""
        try:
            future = self._submit(self._executor, item)
        except BrokenExecutor:
            self._renew()
            future = self._submit(self._executor, item)
        self._running[future] = item

    def take(self) -> Iterator[tuple[Item, Answer | None, str]]:
        """Yield what has come back, with its answer, or None and why there is none; wait a little if nothing has."""
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
        """Give back what no worker has begun, and what would be tried again."""
        back = self._lost + [item for group in self._suspects for item in group]
        self._lost, self._suspects = [], deque()
        return back + [self._running.pop(future) for future in list(self._running) if future.cancel()]

    def close(self) -> list[tuple[Item, Answer]]:
        """Cancel what can be cancelled, and end a pool that was made here; return what has come back."""
        back = []
        for future, item in self._running.items():
            if not future.cancel() and future.done() and not future.exception():
                back.append((item, future.result()))
        if self._renewed is not None:
            self._renewed.shutdown(wait=False, cancel_futures=True)
        return back

    def _try_again(self) -> Iterator[tuple[Item, None, str]]:
        """Find among those that were under way when a worker was lost the one that ends it."""
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
        pool: Any = broken  # whose settings have no public names
        self._executor = self._renewed = ProcessPoolExecutor(
            pool._max_workers, pool._mp_context, pool._initializer, pool._initargs
        )
        broken.shutdown(wait=False, cancel_futures=True)


def _worker_lost(error: Exception) -> bool:
    """Return whether the worker died, or its task with it; Dask says so with an error of its own."""
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ == "KilledWorker"
