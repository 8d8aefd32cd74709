"""Host time of an eager launch, in a process of its own: ``python -m benchmarks.launch_overhead``.

It covers the work of a variant, the device "cuda" and the real PyCUDA until the driver gets the launch. The driver is
the simulated one, whose launches do nothing. Tensors are in host memory but are treated as if on the device.
``torch.empty`` is timed in turn with the launches, so that the ratio is comparable between computers.
"""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from workbench import ops
from workbench.driver import hooks, simulated_driver
from workbench.launch.gpu import Gpu
from workbench.tuning.bench.results import in_turn

VARIANTS = (("paged_attention", "cuda_thread_group"), ("paged_attention", "cuda_grouped_mma"))
_ROUNDS, _EACH = 20, 50


class _HostGpu(Gpu):
    """A device "cuda" that accepts tensors in host memory."""

    def __init__(self, driver: Any):
        stream = SimpleNamespace(cuda_stream=0)
        cuda = SimpleNamespace(
            current_device=lambda: 0,
            current_stream=lambda index: stream,
            get_device_capability=lambda index=0: (9, 0),
            is_current_stream_capturing=lambda: False,
            get_device_name=lambda index=0: "no device",
        )
        self._attach(driver, SimpleNamespace(cuda=cuda))

    def _index_of(self, value: Any) -> int | None:
        return 0


def measure() -> dict[str, float]:
    """Measure the median seconds of one call of ``torch.empty`` and of each variant."""
    setattr(hooks.Machine, "_launch", lambda machine, launch: None)  # noqa: B010, a method
    simulated_driver(force=True)
    import pycuda.driver

    pycuda.driver.init()
    device = _HostGpu(pycuda.driver)
    runs: dict[str, Callable[[], object]] = {"torch.empty": lambda: torch.empty(4, 32, 128)}
    for op, name in VARIANTS:
        variant = ops.get(op).variant(name)
        case = ops.get(op).case("llama-3-8b", layout=variant.layouts[0])
        config = variant.default_config(case.problem(arch=device.arch))
        problem = case.problem(config, arch=device.arch)
        tensors = case.inputs(problem)
        runs[f"{op}/{name}"] = functools.partial(variant.run, config, problem, tensors, device)
    for run in runs.values():
        run()
    taken = in_turn({name: _repeated(run) for name, run in runs.items()}, _ROUNDS, time.thread_time)
    return {name: statistics.median(seconds) / _EACH for name, seconds in taken.items()}


def _repeated(run: Callable[[], object]) -> Callable[[], None]:
    def work() -> None:
        for _ in range(_EACH):
            run()

    return work


if __name__ == "__main__":
    print(json.dumps(measure()))
