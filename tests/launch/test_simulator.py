"""The device "sim": results, the report, limits, and errors that name their cause."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import workbench as wb
from workbench.errors import ArgumentError, KernelFault, KernelTimeout
from workbench.launch import devices
from workbench.toolchain import compile_cuda, compile_triton

SOURCE = """
extern "C" __global__ void saxpy(float *y, const float *x, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void reversed(int *x)
{
    extern __shared__ int tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void for_ever(volatile int *x) { for (int n = 0; *x == 0; ++n) x[1] = n; }
"""


@triton.jit
def _sum(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0)))


@pytest.fixture
def sim() -> devices.Device:
    return devices.get("sim")


def test_tensors_and_arrays_are_changed_in_place(sim: devices.Device):
    kernel = compile_cuda(SOURCE, "saxpy")
    x, y = torch.randn(1000), torch.randn(1000)
    expected = y + 2.5 * x
    report = sim.launch(kernel, 8, 128, [y, x, 2.5, 1000])
    torch.testing.assert_close(y, expected)
    assert report.instructions > 0
    array = np.ones(1000, np.float32)
    sim.launch(kernel, 8, 128, [array, x.numpy(), 2.0, 1000])
    np.testing.assert_allclose(array, 1 + 2 * x.numpy(), rtol=1e-6)


def test_statistics_on_request(sim: devices.Device):
    x, y = torch.randn(1024), torch.randn(1024)
    report = sim.launch(compile_cuda(SOURCE, "saxpy"), 8, 128, [y, x, 2.5, 1024], statistics=True)
    assert report.sectors_per_request == 4, "coalesced: 32 lanes of 4 bytes"


def test_dynamic_shared_memory(sim: devices.Device):
    x = torch.arange(128, dtype=torch.int32)
    sim.launch(compile_cuda(SOURCE, "reversed"), 1, 128, [x], shared_bytes=512)
    assert x.tolist() == list(range(127, -1, -1))


def test_dynamic_shared_memory_named_when_compiling(sim: devices.Device):
    x = torch.arange(128, dtype=torch.int32)
    sim.launch(compile_cuda(SOURCE, "reversed", dynamic_shared_bytes=512), 1, 128, [x])
    assert x.tolist() == list(range(127, -1, -1))


def test_too_little_shared_memory_is_a_fault(sim: devices.Device):
    with pytest.raises(KernelFault):
        sim.launch(compile_cuda(SOURCE, "reversed"), 1, 128, [torch.zeros(128, dtype=torch.int32)], shared_bytes=508)


def test_out_of_bounds_is_a_fault(sim: devices.Device):
    with pytest.raises(KernelFault):
        sim.launch(compile_cuda(SOURCE, "saxpy"), 8, 128, [torch.zeros(1000), torch.zeros(1000), 1.0, 1001])


def test_limits_stop_a_kernel(sim: devices.Device):
    kernel, zero = compile_cuda(SOURCE, "for_ever"), torch.zeros(2, dtype=torch.int32)
    with pytest.raises(KernelTimeout):
        sim.launch(kernel, 1, 32, [zero], instruction_limit=100_000)
    with pytest.raises(KernelTimeout):
        sim.launch(kernel, 1, 32, [zero], seconds_limit=0.2)


def test_a_triton_kernel_runs_without_naming_its_scratch(sim: devices.Device):
    kernel = compile_triton(_sum, {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 256})
    x, out = torch.arange(256, dtype=torch.float32), torch.zeros(1)
    sim.launch(kernel, 1, 128, [x, out, 200])
    assert out.item() == 199 * 200 / 2


@triton.jit
def _copied(x, out, rows, cols, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    source = tl.make_tensor_descriptor(x, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    target.store([row, column], source.load([row, column]))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_kernel_that_builds_tensor_descriptors_has_memory_for_them(sim: devices.Device, arch: str):
    types = {"x": "*fp32", "out": "*fp32", "rows": "i32", "cols": "i32"}
    kernel = compile_triton(_copied, types, {"BLOCK": 16}, arch=arch)
    assert kernel.scratch_bytes == (256 if arch == "sm_90" else 0)
    x, out, checked = torch.rand(40, 36), torch.zeros(40, 36), torch.zeros(40, 36)
    sim.launch(kernel, (3, 3), 128, [x, out, 40, 36])
    assert torch.equal(out, x)
    assert wb.check_kernel(kernel, grid=(3, 3), args=(x, checked, 40, 36)).ok
    assert torch.equal(checked, x)


def test_nothing_is_written_when_an_argument_is_wrong(sim: devices.Device):
    y = torch.zeros(128)
    with pytest.raises(ArgumentError, match=r"saxpy\(\): argument 3 'n'"):
        sim.launch(compile_cuda(SOURCE, "saxpy"), 1, 128, [y, torch.ones(128), 1.0, 128.0])
    assert not y.any()


def test_a_tensor_elsewhere_is_refused(sim: devices.Device):
    elsewhere = torch.zeros(4, device="meta")
    with pytest.raises(ArgumentError, match=r"'y'.*meta.*cpu"):
        sim.launch(compile_cuda(SOURCE, "saxpy"), 1, 32, [elsewhere, torch.ones(4), 1.0, 4])
