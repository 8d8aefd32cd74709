"""Entries below a limit: the ones unused for longest go, and nothing that another process uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.base.kept_entries import held, hold, trim_entries

HOLDS = """
import sys
from pathlib import Path
from workbench.base.kept_entries import hold
print(hold(Path(sys.argv[1])) is not None, flush=True)
input()
"""


@pytest.fixture
def entries(tmp_path: Path) -> list[Path]:
    """Five entries of 1000 bytes, two of them folders, the oldest first, and a lock."""
    (tmp_path / ".lock").touch()
    made = [tmp_path / f"entry{number}" for number in range(5)]
    for age, path in enumerate(made):
        if age % 2:
            (path / "inner").mkdir(parents=True)
            (path / "inner" / "file").write_bytes(bytes(1000))
        else:
            path.write_bytes(bytes(1000))
        os.utime(path, (1000 + age, 1000 + age))
    return made


def test_a_folder_within_its_limit_loses_nothing(entries: list[Path]):
    assert trim_entries(entries[0].parent, 5000) == 0
    assert all(path.exists() for path in entries)


def test_the_entries_unused_for_longest_go_first(entries: list[Path]):
    with held(entries[1]):
        pass
    assert trim_entries(entries[0].parent, 3500) == 2000, "9/10 of it are three entries"
    assert [path.exists() for path in entries] == [False, True, False, True, True]
    assert (entries[0].parent / ".lock").exists()


def test_nothing_in_use_goes(entries: list[Path]):
    command = [sys.executable, "-c", HOLDS, str(entries[0])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "True\n"
        with held(entries[1]):
            assert trim_entries(entries[0].parent, 0) == 3000
            assert [path.exists() for path in entries] == [True, True, False, False, False]
        other.communicate("\n")
    assert trim_entries(entries[0].parent, 0) == 2000


def test_what_is_not_there_is_not_held(tmp_path: Path):
    assert hold(tmp_path / "nothing") is None
    with held(tmp_path / "nothing"):
        pass
