"""Fourier transforms of half precision on torch's simulated device, which torch's CPU does not have."""

import pytest
import torch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("transform", ["fft", "ifft", "rfft", "hfft", "ihfft", "fft2", "irfft"])
def test_half_transform(transform):
    """Compare a transform and its gradient with those in float32."""
    function = getattr(torch.fft, transform)
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(0)).half()
    if transform in ("hfft", "irfft"):
        x = torch.fft.rfft(x.float()).to(torch.complex32)  # 17 of 32
    wide = x.to(torch.complex64 if x.is_complex() else torch.float32).requires_grad_()
    half = x.cuda().requires_grad_()
    expected, found = function(wide), function(half)
    assert found.dtype == (torch.complex32 if expected.is_complex() else torch.float16)
    weights = torch.linspace(0, 1, expected.numel()).reshape(expected.shape)
    (gradient,) = torch.autograd.grad(expected, wide, weights.to(expected.dtype))
    (found_gradient,) = torch.autograd.grad(found, half, weights.to(found.dtype).cuda())
    # On an H100 one of 128 values of hfft was off by 0.046.
    for one, other in ((found, expected), (found_gradient, gradient)):
        torch.testing.assert_close(one.detach().cpu().to(other.dtype), other.detach(), rtol=2e-3, atol=6e-2)
