"""Replacement of Triton's driver, and of the parts of Triton 3.7 that have no hook, during a session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.base.home import cache_part
from workbench.toolchain.triton_aot import ONE_AT_A_TIME

if TYPE_CHECKING:
    from workbench.driver.triton.session import TritonSession

running: list[TritonSession] = []
"""The sessions that are open, the active one last."""

_kept: dict[str, Any] = {}


def start(session: TritonSession) -> None:
    """Make a session the active one."""
    from triton.runtime import driver

    with ONE_AT_A_TIME:
        if not running:
            _replace()
        session.previous = driver._active
        running.append(session)
        driver.set_active(session.driver)


def stop(session: TritonSession) -> None:
    """Give Triton back the driver it had before the session; do nothing if the session has ended."""
    from triton.runtime import driver

    with ONE_AT_A_TIME:
        if session not in running:
            return
        at = running.index(session)
        if at + 1 < len(running):  # an inner session is still active, and has to restore this one's driver
            running[at + 1].previous = session.previous
        elif driver._active is session.driver:
            driver.set_active(session.previous)
        running.remove(session)
        if not running:
            _restore()


def _replace() -> None:
    """Replace the parts of Triton 3.7 without a hook: its class of compiled kernels, ``triton.testing``'s clocks."""
    import triton.testing
    from triton import knobs
    from triton.compiler import compiler
    from triton.runtime import JITFunction
    from triton.runtime.autotuner import Autotuner

    from workbench.driver.triton import kernel as triton_kernel
    from workbench.driver.triton import timing as triton_timing
    from workbench.driver.triton.arguments import naming_arguments

    _kept["hook"] = knobs.runtime.add_stages_inspection_hook
    knobs.runtime.add_stages_inspection_hook = triton_kernel.WithoutAssembler(_kept["hook"])
    _kept["kernel"], compiler.CompiledKernel = compiler.CompiledKernel, triton_kernel.TritonKernel
    _kept["run"], Autotuner.run = Autotuner.run, _run_autotuned
    _kept["launch"] = JITFunction.run
    _kept["naming"] = JITFunction.run = naming_arguments(JITFunction.run)
    for name in ("do_bench", "do_bench_cudagraph"):
        _kept[name] = getattr(triton.testing, name)
    triton.testing.do_bench = triton_timing.benchmark
    triton.testing.do_bench_cudagraph = triton_timing.benchmark_graph
    # Keep kernels without machine code, and autotuners' predicted times, apart from those of a GPU.
    _kept["cache"] = os.environ.get("TRITON_CACHE_DIR")
    given = _kept["cache"]
    os.environ["TRITON_CACHE_DIR"] = str(cache_part("triton") if given is None else Path(given) / "simulated")


def _restore() -> None:
    import triton.testing
    from triton import knobs
    from triton.compiler import compiler
    from triton.runtime import JITFunction
    from triton.runtime.autotuner import Autotuner

    from workbench.driver.triton import kernel as triton_kernel

    if JITFunction.run is _kept["naming"]:
        JITFunction.run = _kept["launch"]
    if isinstance(knobs.runtime.add_stages_inspection_hook, triton_kernel.WithoutAssembler):
        knobs.runtime.add_stages_inspection_hook = _kept["hook"]
    compiler.CompiledKernel = _kept["kernel"]
    Autotuner.run = _kept["run"]
    for name in ("do_bench", "do_bench_cudagraph"):
        setattr(triton.testing, name, _kept[name])
    if _kept["cache"] is None:
        os.environ.pop("TRITON_CACHE_DIR", None)
    else:
        os.environ["TRITON_CACHE_DIR"] = _kept["cache"]
    _kept.clear()


def _run_autotuned(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """Run Triton's ``Autotuner.run``; if launches are checked, also check the effect of the trials on the arguments."""
    from workbench.driver.triton import tuning as triton_tuning

    session, original = running[-1], _kept["run"]
    if not session.checked:
        return original(tuner, *args, **kwargs)
    return triton_tuning.run(session, tuner, original, args, kwargs)
