"""The simulated driver of this process: `simulated_driver` starts it, `Driver` describes it."""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.base.argument_kinds import names_wrong_kinds
from workbench.base.home import home_part
from workbench.base.time_limit import Limit, seconds_of
from workbench.driver import nvrtc_calls
from workbench.driver.attributes import DEFAULT_MODEL, DeviceFacts, device_facts
from workbench.driver.clients import cupy_client, cute_dsl
from workbench.driver.clients.cuda_python import give_ptx, refuse_libraries, serve_runtime
from workbench.driver.imports import loaded_instead
from workbench.driver.library_files import library_path, runtime_path
from workbench.errors import ArgumentError, DeviceUnavailableError

if TYPE_CHECKING:
    from workbench.driver.hooks import Machine
    from workbench.ptx import Finding, LaunchReport

_SONAME = "libcuda.so.1"
_MOST_MEMORY = 80 << 30
_MOST_DEVICES = 8
_NODES = ("/dev/nvidiactl", "/dev/dxg")  # a real driver has the first on Linux, the second in WSL
_current: Driver | None = None


class Driver:
    """The CUDA driver of this process, simulated or real; ``name`` is the name of its device.

    ``last_fault`` is the PTX machine's finding on the latest kernel that failed (source line, block, thread, address),
    ``last_report`` the report of the latest launch that finished, ``last_error`` the message of this thread's latest
    failing call, of which some clients show only the error code. All three are None on a real driver.
    """

    def __init__(
        self, name: str, facts: DeviceFacts | None = None, machine: Machine | None = None, memory_bytes: int = 0
    ):
        self.name, self.memory_bytes = name, memory_bytes
        self._facts, self._machine = facts, machine

    @property
    def simulated(self) -> bool:
        """True if the PTX machine runs the launches, False for a real driver."""
        return self._machine is not None

    @property
    def model(self) -> str | None:
        """Device model of a simulated driver, such as ``"h200"``; None for a real one."""
        return self._facts.key if self._facts else None

    @property
    def last_fault(self) -> Finding | None:
        """Finding that stopped the latest failed kernel, in any thread."""
        return self._machine.last_fault if self._machine else None

    @property
    def last_report(self) -> LaunchReport | None:
        """Report of the latest launch that finished, in any thread."""
        return self._machine.last_report if self._machine else None

    @property
    def last_error(self) -> str | None:
        """Message of this thread's latest failing driver call, in more words than its error code."""
        return self._machine.last_error() if self._machine else None

    @property
    def heap_leaks(self) -> list[str]:
        """Memory leaks of device code: one line for each place in a kernel whose ``malloc`` was never freed."""
        return self._machine.leaks() if self._machine else []

    @property
    def memory_notes(self) -> list[str]:
        """Notes of a checked process on memory that launches left unwritten, or that the host read unwritten."""
        return self._machine.memory_notes() if self._machine else []

    def __repr__(self) -> str:
        return f"<CUDA driver: {self.name}>"


def current() -> Driver | None:
    """Return the driver that `simulated_driver` found or started in this process, or None."""
    return _current


@names_wrong_kinds
def simulated_driver(
    model: str = DEFAULT_MODEL,
    *,
    force: bool = False,
    memory_bytes: int | None = None,
    seconds_limit: Limit = "auto",
    devices: int = 1,
    exact_name: bool = False,
) -> Driver:
    """Give this process a CUDA driver, for PyCUDA and other clients; call it before ``import pycuda.driver``.

    A real driver with a GPU is preferred, unless ``force``. Otherwise the simulated driver is loaded, with this many
    ``devices``, each with the attributes of ``model`` and ``memory_bytes`` of memory of its own (default: half of this
    machine's, at most 80 GiB). Their names end in "(simulated)", unless ``exact_name``. An ``nvcc`` that compiles for
    the simulated driver comes first on PATH. A kernel that runs longer than ``seconds_limit`` seconds ends with the
    driver's error for a timeout (default: 60 s in a notebook, else no limit; None: no limit). A second call returns the
    same driver::

        driver = wb.simulated_driver()
        import pycuda.autoprimaryctx
        from pycuda.compiler import SourceModule

    Raises UnknownNameError for an unknown model, ArgumentError for a second call that asks for something else,
    DeviceUnavailableError if the process has loaded another driver already, MissingToolError if this package was built
    without the simulated driver.
    """
    global _current
    if _current is not None:
        _check_same(_current, model, force, memory_bytes)
        return _current
    facts = device_facts(model, exact_name)
    if not force and (name := real_device()) is not None:
        _current = Driver(name)
        return _current
    memory = _memory(memory_bytes)
    if isinstance(devices, bool) or not isinstance(devices, int) or not 1 <= devices <= _MOST_DEVICES:
        raise ArgumentError("devices", devices, f"1 to {_MOST_DEVICES}", "Pass a whole number.")
    seconds_limit = seconds_of(seconds_limit)
    machine = _start(facts, memory, seconds_limit, devices)
    provide_programs(facts, devices, memory)
    nvrtc_calls.start(runtime_path().with_name(nvrtc_calls.SONAME))
    give_ptx()
    serve_runtime(runtime_path())
    refuse_libraries(runtime_path())
    cupy_client.run_on_simulated_driver(runtime_path())
    cute_dsl.run_on_simulated_driver(runtime_path())
    # torch without `simulated_gpu` brings NVIDIA's runtime, which takes this driver for a broken one and finds no GPU.
    warnings.filterwarnings("ignore", "CUDA initialization: Unexpected error from cudaGetDeviceCount")
    _current = Driver(facts.name, facts, machine, memory)
    return _current


