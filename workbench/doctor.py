"""``workbench doctor``: a report on what this machine can do, and how to get what is missing.

``--fix`` runs the remedies that are commands.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.base.home import cache_part, home, home_part
from workbench.base.processes.worker import Worker
from workbench.base.tables import Table, Tabular
from workbench.base.versions import __version__
from workbench.errors import DeviceUnavailableError, MissingToolError, UnknownNameError, WorkbenchError

_PIP = "python -m pip install"
_PROGRAMS = {_PIP: ("-m", "pip", "install"), "workbench setup": ("-m", "workbench.cli", "setup")}
"""Beginnings of the remedies that are commands, with the same program for this Python."""

_LAUNCH_SECONDS = 120.0
"""Time limit for compiling, launching and checking one kernel on a GPU."""


@dataclass(frozen=True)
class DoctorCheck:
    """One row of the report: a part of the installation, with ``ok`` and a ``detail``.

    ``remedy`` says how to get the part if it is missing: a command of pip or ``workbench setup``, or a sentence.
    ``needed`` is False for a part that only some uses need.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    needed: bool = True

    @property
    def command(self) -> list[str] | None:
        """The remedy as the arguments of a process, or None if it is a sentence."""
        for words, program in _PROGRAMS.items():
            if self.remedy.startswith(f"{words} "):
                return [sys.executable, *program, *shlex.split(self.remedy.removeprefix(words))]
        return None


@dataclass(frozen=True)
class DoctorReport(Tabular):
    """All checks of this machine; ``str()`` is a table of them, ``report["NVRTC"]`` one check."""

    checks: tuple[DoctorCheck, ...]

    @property
    def ok(self) -> bool:
        """True if everything that the workbench needs without a GPU is there."""
        return all(check.ok for check in self.checks if check.needed)

    def __getitem__(self, name: str) -> DoctorCheck:
        """Return the check of that name; raise UnknownNameError, with the list of names, for any other."""
        for check in self.checks:
            if check.name == name:
                return check
        known = ", ".join(check.name for check in self.checks)
        raise UnknownNameError("check", repr(name), known, "str() of the report shows them all.")

    def to_json(self) -> str:
        """Return the checks as JSON; see `workbench.base.documents`."""
        from workbench.base.documents import document

        return document("doctor", ok=self.ok, summary=self.summary, checks=self.checks)

    def tables(self) -> list[Table]:
        """Return a table of one row per check, with the remedy of what is missing."""
        rows = [
            (f"{_mark(check):7}", check.name, check.detail + ("" if check.ok else f"\n-> {check.remedy}"))
            for check in self.checks
        ]
        return [Table((), rows, "lll", note=self.summary)]

    __repr__ = Tabular.__str__

    @property
    def summary(self) -> str:
        """One-line summary of what works on this machine."""
        missing = [check.name for check in self.checks if check.needed and not check.ok]
        if missing:
            return f"Missing: {', '.join(missing)}."
        if self["cuda device"].ok:
            failed = [check.name for check in self.checks if check.name in _ON_GPU and not check.ok]
            if failed:
                return (
                    f"Kernels compile here and run in the simulator. There is a GPU, but a check failed: {failed[0]}."
                )
            return "Kernels compile here and run on the GPU and in the simulator."
        return "Kernels compile here and run in the simulator; times are predicted, not measured."


def fix(report: DoctorReport, parts: Sequence[str] = (), tell: Callable[[str], None] = print) -> None:
    """Run the remedies of what is missing, in the order of the report; ``tell`` gets each command before it runs.

    Args:
        report: what `doctor` found.
        parts: names of the only checks to look at; default all.
        tell: called with a line about each remedy.

    Raises:
        UnknownNameError: there is no check of a name in ``parts``.
        WorkbenchError: a command failed; its own output says why.
    """
    for check in [report[name] for name in parts] if parts else report.checks:
        if check.ok:
            continue
        if check.command is None:
            tell(f"{check.name}: nothing to run. {check.remedy}")
            continue
        tell(f"{check.name}: {check.remedy}")
        status = subprocess.run(check.command, check=False).returncode
        if status != 0:
            raise WorkbenchError(f"{check.remedy} failed with status {status}; its output is above.")


def _mark(check: DoctorCheck) -> str:
    return "ok" if check.ok else "missing" if check.needed else "no"


