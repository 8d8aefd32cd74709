"""Benchmarks of TileLang and Helion on the simulated device: one launch and its predicted time.

Both measure as ``triton.testing.do_bench`` does, with functions of their own: thousands of launches, which all have the
same predicted time here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from workbench.driver.imports import when_imported


def follow(first_config: bool = False) -> None:
    """Make the benchmarks of TileLang and Helion predict times, once they are imported.

    With ``first_config`` Helion takes the default configuration of a kernel instead of tuning it.
    """
    when_imported("tilelang.profiler.bench", lambda: _exchange("tilelang.profiler.bench", do_bench=_bench))
    when_imported("helion.autotuner.benchmarking", lambda: _exchange("helion.autotuner.benchmarking", **_OF_HELION))
    if first_config:
        os.environ.setdefault("HELION_AUTOTUNE_EFFORT", "none")


def _exchange(module: str, **functions: Callable[..., Any]) -> None:
    vars(sys.modules[module]).update(functions)


def _bench(fn: Callable[[], Any], *_: Any, quantiles: Any = None, return_mode: str = "mean", **options: Any) -> Any:
    from workbench.driver.torch_device.triton_kernels import benchmark

    return benchmark(fn, quantiles=quantiles, return_mode=return_mode, grad_to_none=options.get("grad_to_none"))


def _bench_all(fns: Sequence[Callable[[], Any]], **_: Any) -> list[float]:
    return [_bench(fn) for fn in fns]


_OF_HELION: dict[str, Callable[..., Any]] = {
    "do_bench": _bench,
    "do_bench_cuda_graph": _bench,
    "interleaved_bench": _bench_all,
    "compute_repeat": lambda fn, **options: 1,
}
