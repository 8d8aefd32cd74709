"""Damaged files and images: their readers give a result or a WorkbenchError, and the process lives."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.damage import changed_bytes, changed_json

FUZZ = Path(__file__).parent / "fuzz"
SECONDS = 3


def run(seconds: float, *more: str) -> None:
    """Fuzz in a process of its own, whose end by a signal is a failure too."""
    command = [sys.executable, str(FUZZ), "--kind", "bytes", "--seconds", str(seconds), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 300, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    assert "damaged inputs: 0 faults" in done.stdout


def test_readers_of_damaged_bytes() -> None:
    run(SECONDS)


@pytest.mark.long
def test_ten_minutes_of_damaged_bytes() -> None:
    run(600)


def test_a_reader_that_raises_something_else_is_found(tmp_path: Path) -> None:
    from fuzz import readers, untrusted

    def fails(data: bytes, folder: Path) -> None:
        raise IndexError(len(data))

    kept = dict(readers.READERS)
    try:
        readers.READERS["PTX"] = readers.Reader(list, changed_bytes, fails)
        assert "IndexError: 3" in untrusted.judge("PTX", b"abc", tmp_path)
    finally:
        readers.READERS.update(kept)


@pytest.mark.parametrize("seed", range(3))
def test_changes_change(seed: int) -> None:
    draw = random.Random(seed)
    assert len({changed_bytes(b"0123456789abcdef", draw) for _ in range(50)}) > 25
    assert len({changed_json('{"a": [1, 2, {"b": "c"}], "d": null}', draw) for _ in range(50)}) > 25