def doctor() -> DoctorReport:
    """Check this machine: compilers, tools, devices, notebook, caches.

    If torch finds a GPU, one kernel of each language is launched on it, in a child process that may hang or crash. Any
    part may be missing: a failing import is a row of the table, never an error.
    """
    rows = (
        ("workbench", lambda: __version__, True),
        ("Python", _python, True),
        ("PTX machine", _ptx_machine, True),
        ("torch", lambda: _package("torch", "torch", "'torch>=2.11'"), True),
        ("Triton", lambda: _package("triton", "triton", "'triton>=3.6'"), True),
        ("NVRTC", _nvrtc, True),
        ("CUDA headers", _headers, True),
        ("cuobjdump", lambda: _program("cuobjdump"), True),
        ("nvdisasm", lambda: _program("nvdisasm"), True),
        ("ptxas", lambda: _program("ptxas"), True),
        ("cache folder", _cache, True),
        ("nvcc", _nvcc, False),
        ("GPU and driver", _driver, False),
        ("CUDA driver", _answering_driver, False),
        ("PyCUDA", _pycuda, False),
        ("CuPy", _cupy, False),
        ("cuda device", _cuda_device, False),
        ("JupyterLab", lambda: _package("jupyterlab", "", "'jupyterlab>=4.4'"), False),
        ("ipywidgets", lambda: _package("ipywidgets", "", "'ipywidgets>=8.1'"), False),
    )
    checks = [_check(name, look, needed) for name, look, needed in rows]
    if _gpu_seen():
        with Worker() as worker:
            looks = (_nvrtc_and_driver, lambda: _launched(worker, "cuda"), lambda: _launched(worker, "triton"))
            checks += [_check(name, look, False) for name, look in zip(_ON_GPU, looks, strict=True)]
    return DoctorReport(tuple(checks))


class _Missing(Exception):
    """A failed check: its message describes the problem, ``remedy`` the solution."""

    def __init__(self, detail: str, remedy: str):
        super().__init__(detail)
        self.remedy = remedy


def _check(name: str, look: Callable[[], str], needed: bool) -> DoctorCheck:
    try:
        return DoctorCheck(name, True, look(), "", needed)
    except _Missing as missing:
        return DoctorCheck(name, False, str(missing), missing.remedy, needed)
    except WorkbenchError as error:
        detail, _, remedy = str(error).partition(". ")
        return DoctorCheck(name, False, detail, remedy or "See the message.", needed)
    except Exception as error:
        # A broken installation can fail in any way, and it is the very thing to report.
        remedy = "Reinstall it: " + f"{_PIP} -c constraints.txt -e ."
        return DoctorCheck(name, False, f"{type(error).__name__}: {error}", remedy, needed)


def _python() -> str:
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def _package(name: str, module: str, requirement: str) -> str:
    """Return the version of an installed package; import ``module``, unless it is "", to see that it works."""
    if importlib.util.find_spec(name) is None:
        raise _Missing("not installed", f"{_PIP} {requirement}")
    if module:
        importlib.import_module(module)
    return importlib.metadata.version(name)


