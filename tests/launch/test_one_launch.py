"""One launch: how many calls a warm one takes, and one entry that checks and traces whatever is launched."""

from __future__ import annotations

import collections
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import workbench as wb
from workbench.errors import ArgumentError
from workbench.toolchain import compile_cuda

ROOT = str(Path(wb.__file__).parent)
MOST_CALLS = 50
SOURCE = """
extern "C" __global__ void saxpy(float *y, const float *x, float a, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += a * x[i]; }
"""


@triton.jit
def doubled(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@pytest.fixture(scope="module")
def module():
    return wb.load_cuda(SOURCE, device="sim")


def calls_of(function) -> collections.Counter:
    """Count the calls of each function of the package, by its name."""
    found: collections.Counter = collections.Counter()

    def profile(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            found[frame.f_code.co_qualname] += 1

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize(
    "zeros", [lambda: np.zeros(1024, np.float32), lambda: torch.zeros(1024)], ids=["numpy", "torch"]
)
def test_a_warm_launch_takes_few_calls_and_looks_at_each_argument_once(module, zeros):
    y, x = zeros(), zeros()

    def launch():
        module.saxpy(4, 256, y, x, 2.0, 1024)

    launch()
    calls = calls_of(launch)
    assert sum(calls.values()) <= MOST_CALLS, calls
    assert calls["KernelSignature.take"] == calls["KernelSignature.pack"] == calls["BlockRules.check"] == 1
    assert calls["Rule.array"] == 2  # one for each array; plain numbers need none
    assert calls["Rule.number"] == 0
    assert calls["dimensions"] == 2  # grid and block


def test_a_second_run_of_a_bound_launch_checks_nothing_again(module):
    y, x = np.zeros(1024, np.float32), np.ones(1024, np.float32)
    kernel = module.saxpy
    bound = module._device.bind(kernel.compiled, 4, 256, [y, x, 2.0, 1024], signature=kernel.signature)
    calls = calls_of(bound.run)
    assert not {"KernelSignature.take", "KernelSignature.pack", "BlockRules.check", "place"} & calls.keys()
    bound.run(statistics=True)
    assert set(y.tolist()) == {4.0}


@pytest.mark.parametrize("kind", ["loaded", "compiled", "triton"])
def test_check_and_trace_take_every_kind_of_kernel(module, kind: str):
    out, x = torch.zeros(100), torch.ones(100)
    if kind == "triton":
        launch = {"grid": (4,), "args": (out, x, 100), "kwargs": {"BLOCK": 32}}
    else:
        launch = {"grid": 4, "block": 32, "args": (out, x, 2.0, 100)}
    kernel = {"loaded": module.saxpy, "compiled": compile_cuda(SOURCE, "saxpy"), "triton": doubled}[kind]
    report = wb.check(kernel, **launch)
    assert report.ok
    assert str(report) == str(wb.check_kernel(kernel, **launch))
    traced = wb.trace(kernel, **launch)
    assert traced.instructions == wb.trace_kernel(kernel, **launch).instructions > 0
    launch["args"] = (out[:50], *launch["args"][1:])
    with pytest.raises(wb.WorkbenchError, match="out-of-bounds"):
        wb.trace(kernel, **launch)


def test_each_refuses_what_only_the_other_has(module):
    with pytest.raises(ArgumentError, match=r"candidate: got 'x\.cu'; allowed: no value with a kernel"):
        wb.check(module.saxpy, "x.cu", grid=1)
    with pytest.raises(ArgumentError, match="seeds: got 3; allowed: no value with a kernel"):
        wb.check(module.saxpy, seeds=3, grid=1)
    with pytest.raises(ArgumentError, match="variant: got 'cuda'; allowed: no value with a kernel"):
        wb.trace(module.saxpy, variant="cuda", grid=1)
    for function in (wb.check, wb.trace):
        with pytest.raises(ArgumentError, match="grid: got 4; allowed: no value with an op"):
            function("copy_blocks", grid=4)
        with pytest.raises(TypeError, match="unexpected keyword argument 'gird'"):
            function("copy_blocks", gird=4)


def test_an_argument_is_checked_the_same_whoever_launches(module):
    """The machine by itself knows the PTX's names only; checks, traces and launches say the same."""
    from workbench.ptx import Program

    compiled, y = module.saxpy.compiled, np.zeros(4, np.float32)
    told = set()
    for launch in (
        lambda args: module.saxpy(1, 32, *args),
        lambda args: wb.check(module.saxpy, grid=1, block=32, args=args),
        lambda args: wb.trace(compiled, grid=1, block=32, args=args),
        lambda args: module._device.launch(compiled, 1, 32, args),
    ):
        with pytest.raises(ArgumentError) as caught:
            launch([y, y, 2.0, 1.5])
        told.add(str(caught.value))
    assert told == {"saxpy(): argument 3 'n': got float; allowed: an integer (u32). Pass a value of that type."}
    with pytest.raises(ArgumentError, match=r"saxpy\(\): argument 3 'saxpy_param_3': got float"):
        Program.from_text(compiled.ptx)["saxpy"].launch(1, 32, [y, y, 2.0, 1.5])
