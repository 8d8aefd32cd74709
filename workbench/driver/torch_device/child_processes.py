"""Processes that a process with a simulated GPU starts: they get one, too, by a ``sitecustomize`` on their path."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import workbench

_VARIABLE = "WORKBENCH_GPU"
CHILD_FOLDER = Path(workbench.__file__).resolve().parent / "programs" / "child"
"""The folder of the ``sitecustomize`` that joins a process."""


def inherit_gpu(options: dict[str, Any]) -> None:
    """Give the processes that this one starts from here on a GPU, as `workbench.simulated_gpu` has it with options."""
    os.environ[_VARIABLE] = json.dumps(options)
    os.environ["PYTHONPATH"] = in_front_of(CHILD_FOLDER, "PYTHONPATH")


def inherited_gpu() -> dict[str, Any]:
    """Return the options of the process that started this one."""
    return json.loads(os.environ[_VARIABLE])


def reach_compile_workers() -> None:
    """Reach the processes in which torch.compile compiles: they get this one's ``sys.path`` as PYTHONPATH."""
    os.environ["TORCH_CUSTOM_PYTHONPATH"] = os.pathsep.join([str(CHILD_FOLDER), *sys.path])


def in_front_of(folder: Path, variable: str) -> str:
    """Return the value of an environment variable of folders, with one in front."""
    given = os.environ.get(variable, "").split(os.pathsep)
    return os.pathsep.join([str(folder), *(one for one in given if one not in ("", str(folder)))])
