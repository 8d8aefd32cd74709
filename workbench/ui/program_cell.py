"""Cells of ``%%cuda`` with a ``main``: programs that are compiled and run as by ``workbench run``."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

from IPython.core.error import UsageError

from workbench.base.terminal import say
from workbench.toolchain.source import kept

_MAIN = re.compile(r"^[ \t]*(?:auto|int)\s+main\s*\(", re.MULTILINE)


def is_program(cell: str) -> bool:
    """Return True if a cell defines ``main``."""
    return _MAIN.search(cell) is not None


def run_cell_program(cell: str, number: int, given: Any) -> None:
    """Compile and run the program of a cell in a process of its own and show its output.

    Lines are counted as in the notebook. ``given`` has the options of ``%%cuda``.

    Raises:
        UsageError: for options that programs do not take.
    """
    if given.trace or given.strided:
        option = "--trace" if given.trace else "--strided"
        raise UsageError(f"%%cuda: {option} is for a cell without a main(). A program takes --check.")
    words = [*(f"-D{text}" for text in given.macros), *(f"-I{folder}" for folder in given.include_dirs)]
    words += [*([f"-std={given.std}"] if given.std else []), *given.option]
    command = [sys.executable, "-m", "workbench.cli", "run", "--nvcc", " ".join(words)]
    command += [*(["--check"] if given.check else []), *(["--simulated"] if given.device == "sim" else [])]
    command += [*(["--arch", given.arch] if given.arch else [])]
    command += [*(["--seconds-limit", str(given.seconds_limit)] if given.seconds_limit else [])]
    # The line of the magic is the first.
    file = kept("\n" + cell, f"cell_{number}.cu")
    done = subprocess.run([*command, str(file)], capture_output=True, text=True, errors="replace", check=False)
    sys.stdout.write(done.stdout)
    if done.stderr:
        say(done.stderr.rstrip(), err=True)
    if done.returncode:
        say(f"the program ended with status {done.returncode}", err=True)
