"""The processes of a judge: one that has imported everything and never runs a candidate's code, and copies of it.

A copy that runs a candidate's code is confined (`workbench.judge.confinement`) and ends with all that it has started;
its answers are JSON, and nothing of them is unpickled. The other kind is trusted: it runs descriptions.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench.base.files import require_space
from workbench.base.processes.fork_server import Child, ForkServer
from workbench.base.processes.forking import Main, own_folder
from workbench.base.processes.worker import WORK, work
from workbench.judge import confinement
from workbench.judge.warm_sandbox import OwnFolders, WarmSandbox, Within

DESCRIBE, RUN = "describe", "run"


class Nursery(ForkServer):
    """The process that forks the others.

    ``within`` is a command in front of its own, `workbench.judge.sandbox.command`; with ``own`` each copy that runs a
    candidate's code has folders of its own in that sandbox. Hold ``lock`` while such a copy lives: one at a time.

    A copy in the role `WORK` is a worker with a nursery of its own, forked from itself, so that they share their
    memory; ``imports`` are modules that workers need.
    """

    def __init__(
        self, within: Within | None = None, own: OwnFolders | None = None, imports: Sequence[str] = ()
    ) -> None:
        super().__init__(
            f"{__name__}:prepare",
            *(None if own is None else [*own], [*imports]),
            scratch="workbench-judge-",
            marked=True,
            variables={"OMP_NUM_THREADS": "1"},
            within=within,
        )
        self.lock = threading.RLock()

    def fork(self, role: str, memory_mib: int | None = None) -> Child:
        """Return a new copy, in the role `DESCRIBE` or `RUN`. Raises FileError where its disk is full."""
        self.start()
        assert self.folder is not None
        require_space(self.folder)
        return super().fork(role, memory_mib)


_shared: list[Nursery] = []
_warm = WarmSandbox(lambda _kind, _mib, within, own: Nursery(within, own))


def shared() -> Nursery:
    """Return the nursery of this process, which lives as long as the process: making it takes seconds."""
    if not _shared:
        _shared.append(Nursery())
    return _shared[0]


def sandboxed(readable: Sequence[Path], mib: int) -> contextlib.AbstractContextManager[Nursery]:
    """Return a context with a nursery in a sandbox in which ``readable`` files are found. Raises NoSandbox."""
    return _warm.serving("", readable, mib)


# -- in the process that forks ------------------------------------------------------------------------------------


def prepare(own: tuple[Sequence[str], int] | None, imports: Sequence[str], folder: str) -> Callable[[str], Main]:
    """Import and try everything that takes its time once, so that no copy has to; return what a copy does in a role."""
    import torch
    import triton  # noqa: F401

    torch.set_num_threads(1)
    from workbench.judge import describing, running

    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        describing.warm_up(Path(scratch))
    running.warm_up()
    for one in imports:
        importlib.import_module(one)
    confinement.hide_memory(True)
    return _roles(own, imports, folder)


def _roles(own: tuple[Sequence[str], int] | None, _imports: Sequence[str], folder: str) -> Callable[[str], Main]:
    from workbench.judge import describing, running
    from workbench.toolchain.nvrtc_client import compile_in_own_forks

    mains = {DESCRIBE: describing.describe, RUN: running.run}

    def role(name: str) -> Main:
        if name == WORK:
            own_folder(folder)
            shared().start_as_fork(_roles)
            return work
        if name == DESCRIBE:
            if own is not None:
                confinement.hide_memory(False)  # else its files under /proc are not its own
                OwnFolders(*own).take(folder)
            _confine(own_folder(folder))
            compile_in_own_forks()
        return lambda request, send: mains[name](request, lambda answer: send(json.dumps(answer).encode()))

    return role


def _confine(folder: Path) -> None:
    for name in ("WORKBENCH_HOME", "WORKBENCH_CACHE", "TRITON_HOME", "TRITON_CACHE_DIR"):
        os.environ[name] = str(folder)  # a candidate finds no compilation of another one, and leaves none
    confinement.hide_memory(False)  # nobody else's is in it, and its mark can be read
    if not confinement.unavailable():  # else the caller has warned
        confinement.confine()
