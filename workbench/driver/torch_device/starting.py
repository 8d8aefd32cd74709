"""`simulated_gpu`, which gives torch a simulated GPU before it is imported."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from workbench.analysis.device_models import device_model
from workbench.base.argument_kinds import names_wrong_kinds
from workbench.base.time_limit import Limit
from workbench.driver.attributes import DEFAULT_MODEL
from workbench.driver.clients.host_programs import load_libraries
from workbench.driver.imports import when_imported
from workbench.driver.library_files import library_path
from workbench.driver.simulated import Driver, current, real_device, simulated_driver
from workbench.driver.toolkit import toolkit_folder
from workbench.driver.torch_device import library, tile_benchmarks
from workbench.driver.torch_device.child_processes import inherit_gpu, inherited_gpu, reach_compile_workers
from workbench.errors import ArgumentError, DeviceUnavailableError

if TYPE_CHECKING:
    from workbench.driver.triton.driver import SimulatedTriton

# Inductor's own launchers take machine code, Triton's takes PTX. The switch has one name in torch 2.11, one in 2.13.
_INDUCTOR = {"TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0", "TORCHINDUCTOR_USE_STATIC_TRITON_LAUNCHER": "0"}

_exchanged = _attached = False


@names_wrong_kinds
def simulated_gpu(
    model: str = DEFAULT_MODEL,
    *,
    devices: int = 1,
    memory_bytes: int | None = None,
    seconds_limit: Limit = "auto",
    exact_name: bool = False,
    force: bool = False,
) -> Driver:
    """Give torch a ``cuda`` device in this process; call it before ``import torch``.

    A real GPU is preferred, unless ``force``. Otherwise this many ``devices`` of ``model`` are simulated, each with
    ``memory_bytes`` of memory and "(simulated)" in its name, unless ``exact_name``. A launch that runs longer than
    ``seconds_limit`` seconds ends with an error (default: 60 s in a notebook, else no limit; None: no limit). torch
    must be a CUDA build. Its operators run on the host; Triton's and CUDA kernels run on the PTX machine, one launch at
    a time in the order of torch's streams::

        wb.simulated_gpu("h100-sxm")
        import torch
        x = torch.randn(1024, device="cuda")

    The first use compiles a library of operators for the installed torch, which takes half a minute; ``workbench setup
    gpu`` does it ahead. A second call returns the same driver.

    Raises DeviceUnavailableError if torch is imported already, is not installed, or is not a build for CUDA 13,
    ArgumentError if TRITON_INTERPRET is set, and the errors of `simulated_driver`.
    """
    if force or real_device() is None:
        refuse_interpreter()
    return _started(model, devices, memory_bytes, seconds_limit, exact_name, force)


def refuse_interpreter() -> None:
    """Raise ArgumentError if the environment asks for Triton's interpreter."""
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on", "y"):
        raise ArgumentError(
            "TRITON_INTERPRET", "set", "unset", "Triton's interpreter would take the place of its compiler: unset it."
        )


def _started(
    model: str, devices: int, memory_bytes: int | None, seconds_limit: Limit, exact_name: bool, force: bool
) -> Driver:
    if not _exchanged and "torch" in sys.modules and sys.modules["torch"].version.cuda is not None:
        raise DeviceUnavailableError(
            "torch is imported in this process already, and found no GPU. Call simulated_gpu() before import torch."
        )
    driver = simulated_driver(
        model, devices=devices, memory_bytes=memory_bytes, seconds_limit=seconds_limit, exact_name=exact_name,
        force=force,
    )  # fmt: skip
    if driver.simulated:
        torch = library.installed_torch()
        if torch is None:
            raise DeviceUnavailableError("torch is not installed: python -m pip install torch")
        library.compiled(torch)  # so that what it lacks is reported here, not by a later import of torch
        attach(torch)
        given = {"model": model, "devices": devices, "memory_bytes": memory_bytes, "exact_name": exact_name}
        inherit_gpu(given)
    return driver


def join_gpu() -> None:
    """Start the parent process's simulated device in this child process."""
    _started(**inherited_gpu(), seconds_limit="auto", force=True)


