"""What every benchmark does: time its runs in turn, so that a busier moment of the computer meets all of them, and give
its figures for a record."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from workbench.base.documents import document

Name = TypeVar("Name")


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """How long one call takes, by a clock in seconds."""
    start = clock()
    work()
    return clock() - start


def in_turn(
    runs: Mapping[Name, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[Name, tuple[float, ...]]:
    """The seconds of each run in each of so many rounds, in which all have their turn."""
    taken = [[timed(run, clock) for run in runs.values()] for _ in range(rounds)]
    return dict(zip(runs, zip(*taken, strict=True), strict=True))


class Benchmark:
    """The result of a benchmark, a dataclass: ``str()`` is its table, ``kind`` that of its document."""

    kind: ClassVar[str]

    def record(self) -> dict[str, Any]:
        """All figures as plain values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    def to_json(self) -> str:
        """All figures as JSON; see `workbench.base.documents`."""
        return document(self.kind, **self.record())
