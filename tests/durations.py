"""How long the modules of the tests took when it was last recorded: the longest come first, as one that begins late is
waited for at the end. ``pytest --record-durations`` writes ``durations.json`` anew for what it runs."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

RECORDED = Path(__file__).with_name("durations.json")
LEAST = 2
"""Seconds; of shorter modules nothing is kept."""
LONG = 20
"""Seconds, from which on a module comes first of all."""
OPTION = "--record-durations"


WORKERS, CORES = 3, 2
"""Workers and cores of the runs that are recorded."""
LOOP_SECONDS = 0.0154
"""CPU seconds that `pace`'s loop takes where the recorded seconds hold: 0.026 where a run of 584 took 988."""


def pace() -> float:
    """Return how much longer work takes on this machine than recorded: a loop in Python, the fastest of five."""
    took = []
    for _ in range(5):
        begin, number = time.process_time(), 0
        for i in range(300_000):
            number += i * i % 7
        took.append(time.process_time() - begin)
    return min(took) / LOOP_SECONDS


def expected(recorded: dict[str, int], paths: Iterable[Path], root: Path, workers: int) -> float:
    """Return the seconds, at the recorded pace, of the modules at or below the paths with so many workers."""
    chosen = [path if path.is_absolute() else root / path for path in paths]
    seconds = sum(took for module, took in recorded.items() if {root / module, *(root / module).parents} & {*chosen})
    return seconds / WORKERS * CORES / min(max(workers, 1), len(os.sched_getaffinity(0)))


def read(path: Path = RECORDED) -> dict[str, int]:
    """Seconds by module, its path from the root; empty where nothing was recorded."""
    return json.loads(path.read_text()) if path.exists() else {}


class Recorder:
    """A plugin that adds up what each module takes, and writes it when the session ends."""

    def __init__(self, path: Path = RECORDED):
        self._path = path
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of a worker's test, too: the process that started the workers hears of it."""
        self._seconds[report.nodeid.split("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        here = pace()
        ran = {module: round(seconds / here) for module, seconds in self._seconds.items()}
        kept = {module: seconds for module, seconds in (read(self._path) | ran).items() if seconds >= LEAST}
        rows = dict(sorted(kept.items(), key=lambda row: (-row[1], row[0])))
        self._path.write_text(json.dumps(rows, indent=1) + "\n")
