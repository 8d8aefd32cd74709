"""The process that forks those of KernelBench's format: it has torch, its simulated device and Triton, and no solution.

Imports cost seconds, a fork costs milliseconds. The server never initializes CUDA, nor counts devices, because neither
torch nor the simulated driver works in a process that was forked after that. It runs no code of a solution; a copy that
does has temporary files of its own, is confined, and ends with all that it has started before the next one begins.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

from workbench.base.files import require_space
from workbench.base.home import cache_folder
from workbench.base.processes.fork_server import Child, ForkServer
from workbench.base.processes.forking import Main, own_folder
from workbench.base.processes.worker import WORK, work
from workbench.driver.torch_device import library
from workbench.driver.torch_device.starting import leave_gpu, simulated_gpu
from workbench.judge import confinement
from workbench.judge.warm_sandbox import OwnFolders, WarmSandbox, Within

CANDIDATE, REPLAY, COMPILE = "candidate", "replay", "compile"
"""The role that runs a solution's code; those that repeat what it does, and compile the reference, are trusted."""


class SolutionNursery(ForkServer):
    """The process that forks the others, with a simulated GPU of ``model`` that has ``memory_mib`` MiB.

    ``within`` is a command in front of its own, `workbench.judge.sandbox.command`; with ``own`` each copy that runs a
    solution's code has folders of its own in that sandbox. Hold ``lock`` while such a copy lives: one at a time.
    For ``imports`` and the role `WORK` see `workbench.judge.nursery.Nursery`.
    """

    def __init__(
        self,
        model: str,
        memory_mib: int,
        within: Within | None = None,
        own: OwnFolders | None = None,
        imports: Sequence[str] = (),
    ) -> None:
        super().__init__(
            f"{__name__}:prepare",
            *(model, memory_mib, within is not None, None if own is None else [*own], [*imports]),
            scratch="workbench-kernelbench-",
            marked=True,
            variables={"OMP_NUM_THREADS": "1"},
            within=within,
        )
        self.lock = threading.RLock()

    def start(self) -> None:
        """Start the server unless it runs; first compile the simulated device, where the user sees that, if need be."""
        if self.process is None or not self.process.running:
            installed = library.installed_torch()
            if installed is not None and installed.problem is None:
                library.compiled(installed)
        super().start()

    def fork(self, role: str, memory_mib: int | None = None) -> Child:
        """Return a new copy in a role. Raises FileError where its disk is full."""
        self.start()
        assert self.folder is not None
        require_space(self.folder)
        return super().fork(role, memory_mib)


_shared: dict[tuple[str, int], SolutionNursery] = {}


def shared(model: str, memory_mib: int) -> SolutionNursery:
    """Return the nursery of this process for a GPU, which lives as long as the process: making it takes seconds."""
    return _shared.setdefault((model, memory_mib), SolutionNursery(model, memory_mib))


_warm = WarmSandbox(SolutionNursery)


def sandboxed(
    model: str, memory_mib: int, readable: Sequence[Path]
) -> contextlib.AbstractContextManager[SolutionNursery]:
    """Return a context with a nursery in a sandbox in which ``readable`` files are found. Raises NoSandbox."""
    return _warm.serving(model, [*readable, cache_folder()], memory_mib)


# -- in the process that forks ------------------------------------------------------------------------------------


_environment: dict[str, str] = {}
"""The environment before the device was there, which workers get back."""


def prepare(
    model: str,
    memory_mib: int,
    sandboxed: bool,
    given: tuple[Sequence[str], int] | None,
    imports: Sequence[str],
    folder: str,
) -> Callable[[str], Main]:
    """Start the simulated device and import what solutions use; return the function of a copy in a role.

    In a sandbox ``folder`` is the only one that can be written, and the user's cache is read; with ``given`` a solution
    has `OwnFolders`.
    """
    _environment.update(os.environ)
    if sandboxed:
        os.environ |= {"WORKBENCH_CACHE": str(cache_folder()), "WORKBENCH_HOME": folder}
    simulated_gpu(model, memory_bytes=memory_mib << 20, force=True)  # before torch is imported
    import torch

    torch.set_num_threads(1)
    import triton.backends.nvidia.compiler
    import triton.compiler
    import triton.experimental.gluon  # by Triton's launcher
    from triton.runtime.cache import triton_key

    with _without_counting_devices():
        import torch.utils.cpp_extension

        _ = triton.runtime.driver.active.utils  # builds and loads the C part of its launcher
    triton_key()  # reads all of Triton, 461 MB, and is kept

    import workbench.analysis.prediction.predict
    import workbench.launch.sim  # noqa: F401
    from workbench.judge.kernelbench import candidate

    candidate.warm_up()
    with _without_counting_devices():
        for one in imports:
            importlib.import_module(one)
    confinement.hide_memory(True)
    return _roles(model, memory_mib, sandboxed, given, imports, folder)


def _roles(
    model: str,
    memory_mib: int,
    _sandboxed: bool,
    given: tuple[Sequence[str], int] | None,
    _imports: Sequence[str],
    folder: str,
) -> Callable[[str], Main]:
    from workbench.judge.kernelbench import candidate, compiled_reference, replay

    mains: dict[str, Callable[[], Main]] = {
        CANDIDATE: candidate.serve, REPLAY: replay.serve, COMPILE: compiled_reference.serve,
    }  # fmt: skip

    def role(name: str) -> Main:
        if name == WORK:
            own = own_folder(folder)
            shared(model, memory_mib).start_as_fork(_roles)
            leave_gpu()
            os.environ.clear()  # else what it starts, such as a sandbox, has the device as well
            os.environ.update({**_environment, "TMPDIR": str(own)})
            return work
        if name == CANDIDATE and given is not None:
            confinement.hide_memory(False)  # else its files under /proc are not its own
            OwnFolders(*given).take(folder)
        own_folder(folder)
        confinement.hide_memory(False)  # nothing of others is in it, and its mark can be read
        return mains[name]()

    return role


@contextlib.contextmanager
def _without_counting_devices() -> Iterator[None]:
    """Keep imports from asking CUDA whether there is a device, after which no fork could use one."""
    import torch

    with mock.patch.object(torch.cuda, "is_available", return_value=True):
        yield