def leave_gpu() -> None:
    """Let torch find no GPU in this process any more, which must not have used the simulated one."""
    import torch

    def refuse() -> None:
        raise RuntimeError("No CUDA GPUs are available")

    torch.cuda._lazy_init = refuse
    torch.cuda.is_available = lambda: False
    torch.cuda.device_count = lambda: 0
    torch.backends.cuda.enable_flash_sdp(True)  # on the host, too, the reference takes the kernels of plain torch
    torch.backends.cuda.enable_mem_efficient_sdp(True)


def attach(
    torch: library.Torch, triton_on_cpu: Callable[[], SimulatedTriton] | None = None, *, first_config: bool = False
) -> None:
    """Let ``torch``, once it is imported, use the running simulated driver; a second call does nothing.

    ``triton_on_cpu`` starts a session for launches of Triton kernels on CPU tensors; without it they are refused. With
    ``first_config`` an autotuner takes its first configuration that runs.
    """
    global _attached
    if _attached:
        return
    os.environ.update(_INDUCTOR)
    exchange_operators(torch)
    when_imported("torch._inductor.runtime.benchmarking", _predict_inductor)
    when_imported("torch._inductor.compile_worker.subproc_pool", reach_compile_workers)
    when_imported("torch.utils.cpp_extension", _shorten_builds)
    when_imported("triton", lambda: _start_triton(triton_on_cpu, first_config))
    tile_benchmarks.follow(first_config)
    _attached = True


def exchange_operators(torch: library.Torch) -> None:
    """Let ``torch``, once it is imported, have the operators of the simulated device; a second call does nothing.

    It may be imported before the driver runs, in a process that forks others. The library of operators is compiled, if
    need be, when torch is imported, because most programs never import it.
    """
    global _exchanged
    if not _exchanged:
        when_imported("torch", lambda: _exchange(library.compiled(torch)), before=lambda: _prepare(torch))
        _exchanged = True


def _prepare(torch: library.Torch) -> None:
    library.compiled(torch)
    ctypes.CDLL(str(library_path()), mode=ctypes.RTLD_GLOBAL)  # the others need it, the driver may start later
    load_libraries()


def _exchange(path: Path) -> None:
    import torch

    from workbench.driver.torch_device import compositions, runtime_kernels

    operators = ctypes.PyDLL(str(path))
    operators.workbench_exchange_operators.restype = ctypes.c_char_p
    compositions.register(operators.workbench_exchange_operators().decode().split())
    torch.cuda._lazy_call(operators.workbench_follow_blocks)
    torch.cuda._sleep = _sleep
    runtime_kernels.warn_of_sizes(library_path())
    del torch.cuda.default_generators
    torch.cuda.__class__ = _LazyGenerators
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    warnings.filterwarnings("ignore", "expandable_segments not supported")


def _sleep(cycles: int) -> None:
    """Advance the current stream's simulated clock by ``cycles``; replaces torch's kernel that waits."""
    import torch

    driver = current()
    assert driver is not None
    clock_hz = device_model(driver.model).clock_hz
    sleep = ctypes.CDLL(str(library_path())).workbench_driver_sleep
    sleep.argtypes = [ctypes.c_void_p, ctypes.c_double]
    sleep(torch.cuda.current_stream().cuda_stream, cycles / clock_hz)


def _predict_inductor() -> None:
    """Make torch.compile choose between kernels by predicted times, each from one launch."""
    from torch._inductor.runtime import benchmarking

    from workbench.driver.torch_device.triton_kernels import benchmark

    for one in (benchmarking.TritonBenchmarker, benchmarking.InductorBenchmarker):
        one.benchmark_gpu = lambda self, _callable, *args, **options: benchmark(_callable)


def _shorten_builds() -> None:
    """Give builds of extensions the host compiler that tries shorter headers, unless CXX names another one."""
    from torch.utils import cpp_extension

    chosen = cpp_extension.get_cxx_compiler

    def compiler() -> str:
        named = chosen()
        return str(toolkit_folder() / "bin" / "torch-c++") if named == "c++" else named

    cpp_extension.get_cxx_compiler = compiler


def _start_triton(on_cpu: Callable[[], SimulatedTriton] | None, first_config: bool) -> None:
    from workbench.driver.torch_device import triton_kernels

    triton_kernels.start(on_cpu, first_config)


class _LazyGenerators(ModuleType):
    """The class of the module ``torch.cuda`` while it is lazy: reading ``default_generators`` initializes CUDA."""

    def __getattr__(self, name: str) -> object:
        if name != "default_generators":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        vars(self)["init"]()  # which sets the attribute
        return vars(self)[name]
