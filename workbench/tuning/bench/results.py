"""Common parts of the benchmarks: timing of runs in turn, and results as records.

Runs take turns, so that a busy moment of the computer meets all of them.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from workbench.base.documents import document
from workbench.base.home import home

Name = TypeVar("Name")


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the time of one call, by a clock in seconds."""
    start = clock()
    work()
    return clock() - start


def in_turn(
    runs: Mapping[Name, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[Name, tuple[float, ...]]:
    """Return the seconds of each run in each of ``rounds`` rounds; every run has a turn in each round."""
    taken = [[timed(run, clock) for run in runs.values()] for _ in range(rounds)]
    return dict(zip(runs, zip(*taken, strict=True), strict=True))


def result_path(benchmark: str, device: str) -> Path:
    """Return the path of a new result: in the folder ``bench`` of the user's home, named by device, day and time."""
    from workbench.ops.tuned import slug

    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return home() / "bench" / f"{benchmark}-{slug(device)}-{now}.json"


class Benchmark:
    """Result of a benchmark, a dataclass: ``str()`` is its table, ``kind`` names its JSON document."""

    kind: ClassVar[str]

    def record(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    def to_json(self) -> str:
        """Return all figures as JSON; see `workbench.base.documents`."""
        return document(self.kind, **self.record())
