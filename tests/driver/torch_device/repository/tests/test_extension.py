import pytest
import torch
from kernels import extension


@pytest.mark.parametrize("n", [1, 255, 256, 1000])
def test_axpy(device, n):
    x, y = torch.randn(n, device=device), torch.randn(n, device=device)
    expected = y + 2 * x
    torch.testing.assert_close(extension.built().axpy(2.0, x, y), expected)
