"""How long the modules of the tests took when it was last recorded: the longest come first, as one that begins late is
waited for at the end. ``pytest --record-durations`` writes ``durations.json`` anew for what it runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

RECORDED = Path(__file__).with_name("durations.json")
LEAST = 2
"""Seconds; of shorter modules nothing is kept."""
LONG = 20
"""Seconds, from which on a module comes first of all."""
OPTION = "--record-durations"


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
        ran = {module: round(seconds) for module, seconds in self._seconds.items()}
        kept = {module: seconds for module, seconds in (read(self._path) | ran).items() if seconds >= LEAST}
        rows = dict(sorted(kept.items(), key=lambda row: (-row[1], row[0])))
        self._path.write_text(json.dumps(rows, indent=1) + "\n")
