"""Kernels of Helion and CuTe DSL, where they are installed: ``pip install helion nvidia-cutlass-dsl[cu13]``."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.errors import PredictedTimeWarning

pytestmark = pytest.mark.long


def test_a_helion_kernel_is_tuned_by_predicted_time_checked_and_traced(fresh_home, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(fresh_home / "inductor"))
    monkeypatch.setenv("HELION_CACHE_DIR", str(fresh_home / "helion"))
    monkeypatch.setenv("HELION_AUTOTUNE_BENCHMARK_SUBPROCESS", "0")  # another process has no simulated device
    helion = pytest.importorskip("helion")
    import helion_kernels

    x = torch.randn(64, 100)
    with warnings.catch_warnings(), wb.simulated_triton(checks=True, trace=True, force=True) as device:
        warnings.simplefilter("ignore", PredictedTimeWarning)
        torch.testing.assert_close(helion_kernels.softmax(x), torch.softmax(x, dim=1))
    assert device.findings == ()
    assert {launch.report.block[0] for launch in device.launches} == {32, 128}, "both configurations were tried"
    best = helion_kernels.softmax.bind((x,))._config
    assert isinstance(best, helion.Config)
    times = {launch.report.block[0]: launch.seconds for launch in device.launches}
    assert 32 * best.num_warps == min(times, key=times.get)
    assert any("tl.load(x" in line.text for line in device.launches[0].trace.lines)


def test_a_cute_kernel_with_shared_memory_and_mma_is_checked_and_traced(monkeypatch):
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_80")
    pytest.importorskip("cutlass")
    import cute_kernels

    a = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float16)
    b = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float16)
    launch = {"grid": 1, "block": 64, "shared_bytes": 768}
    found = {}
    for wait in (True, False):
        module = wb.load_ptx(cute_kernels.compiled(wait), device="sim")
        (kernel,) = (getattr(module, name) for name in dir(module) if name.startswith("kernel_cutlass"))
        c = np.zeros((16, 8), np.float32)
        found[wait] = wb.check_kernel(kernel, args=[a, b, c], **launch)
        if wait:
            np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32).T, rtol=1e-5, atol=1e-5)
            trace = wb.trace_kernel(kernel, args=[a, b, c], **launch)
    assert found[True].ok
    assert {one.kind for one in found[False]} >= {"shared race"}
    lines = Path(cute_kernels.__file__).read_text().splitlines()
    sides = {lines[line - 1].strip() for one in found[False] for line in (one.line, one.other_line) if line}
    assert any(text.startswith("shared_a[") for text in sides)
    assert any(text.startswith("cute.autovec_copy(own_a") for text in sides)
    assert any("cute.gemm" in line.text for line in trace.lines)
