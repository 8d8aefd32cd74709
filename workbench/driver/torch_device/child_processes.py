"""Simulated GPUs for child processes: a ``sitecustomize`` on their path gives them the device of their parent."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from workbench.base.home import PACKAGE

_VARIABLE = "WORKBENCH_GPU"
CHILD_FOLDER = PACKAGE / "programs" / "child"
"""Folder of the ``sitecustomize`` that gives a child process its simulated device."""


def inherit_gpu(options: dict[str, Any]) -> None:
    """Give every process started from here on a GPU, with the ``options`` of `workbench.simulated_gpu`."""
    os.environ[_VARIABLE] = json.dumps(options)
    os.environ["PYTHONPATH"] = in_front_of(CHILD_FOLDER, "PYTHONPATH")


def inherited_gpu() -> dict[str, Any]:
    """Return the options that the parent process passed to `inherit_gpu`."""
    return json.loads(os.environ[_VARIABLE])


def reach_compile_workers() -> None:
    """Give torch.compile's compile workers the simulated GPU: they get this process's ``sys.path`` as PYTHONPATH."""
    os.environ["TORCH_CUSTOM_PYTHONPATH"] = os.pathsep.join([str(CHILD_FOLDER), *sys.path])


def in_front_of(folder: Path, variable: str) -> str:
    """Return the value of a path-list environment variable with ``folder`` in front, and nowhere else in it."""
    given = os.environ.get(variable, "").split(os.pathsep)
    return os.pathsep.join([str(folder), *(one for one in given if one not in ("", str(folder)))])
