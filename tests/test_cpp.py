"""The C++ sources are formatted as .clang-format says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent
SOURCES = [
    path
    for folder in ("workbench/ptx/core", "workbench/driver/library", "workbench/driver/host_libraries")
    for path in sorted((CHECKOUT / folder).rglob("*.[ch]pp"))
]


def test_sources_are_formatted() -> None:
    program = shutil.which("clang-format", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip('no clang-format of the environment: python -m pip install -e ".[test]"')
    command = [program, "--dry-run", "-Werror", "--ferror-limit=3", *map(str, SOURCES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run: pre-commit run clang-format --all-files\n{done.stderr[-2000:]}"
    assert len(SOURCES) > 90
