"""A launch that the host has no memory for raises a MemoryError that names it; nothing ends the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "memory_limits.py"
WORDS = {
    "local": "1024 threads x 400000 bytes of local memory",
    "shared, checked": "131072 bytes of shared memory",
    "checks": "the checks of 16777216 bytes of global memory",
    "counts": "bytes of counts by sector",
    "cooperative": "108 blocks at once",
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[str]]:
    """By launch what came of it with more and more room, up to the first time that it ran."""
    ended = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr[-2000:]
    found: dict[str, list[str]] = {}
    for line in ended.stdout.splitlines():
        name, _, outcome = json.loads(line)
        found.setdefault(name, []).append(outcome)
    return found


def test_launches_run_or_raise_a_memory_error(outcomes: dict[str, list[str]]) -> None:
    assert len(outcomes) >= 20
    kinds = {outcome.partition(":")[0] for each in outcomes.values() for outcome in each}
    assert kinds <= {"ran", "memory", "host memory"}
    assert sum(len(each) > 1 or each[0] != "ran" for each in outcomes.values()) >= 15, "the limits were not felt"
    assert sum(each[-1] == "ran" for each in outcomes.values()) >= 5, "nothing runs under a limit"


@pytest.mark.parametrize("name", WORDS)
def test_the_error_names_what_was_asked_for(outcomes: dict[str, list[str]], name: str) -> None:
    assert any(WORDS[name] in outcome for outcome in outcomes[name])
    assert all("threads=1" in outcome for outcome in outcomes[name] if outcome.startswith("host memory"))
