"""Tensor maps and clusters on a GPU of compute capability 9.0, or on the simulated one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import workbench as wb
from workbench.attention import causal_attention
from workbench.errors import ArgumentError
from workbench.launch import devices
from workbench.toolchain import compile_triton

pytestmark = pytest.mark.gpu

SOURCE = Path(__file__).parents[1] / "ptx" / "cuda_hopper.cu"
STEPS = 4


@triton.jit
def copied(x, out, rows, cols, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    source = tl.make_tensor_descriptor(x, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    target.store([row, column], source.load([row, column]))


@pytest.fixture(scope="module")
def kernels():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("code for sm_90a runs on compute capability 9.0 alone")
    return wb.load_cuda(SOURCE, arch="sm_90a", device="cuda")


def test_a_pipeline_of_tensor_copies_and_products(kernels) -> None:
    a, b = (torch.randn(rows, 64 * STEPS, device="cuda").half() for rows in (64, 8))
    out = torch.zeros(64, 8, device="cuda")
    maps = wb.TensorMap.of(a, (64, 64), swizzle=128), wb.TensorMap.of(b, (8, 64), swizzle=128)
    kernels.pipeline(1, 160, *maps, out, STEPS)
    torch.testing.assert_close(out.cpu(), (a.double() @ b.double().T).float().cpu(), rtol=0, atol=1e-3)


def test_a_cluster_that_the_kernel_requires(kernels) -> None:
    x, sums = torch.randn(3, 512, device="cuda"), torch.zeros(3, device="cuda")
    kernels.row_sums(12, 32, sums, x, 512)
    torch.testing.assert_close(sums.cpu(), x.sum(1).cpu(), rtol=0, atol=1e-3)
    with pytest.raises(ArgumentError, match="__cluster_dims__"):
        kernels.row_sums(12, 32, sums, x, 512, cluster=2)


def test_a_kernel_that_builds_tensor_descriptors(kernels) -> None:
    """Compiled ahead of time: the launch brings the memory that they are built in."""
    types = {"x": "*fp32", "out": "*fp32", "rows": "i32", "cols": "i32"}
    kernel = compile_triton(copied, types, {"BLOCK": 16}, arch="sm_90")
    x, out = torch.rand(40, 36, device="cuda"), torch.zeros(40, 36, device="cuda")
    devices.get("cuda").launch(kernel, (3, 3), 128, [x, out, 40, 36])
    assert torch.equal(out, x)


@pytest.mark.long
def test_attention_by_descriptors(kernels) -> None:
    """Through Triton's own launcher, which asks an allocator for that memory; that of the caller stays."""
    asked = []

    def allocate(size, alignment, stream):
        asked.append(size)
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    triton.set_allocator(allocate)
    query, key, value = (torch.randn(2, heads, 70, 64, device="cuda").half() for heads in (2, 1, 1))
    found = causal_attention(query, key, value, variant="triton_descriptors")
    expected = causal_attention(*(side.double().cpu() for side in (query, key, value)))
    torch.testing.assert_close(found.cpu().double(), expected, rtol=0, atol=4e-3)
    assert asked == []
    x, out = torch.rand(16, 16, device="cuda"), torch.zeros(16, 16, device="cuda")
    copied[(1, 1)](x, out, 16, 16, BLOCK=16)
    assert torch.equal(out, x)
    assert asked == [256]
