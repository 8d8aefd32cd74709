"""Tensor maps and clusters on a GPU of compute capability 9.0, or on the simulated one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import workbench as wb
from workbench.errors import ArgumentError

pytestmark = pytest.mark.gpu

SOURCE = Path(__file__).parents[1] / "ptx" / "cuda_hopper.cu"
STEPS = 4


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
