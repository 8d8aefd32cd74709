"""``workbench run script.py``: a script as it is, with a CUDA driver under it."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.driver.simulated import simulated_driver
from workbench.errors import ArgumentError


def run_script(script: str, arguments: Sequence[str], *, model: str, force: bool) -> None:
    """Run ``script`` as ``python script`` would, after `simulated_driver`."""
    if not Path(script).is_file():
        raise ArgumentError("script", repr(script), "a Python file", "Check the path.")
    simulated_driver(model, force=force)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")
