"""Tasks of Harbor: a folder for each problem of a server, whose verifier asks the server.

::

    python -m workbench.service.adapters.harbor_task tasks
    harbor run --path tasks --agent ...

The agent leaves its candidate as ``/app/candidate.py`` or ``/app/candidate.cu``. The verifier takes the server's
address and token, ``WORKBENCH_SERVICE_URL`` and ``WORKBENCH_SERVICE_TOKEN``, from the environment of ``harbor run``;
the agent gets neither.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import ArgumentError
from workbench.service import client
from workbench.service.client import ServiceClient

IMAGE = "python:3.12-slim"
"""Image of the agent's container; the verifier needs Python in it, and nothing else."""

_TASK = """schema_version = "1.4"

[metadata]
problem = "{problem}"

[agent]
timeout_sec = {seconds}

[verifier]
timeout_sec = {seconds}

[verifier.env]
WORKBENCH_SERVICE_URL = "${{WORKBENCH_SERVICE_URL}}"
WORKBENCH_SERVICE_TOKEN = "${{WORKBENCH_SERVICE_TOKEN}}"

[environment]
build_timeout_sec = 600.0
"""
_TEST = """#!/bin/bash
candidate=/app/candidate.py
[ -f /app/candidate.cu ] && candidate=/app/candidate.cu
exec python3 /tests/client.py {problem} "$candidate" --reward /logs/verifier/reward.txt
"""
_INSTRUCTION = "{statement}\n\nWrite your kernel to {files}. It is judged once, when you are done.\n"
_FILES = {"python": "/app/candidate.py (Python, Triton)", "cuda": "/app/candidate.cu (CUDA C++)"}


def write_task(folder: Path, problem: Mapping[str, Any], seconds: float = 900.0, image: str = IMAGE) -> Path:
    """Write a task for a problem as the server lists it, with limits in seconds; return the task's folder.

    Raises ArgumentError if it is there already.
    """
    task = folder / problem["id"].replace("/", "-")
    if task.exists():
        raise ArgumentError("folder", str(task), "a folder without this task", "Name another one.")
    for name in ("environment", "tests"):
        (task / name).mkdir(parents=True)
    statement = problem["statement"].strip() or f"Write a GPU kernel for the problem {problem['id']}."
    files = " or ".join(_FILES[one] for one in problem["languages"])
    (task / "task.toml").write_text(_TASK.format(problem=problem["id"], seconds=seconds))
    (task / "instruction.md").write_text(_INSTRUCTION.format(statement=statement, files=files))
    (task / "environment" / "Dockerfile").write_text(f"FROM {image}\n\nWORKDIR /app\n")
    (task / "tests" / "client.py").write_text(Path(client.__file__).read_text())
    test = task / "tests" / "test.sh"
    test.write_text(_TEST.format(problem=shlex.quote(problem["id"])))
    test.chmod(0o755)
    return task


def main() -> None:
    """Write a task for each problem of the server."""
    parser = argparse.ArgumentParser(description="Write a Harbor task for each problem of a server.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for one in ServiceClient().problems():
        print(write_task(folder, one))


if __name__ == "__main__":
    main()