def _check_same(running: Driver, model: str, force: bool, memory_bytes: int | None) -> None:
    if (running.simulated and model not in (running.model, DEFAULT_MODEL)) or (force and not running.simulated):
        raise ArgumentError(
            "model", repr(model), f"the running driver, {running.name}", "A process has one driver: restart it."
        )
    if memory_bytes not in (None, running.memory_bytes):
        raise ArgumentError("memory_bytes", memory_bytes, str(running.memory_bytes), "A process has one driver.")


def real_device() -> str | None:
    """Return the name of a real driver's first GPU, or None; a child process asks the driver."""
    if not any(Path(node).exists() for node in _NODES):
        return None
    ask = (
        "import ctypes; d = ctypes.CDLL('libcuda.so.1'); n = ctypes.create_string_buffer(256);"
        "assert not d.cuInit(0) and not d.cuDeviceGetName(n, 256, 0); print(n.value.decode())"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None


def host_blas() -> Path | None:
    """Return the BLAS library with which our cuBLAS computes, that of the package scipy-openblas64, or None."""
    spec = importlib.util.find_spec("scipy_openblas64")
    folders = (spec.submodule_search_locations or []) if spec else []
    return next((path for folder in folders for path in Path(folder, "lib").glob("libscipy_openblas64_.so*")), None)


def default_memory() -> int:
    """Return the default memory of a simulated device in bytes: half of this machine's, at most 80 GiB."""
    return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2, _MOST_MEMORY)


def _memory(given: int | None) -> int:
    if given is None:
        return default_memory()
    if isinstance(given, bool) or not isinstance(given, int) or given < 1 << 20:
        raise ArgumentError("memory_bytes", given, "at least 1048576 bytes", "Pass a whole number.")
    return given


def _start(facts: DeviceFacts, memory: int, seconds_limit: float | None, devices: int) -> Machine:
    from workbench.driver.hooks import HookDevice, Machine

    path = library_path()
    if (other := loaded_instead(path)) is not None:
        raise DeviceUnavailableError(
            f"{other} is loaded in this process already. Call simulated_driver() before importing PyCUDA or torch."
        )
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    machine = Machine(library, facts, seconds_limit)
    pairs = [number for pair in facts.attributes.items() for number in pair]
    device = HookDevice(
        facts.name.encode(), memory, (ctypes.c_int * len(pairs))(*pairs), len(facts.attributes),
        facts.device_bytes_per_second, facts.host_bytes_per_second, facts.operation_seconds, devices,
        str(host_blas() or "").encode(),
    )  # fmt: skip
    if not library.workbench_driver_start(ctypes.byref(device), ctypes.byref(machine.hooks)):
        raise MemoryError("the host has no memory left for the simulated driver")
    atexit.register(library.workbench_driver_close)
    return machine


def provide_programs(facts: DeviceFacts, devices: int = 1, memory_bytes: int | None = None) -> None:
    """Put our ``nvcc``, ``ptxas`` and ``nvidia-smi`` first on PATH, and give PyCUDA and cuTile caches of their own.

    PyCUDA finds libraries relative to nvcc. cuTile's compiler, ``tileiras``, takes the ``ptxas`` of CUDA_ROOT.
    ``devices`` and ``memory_bytes``, as in `simulated_driver`, are what ``nvidia-smi`` lists.
    """
    from workbench.driver.clients import nvidia_smi
    from workbench.driver.toolkit import toolkit_folder

    nvidia_smi.describe(facts, devices, _memory(memory_bytes))

    folder = toolkit_folder()
    os.environ["PATH"] = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)])
    os.environ.setdefault("CUDA_ROOT", str(folder))
    for variable, name in (("PYCUDA_CACHE_DIR", "pycuda"), ("CUDA_TILE_CACHE_DIR", "cutile")):
        if variable not in os.environ:
            os.environ[variable] = str(home_part(name))
