"""Triton over the simulated driver: Triton's own JIT, launcher and autotuner, with PTX instead of machine code.

Kernels launched on CPU tensors run on the PTX machine too, through the driver of `simulated_triton`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.base.home import cache_part
from workbench.driver.library_files import library_path
from workbench.driver.passed_tensors import passing
from workbench.driver.simulated import current

if TYPE_CHECKING:
    from workbench.driver.triton.driver import SimulatedTriton

_LAUNCH_ARGUMENTS = 9  # of Triton's launcher, before those of the kernel: grid, stream, function, metadata, hooks
_on_cpu: Callable[[], SimulatedTriton] | None = None
"""Function that starts a session of `simulated_triton` for launches on CPU tensors."""


def start(on_cpu: Callable[[], SimulatedTriton] | None = None, first_config: bool = False) -> None:
    """Let Triton's own driver use the simulated one, stop its compiler at the PTX, and predict times.

    ``on_cpu`` starts a session of `simulated_triton` for launches on CPU tensors; without it they are refused, as
    Triton refuses them on a GPU. With ``first_config`` an autotuner takes its first configuration that runs.
    """
    global _on_cpu
    import triton.testing
    from triton import knobs
    from triton.backends.nvidia.driver import CudaLauncher
    from triton.compiler import compiler
    from triton.runtime import JITFunction
    from triton.runtime.autotuner import Autotuner

    from workbench.driver.triton import kernel as triton_kernel

    os.environ["TRITON_LIBCUDA_PATH"] = str(library_path().parent)
    given = os.environ.get("TRITON_CACHE_DIR")  # kernels without machine code stay apart from those of a GPU
    folder = cache_part("triton_device") if given is None else Path(given) / "simulated"
    os.environ["TRITON_CACHE_DIR"] = str(folder)
    _on_cpu = on_cpu
    hook = triton_kernel.WithoutAssembler(knobs.runtime.add_stages_inspection_hook)
    knobs.runtime.add_stages_inspection_hook = hook
    compiler.CompiledKernel = triton_kernel.TritonKernel
    _name_tensors(CudaLauncher)
    triton.testing.do_bench = benchmark
    triton.testing.do_bench_cudagraph = benchmark_graph
    if first_config:
        _take_first(Autotuner)
    if on_cpu is not None:
        JITFunction.run = _by_device(JITFunction.run)
        Autotuner.run = _by_device(Autotuner.run)


def _name_tensors(launcher: Any) -> None:
    """Make Triton's launcher name the tensors of a launch for the driver."""
    made, called = launcher.__init__, launcher.__call__

    def init(self: Any, src: Any, metadata: Any) -> None:
        made(self, src, metadata)
        self._workbench_names = tuple(getattr(getattr(src, "fn", None), "arg_names", ()))

    def call(self: Any, *arguments: Any) -> Any:
        values = arguments[_LAUNCH_ARGUMENTS:]
        names = self._workbench_names if len(self._workbench_names) == len(values) else ()
        known = zip(names, values, strict=True) if names else ((f"argument {at}", one) for at, one in enumerate(values))
        with passing(known):
            return called(self, *arguments)

    launcher.__init__, launcher.__call__ = init, call


def _by_device(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Triton's ``run`` so that a launch whose tensors are all on the CPU runs in the session for CPU tensors."""

    def dispatched(function: Any, *args: Any, **kwargs: Any) -> Any:
        devices = {kind for value in (*args, *kwargs.values()) if (kind := _device_of(value)) is not None}
        if devices != {"cpu"}:
            return run(function, *args, **kwargs)
        from workbench.driver.triton.sessions import running

        if running:
            return run(function, *args, **kwargs)
        assert _on_cpu is not None
        with _on_cpu():
            return run(function, *args, **kwargs)

    return dispatched


class _UntilFound(list):
    """Configurations of which a loop sees those up to the first that runs."""

    found = False

    def __iter__(self) -> Iterator[Any]:
        for config in super().__iter__():
            if self.found:
                return
            yield config


def _take_first(autotuner: Any) -> None:
    """Make the autotuner stop at the first configuration that runs, and keep no result of it on disk.

    The later configurations get no time at all: a program that stores the times of its autotuners would store infinite
    ones. Triton's own files are neither read nor written, because a later full search would take this choice for its
    own result.
    """
    prune, bench = autotuner.prune_configs, autotuner._bench

    def pruned(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._workbench_configs = _UntilFound(prune(self, *args, **kwargs))
        return self._workbench_configs

    def benched(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = bench(self, *args, **kwargs)
        self._workbench_configs.found = found[0] != math.inf if isinstance(found, list) else found != math.inf
        return found

    def not_from_disk(self: Any, key: Any, configs: Any, benchmark: Callable[[], None]) -> bool:
        benchmark()
        return False

    autotuner.prune_configs, autotuner._bench = pruned, benched
    autotuner.check_disk_cache = not_from_disk


def _device_of(value: Any) -> str | None:
    device = getattr(value, "device", None)
    return getattr(device, "type", None) if hasattr(value, "data_ptr") else None


def benchmark(
    fn: Callable[[], Any], warmup: int = 25, rep: int = 100, grad_to_none: Any = None, quantiles: Any = None,
    return_mode: str = "mean",
) -> Any:  # fmt: skip
    """Replace ``triton.testing.do_bench``: run ``fn`` once and return its predicted milliseconds.

    torch's own operators count with the time that the device's memory would need for their bytes.
    """
    import torch

    from workbench.driver.triton.timing import answered

    _say_predicted()
    for tensor in grad_to_none or ():
        tensor.grad = None
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    fn()
    end.record()
    torch.cuda.synchronize()
    milliseconds = start.elapsed_time(end) or math.nan
    return answered(milliseconds, quantiles, return_mode)


def benchmark_graph(
    fn: Callable[[], Any], rep: int = 20, grad_to_none: Any = None, quantiles: Any = None, return_mode: str = "mean"
) -> Any:
    """Replace ``triton.testing.do_bench_cudagraph``: run ``fn`` once and return its predicted milliseconds."""
    return benchmark(fn, 0, rep, grad_to_none, quantiles, return_mode)


_said = False


def _say_predicted() -> None:
    global _said
    from workbench.driver.triton.timing import warn_of_prediction

    driver = current()
    if not _said and driver is not None:
        _said = True
        warn_of_prediction(driver.model, stacklevel=4)
