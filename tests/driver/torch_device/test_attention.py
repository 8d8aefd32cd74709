"""Attention chosen by name on torch's simulated device, against torch's own composition in float64."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

pytestmark = pytest.mark.gpu

CASES = {
    "plain": (SDPBackend.FLASH_ATTENTION, torch.float16, 4, False, False),
    "causal": (SDPBackend.FLASH_ATTENTION, torch.bfloat16, 4, True, False),
    "groups": (SDPBackend.FLASH_ATTENTION, torch.float16, 2, True, False),
    "efficient": (SDPBackend.EFFICIENT_ATTENTION, torch.float32, 4, True, False),
    "cudnn": (SDPBackend.CUDNN_ATTENTION, torch.float16, 4, True, False),
    "bias": (SDPBackend.EFFICIENT_ATTENTION, torch.float16, 4, False, True),
}


def gradients(tensors, bias, **options):
    """Return the result and the gradients of its sum with weights."""
    leaves = [one.detach().clone().requires_grad_() for one in (*tensors, *([] if bias is None else [bias]))]
    out = scaled_dot_product_attention(*leaves[:3], attn_mask=None if bias is None else leaves[3], **options)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape).to(out)
    return out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)


@pytest.mark.parametrize("case", CASES)
def test_attention_by_name(case):
    """Compare results and all gradients."""
    backend, dtype, kv_heads, causal, biased = CASES[case]
    torch.manual_seed(0)
    query = torch.randn(2, 4, 40, 16, dtype=dtype)
    key, value = (torch.randn(2, kv_heads, 40, 16, dtype=dtype) for _ in range(2))
    bias = torch.randn(2, 4, 40, 40, dtype=dtype) if biased else None
    options = {"is_causal": causal, "enable_gqa": kv_heads != 4}
    expected = gradients([one.double() for one in (query, key, value)], bias.double() if biased else None, **options)
    with sdpa_kernel(backend):
        found = gradients([one.cuda() for one in (query, key, value)], bias.cuda() if biased else None, **options)
    tolerance = 8 * torch.finfo(dtype).eps
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double().cpu(), other, rtol=tolerance, atol=tolerance)


def test_dropout_is_the_same_in_backward():
    """Recover the weights of a dropped-out attention from its gradient: the value's gradient is linear in them."""
    query, key = (torch.randn(1, 1, 16, 16, dtype=torch.float16, device="cuda") for _ in range(2))
    value = torch.eye(16, dtype=torch.float16, device="cuda")[None, None].requires_grad_()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        weights = scaled_dot_product_attention(query, key, value, dropout_p=0.5)
        weights.backward(torch.eye(16, dtype=torch.float16, device="cuda")[None, None])
    assert (weights == 0).float().mean().item() == pytest.approx(0.5, abs=0.15)
    torch.testing.assert_close(value.grad, weights.detach().transpose(-2, -1))