_PROBE = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry probe(.param .u64 out)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd3, %rd2, %rd3;
    st.global.u32 [%rd3], %r1;
    ret;
}
"""


def _ptx_machine() -> str:
    """Run a kernel of seven instructions, which fails if the extension was built for another processor."""
    import numpy as np

    from workbench.ptx import Program, machine

    out = np.full(32, -1, np.int32)
    Program.from_text(_PROBE).kernels["probe"].launch(1, 32, [out])
    if not np.array_equal(out, np.arange(32)):
        raise _Missing(f"computes wrongly on this processor ({machine.TARGET})", f"{_PIP} --force-reinstall .")
    return f"built for {machine.TARGET}, a probe kernel ran"


def _nvrtc() -> str:
    from workbench.toolchain import nvrtc, tools

    tools.look_again()  # something may have been installed since
    known = nvrtc.architectures()
    return f"{nvrtc.version()}, {known[0]} to {known[-1]}"


def _headers() -> str:
    from workbench.toolchain import tools

    return str(tools.cuda_include())


def _program(name: str) -> str:
    from workbench.toolchain import tools

    path = tools.find_program(name)
    return f"{tools.program_version(path)} ({path})"


def _nvcc() -> str:
    from workbench.toolchain import nvcc

    return f"{nvcc.version()} ({nvcc.program()})"


def _driver() -> str:
    from workbench.toolchain import tools

    program = shutil.which("nvidia-smi")
    remedy = 'Needs an NVIDIA GPU and its driver; without, device="sim" runs kernels on the CPU.'
    if program is None or tools.is_drivers(Path(program).parent.parent):  # the simulated driver's nvidia-smi
        raise _Missing("nvidia-smi not found: no NVIDIA driver", remedy)
    query = [program, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise _Missing((done.stdout + done.stderr).strip() or "nvidia-smi failed", remedy)
    return "; ".join(done.stdout.strip().splitlines())


def _answering_driver() -> str:
    """Return the driver that PyCUDA would use."""
    from workbench.driver import library_files, simulated
    from workbench.driver.attributes import DEFAULT_MODEL, device_facts

    running = simulated.current()
    if running is not None:
        return f"{running.name}, in this process"
    real = simulated.real_device()
    if real is not None:
        return real
    library_files.library_path()
    name = device_facts(DEFAULT_MODEL).name
    return f"{name}, after wb.simulated_driver() or with `workbench run`"


def _pycuda() -> str:
    from workbench.driver import simulated

    remedy = "workbench setup pycuda"
    if importlib.util.find_spec("pycuda") is None:
        raise _Missing("not installed", remedy)
    version = importlib.metadata.version("pycuda")
    if simulated.current() is None and simulated.real_device() is None:
        return f"{version}, for the simulated driver"
    try:
        importlib.import_module("pycuda.driver")
    except ImportError as error:
        raise _Missing(f"cannot be imported: {error}", f"Check NVIDIA's driver, or reinstall it: {remedy}") from error
    return version


def _cupy() -> str:
    from workbench.driver import simulated
    from workbench.driver.clients import cupy_client

    version = cupy_client.installed()
    if version is None:
        raise _Missing("not installed", "workbench setup cupy")
    if version.endswith(cupy_client.LABEL):
        return f"{version}, for the simulated driver too"
    if simulated.current() is None and simulated.real_device() is not None:
        return version
    raise _Missing(f"{version}, which only runs on NVIDIA's driver", "workbench setup cupy")


def _cuda_device() -> str:
    from workbench.driver import simulated
    from workbench.launch import devices

    reason = devices.cuda_problem()
    if reason is not None:
        detail, _, remedy = reason.partition(". ")
        if simulated.real_device() is None:
            remedy += " Without a GPU, `workbench run PROGRAM` gives a program a simulated one."
        raise _Missing(detail, remedy.strip())
    return devices.get("cuda").description


_ON_GPU = ("NVRTC and driver", "CUDA on the GPU", "Triton on the GPU")


def _gpu_seen() -> bool:
    try:
        import torch

        return torch.cuda.is_available()
    except Exception:  # the row "torch" reports the error
        return False


def _nvrtc_and_driver() -> str:
    """Check that the driver loads the code that NVRTC generates."""
    import torch

    import workbench.gpu_probes as gpu_probes
    from workbench.toolchain import nvrtc

    try:
        import pycuda.driver
    except ImportError as error:
        raise _Missing(f"not compared: PyCUDA cannot be imported ({error})", "workbench setup pycuda") from error
    number = pycuda.driver.get_driver_version()
    driver = number // 1000, number % 1000 // 10
    major, minor = re.findall(r"\d+", nvrtc.version())[:2]
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    wrong = gpu_probes.mismatch(driver, (int(major), int(minor)), arch)
    if wrong is not None:
        raise _Missing(*wrong)
    return f"the driver (CUDA {driver[0]}.{driver[1]}) loads the code of NVRTC {nvrtc.version()}"


def _launched(worker: Worker, language: str) -> str:
    """Launch the language's probe kernel on the GPU, in the worker process."""
    import workbench.gpu_probes as gpu_probes

    probe = {"cuda": gpu_probes.cuda_kernel, "triton": gpu_probes.triton_kernel}[language]
    try:
        return worker.call(probe, seconds=_LAUNCH_SECONDS)
    except (DeviceUnavailableError, MissingToolError):
        raise  # with a remedy of their own
    except Exception as error:
        kind = "" if isinstance(error, WorkbenchError) else f"{type(error).__name__}: "
        raise _Missing(f"{kind}{error}", gpu_probes.remedy_of(str(error))) from error


def _cache() -> str:
    folder = home()
    probe = folder / f".doctor-{os.getpid()}"
    try:
        home_part()
        cache_part()
        try:
            probe.write_bytes(bytes(1 << 16))  # an empty file needs no space
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise _Missing(
            f"{folder} cannot be written ({error.strerror or error})",
            "Free space, or set WORKBENCH_HOME to a writable folder.",
        ) from error
    sizes = []
    for inside, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another process may have removed it just now
                sizes.append(os.stat(os.path.join(inside, name)).st_size)
    return f"{folder} ({len(sizes)} files, {sum(sizes) / 1e6:.1f} MB)"


class _CallableModule(types.ModuleType):
    """A module that can be called like its function: ``import workbench.doctor`` binds the module to that name."""

    def __call__(self) -> DoctorReport:
        return doctor()


sys.modules[__name__].__class__ = _CallableModule
