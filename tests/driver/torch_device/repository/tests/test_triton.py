import pytest
import torch
from kernels import triton_kernels


@pytest.mark.parametrize("n", [1, 100, 256, 1000, 4096])
def test_add(device, n):
    x, y = torch.randn(n, device=device), torch.randn(n, device=device)
    torch.testing.assert_close(triton_kernels.add(x, y), x + y)


@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (8, 128), (5, 300)])
def test_softmax(device, shape):
    x = torch.randn(shape, device=device)
    torch.testing.assert_close(triton_kernels.softmax(x), torch.softmax(x, -1))


@pytest.mark.parametrize("shape", [(32, 32, 32), (16, 48, 20), (65, 33, 40)])
def test_matmul(device, shape):
    m, n, k = shape
    a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
    torch.testing.assert_close(triton_kernels.matmul(a, b), a @ b, rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("n", [1, 128, 1000])
def test_total(device, n):
    x = torch.randn(n, device=device)
    torch.testing.assert_close(triton_kernels.total(x)[0], x.sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [1, 100, 1000])
def test_scale(device, n):
    x = torch.randn(n, device=device)
    torch.testing.assert_close(triton_kernels.scale(x, 3.0), x * 3)


def test_total_without_atomics(device):
    x = torch.ones(256, device=device)
    assert triton_kernels.total(x, atomic=False).shape == (1,)


def test_scale_without_a_mask(device):
    x = torch.ones(100, device=device)
    torch.testing.assert_close(triton_kernels.scale(x, 3.0, masked=False), x * 3)
