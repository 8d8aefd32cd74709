"""A Python that has imported torch and others already: a process of it is a fork, and starts seconds of CPU sooner.

`python` is the command; words as after ``python`` follow it. The process has the arguments, the environment, the folder
and the standard streams of its caller, a fresh ``__main__``, and ends as a process of its own does: a signal for the
command reaches it, and it dies with the command. It is not for tests of what a program imports, or of how one starts.

pytest-xdist's workers are such forks, too, of a process that has collected (collected.py).

A server (server.py), one for the whole run, imports and forks; a small client (client.py) stands for the process.
"""

from __future__ import annotations

import fcntl
import functools
import json
import multiprocessing
import os
import subprocess
import sys
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from pathlib import Path

FOLDER, RUN = "WORKBENCH_TESTS_WARM", "WORKBENCH_TESTS_PID"
"""Variables: a folder of the run, and the number of the process that leads it."""

TORCH = (
    "numpy",
    "torch",
    "triton.compiler",
    "triton.backends.nvidia.compiler",
    "triton.experimental.gluon",
    "workbench",
)
MODULES = {
    "host": (*TORCH, "matplotlib.figure", "matplotlib.backends.backend_agg", "ipykernel.ipkernel",
             "ipykernel.kernelapp", "workbench.attention"),
    "gpu": (*TORCH, "pytest", "workbench.programs.running"),
}  # fmt: skip
"""Modules that a server imports, as far as they are installed. None of them starts a thread or counts GPUs, or looks
whether it is imported in a notebook, as pandas and ipywidgets do."""

_LONGEST = 95  # bytes of a socket's path


@functools.cache
def python(kind: str = "host") -> tuple[str, ...]:
    """Return the command; it is `sys.executable` alone where there can be no server.

    Of the kind "gpu" torch has the operators of a simulated device, which the program has yet to start; it needs
    torch's CUDA build.
    """
    return _python(kind, *MODULES[kind])


def pools() -> BaseContext:
    """Return a context for pools, whose processes are forks of one that has torch: for tests that start several."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "workbench.tuning"])
    forkserver.ensure_running()
    return context


def workers(arguments: list[str], path: list[str], count: int) -> tuple[str, ...]:
    """Return the command of pytest-xdist's workers, forks of a process that has collected with these arguments."""
    if not workers_are_forks():
        return (sys.executable,)
    return _python("collected", json.dumps({"arguments": arguments, "path": path, "workers": count, "argv": sys.argv}))


def workers_are_forks() -> bool:
    """Return False where they have to be processes of their own.

    That is with a GPU, of which a fork of what has looked for it can make no use, and where a PYTHONPATH changes what
    Python imports at its start.
    """
    has_gpu = Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()
    return hasattr(os, "pidfd_open") and not has_gpu and not os.environ.get("PYTHONPATH")


def _python(kind: str, *what: str) -> tuple[str, ...]:
    folder = os.environ.get(FOLDER)
    if folder is None or len(os.fsencode(folder)) > _LONGEST or not hasattr(os, "pidfd_open"):
        return (sys.executable,)
    here, path = Path(__file__).parent, Path(folder, kind)
    with open(Path(folder, ".starting"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _start(here / "server.py", path, what)
    return (sys.executable, "-I", "-S", str(here / "client.py"), str(path))


def _start(server: Path, path: Path, what: tuple[str, ...]) -> None:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", FOLDER)}
    ready, ours = os.pipe()
    with open(path.with_suffix(".log"), "w") as log, os.fdopen(ready) as imported:
        subprocess.Popen(
            [sys.executable, str(server), str(path), os.environ[RUN], str(ours), *what],
            env=variables | {"OMP_NUM_THREADS": "1"},
            pass_fds=[ours],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        os.close(ours)
        imported.read()  # to its end: limits of time, such as a kernel's, are for what comes then
