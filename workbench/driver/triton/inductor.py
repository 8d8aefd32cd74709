"""``torch.compile`` on the PTX machine: Inductor writes Triton for CPU tensors too, and its kernels run here.

Inductor's setting ``cpu_backend`` switches it on. It then needs a Triton backend named "cpu", a device interface with
the simulated GPU's properties, and a benchmarker, which are registered here. Tried with torch 2.13 and Triton 3.7.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from triton import backends
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import driver

from workbench.driver.attributes import device_facts
from workbench.driver.triton.launcher import TritonDriver
from workbench.driver.triton.timing import benchmark
from workbench.errors import MissingToolError

if TYPE_CHECKING:
    from workbench.driver.triton.session import TritonSession

_DEVICE = "cpu"


class _Compiler(CUDABackend):
    """Triton's compiler for NVIDIA GPUs under the name of the tensors' device, by which Inductor looks for it."""

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return target.backend == _DEVICE

    @staticmethod
    def make_ttir(module: Any, metadata: dict[str, Any], options: Any, capability: int) -> Any:
        metadata["target"] = GPUTarget("cuda", capability, 32)
        return CUDABackend.make_ttir(module, metadata, options, capability)


@contextlib.contextmanager
def compiling(session: TritonSession) -> Iterator[None]:
    """Make ``torch.compile`` of CPU tensors write Triton for the GPU of ``session`` within the block.

    Functions compiled outside are compiled again inside, and the other way round. Raises MissingToolError without
    torch's Inductor, or with one that writes no Triton for CPU tensors.
    """
    try:
        import torch
        from torch._dynamo import device_interface
        from torch._inductor import config
        from torch._inductor.runtime.benchmarking import register_benchmarker
        from torch._inductor.runtime.hints import DeviceProperties
        from torch.utils._triton import has_triton
    except ImportError as error:
        raise MissingToolError(
            f"torch's Inductor cannot be imported ({error}). python -m pip install 'torch>=2.13'"
        ) from error
    if not hasattr(config, "cpu_backend"):
        raise MissingToolError(
            "This Inductor generates no Triton code for CPU tensors. Update torch: python -m pip install 'torch>=2.13'"
        )

    def forget() -> None:
        torch.compiler.reset()
        has_triton.cache_clear()
        DeviceProperties.create.cache_clear()

    registered = device_interface.get_interface_for_device(_DEVICE)
    properties = _properties(session)
    tag = torch.compiler.config.cache_key_tag  # in the key of compiled graphs on disk, which depend on the device
    backend = backends.backends.get(_DEVICE)
    register_benchmarker(_DEVICE, _benchmark, override=True)
    device_interface.register_interface_for_device(_DEVICE, _interface(registered, session, properties))
    backends.backends[_DEVICE] = backends.Backend(_Compiler, TritonDriver)
    forget()
    try:
        with (
            config.patch(cpu_backend="triton", compile_threads=1),  # other processes have no simulated device
            torch.compiler.config.patch(cache_key_tag=f"{tag} workbench {session.arch} {properties}"),
        ):
            yield
    finally:
        device_interface.register_interface_for_device(_DEVICE, registered)
        if backend is None:
            del backends.backends[_DEVICE]
        else:
            backends.backends[_DEVICE] = backend
        forget()


def _properties(session: TritonSession) -> SimpleNamespace:
    known = device_facts(session.shipped_model).attributes
    return SimpleNamespace(
        name=session.model.name,
        major=known[75],
        minor=known[76],
        multi_processor_count=int(session.model.multiprocessors),
        regs_per_multiprocessor=known[82],
        max_threads_per_multi_processor=known[39],
        max_threads_per_block=known[1],
        warp_size=known[10],
    )


def _interface(registered: Any, session: TritonSession, properties: SimpleNamespace) -> type:
    """Return a class of the CPU's registered interface with the properties of the simulated GPU."""

    class Worker(registered.Worker):
        @staticmethod
        def get_device_properties(device: Any = None) -> SimpleNamespace:
            return properties

    class Interface(registered):
        @staticmethod
        def get_compute_capability(device: Any = None) -> int:
            return int(session.arch.removeprefix("sm_"))

        @staticmethod
        def raise_if_triton_unavailable(device: Any = None) -> None:
            """Do nothing: the active session has found Triton."""

    Interface.Worker = Worker
    return Interface


def _benchmark(benchmarker: Any, work: Callable[[], Any], *, warmup: int, rep: int, **options: Any) -> Any:
    """Return predicted milliseconds if a simulated device is active; infinity for work that launches nothing on it."""
    if not hasattr(driver._active, "session"):  # ``driver.active`` would look for a GPU
        return benchmarker.benchmark_cpu(work, warmup=warmup, rep=rep, **options)
    milliseconds = benchmark(work)
    return math.inf if math.isnan(milliseconds) else milliseconds
