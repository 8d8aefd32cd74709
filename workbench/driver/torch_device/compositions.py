"""Operators that torch only has for GPUs, composed of other operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from workbench.driver.torch_device import attention, block_scaled, sparse_tensors, varlen_attention

_libraries: list[torch.library.Library] = []


def register(names: Sequence[str]) -> None:
    """Register the compositions of the named operators, and those that replace torch's own for the host."""
    known = {name: one for name, one in _COMPOSITIONS.items() if f"aten::{name}" in names}
    library = torch.library.Library("aten", "IMPL", "CUDA")
    for name, composition in (known | _BETTER).items():
        library.impl(name, composition, allow_override=True)
    _libraries.extend([library, *sparse_tensors.register()])


def _mm(a: Tensor, b: Tensor, out_dtype: torch.dtype) -> Tensor:
    return torch.mm(a.to(out_dtype), b.to(out_dtype))


def _bmm(a: Tensor, b: Tensor, out_dtype: torch.dtype) -> Tensor:
    return torch.bmm(a.to(out_dtype), b.to(out_dtype))


def _addmm(c: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return torch.addmm(c.to(out_dtype), a.to(out_dtype), b.to(out_dtype), beta=beta, alpha=alpha)


def _baddbmm(c: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return torch.baddbmm(c.to(out_dtype), a.to(out_dtype), b.to(out_dtype), beta=beta, alpha=alpha)


def _into(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(*arguments: object, out: Tensor, **options: object) -> Tensor:
        made = function(*arguments, **options)
        return out.resize_(made.shape).copy_(made)

    return call


def _lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    gates = input_gates + hidden_gates
    if input_bias is not None and hidden_bias is not None:
        gates = gates + input_bias + hidden_bias
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def _lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = workspace.chunk(4, 1)
    tanh = cy.tanh()
    grad_h = torch.zeros_like(cy) if grad_hy is None else grad_hy
    grad = grad_h * o * (1 - tanh * tanh)
    if grad_cy is not None:
        grad = grad + grad_cy
    grad_gates = torch.cat(
        [
            grad * g * i * (1 - i), grad * cx * f * (1 - f), grad * i * (1 - g * g), grad_h * tanh * o * (1 - o)
        ], 1,
    )  # fmt: skip
    return grad_gates, grad * f, grad_gates.sum(0) if has_bias else None


def _gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if input_bias is not None and hidden_bias is not None:
        input_gates, hidden_gates = input_gates + input_bias, hidden_gates + hidden_bias
    ir, iz, new = input_gates.chunk(3, 1)
    hr, hz, hn = hidden_gates.chunk(3, 1)
    reset, update = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    new = (new + reset * hn).tanh()
    return new + update * (hx - new), torch.cat([reset, update, new, hx, hn], 1)


def _gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    reset, update, new, hx, hn = workspace.chunk(5, 1)
    grad_update = grad_hy * (hx - new) * update * (1 - update)
    grad_new = grad_hy * (1 - update) * (1 - new * new)
    grad_reset = grad_new * hn * reset * (1 - reset)
    grad_input = torch.cat([grad_reset, grad_update, grad_new], 1)
    grad_hidden = torch.cat([grad_reset, grad_update, grad_new * reset], 1)
    biases = (grad_input.sum(0), grad_hidden.sum(0)) if has_bias else (None, None)
    return grad_input, grad_hidden, grad_hy * update, *biases


def _fused_dropout(x: Tensor, p: float, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    mask = torch.empty_like(x, dtype=torch.uint8).bernoulli_(p, generator=generator)
    return x * mask / p, mask


def _masked_scale(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    return x * mask * scale


def _rms_norm_backward(
    grad: Tensor, x: Tensor, normalized_shape: Sequence[int], rstd: Tensor, weight: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    axes = list(range(x.dim() - len(normalized_shape), x.dim()))
    wide, upstream = x.float() if x.dtype.itemsize < 4 else x, grad.float() if grad.dtype.itemsize < 4 else grad
    normalized = wide * rstd
    scaled = upstream if weight is None else upstream * weight
    grad_x = grad_weight = None
    if output_mask[0]:
        grad_x = (rstd * (scaled - normalized * (scaled * normalized).mean(axes, keepdim=True))).to(x.dtype)
    if output_mask[1] and weight is not None:
        outer = list(range(x.dim() - len(normalized_shape)))
        total = upstream * normalized
        grad_weight = (total.sum(outer) if outer else total).to(weight.dtype)
    return grad_x, grad_weight


def _never(*arguments: object, **options: object) -> bool:
    return False


_BETTER: dict[str, Callable[..., object]] = {"_scaled_mm": block_scaled.scaled_mm}
_COMPOSITIONS: dict[str, Callable[..., object]] = {
    "mm.dtype": _mm,
    "mm.dtype_out": _into(_mm),
    "bmm.dtype": _bmm,
    "bmm.dtype_out": _into(_bmm),
    "addmm.dtype": _addmm,
    "addmm.dtype_out": _into(_addmm),
    "baddbmm.dtype": _baddbmm,
    "baddbmm.dtype_out": _into(_baddbmm),
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
    "_fused_dropout": _fused_dropout,
    "_masked_scale": _masked_scale,
    "_fused_rms_norm_backward": _rms_norm_backward,
    "_scaled_dot_product_flash_attention": attention.flash,
    "_scaled_dot_product_flash_attention_backward": attention.flash_backward,
    "_scaled_dot_product_efficient_attention": attention.efficient,
    "_scaled_dot_product_efficient_attention_backward": attention.efficient_backward,
    "_scaled_dot_product_cudnn_attention": attention.cudnn,
    "_scaled_dot_product_cudnn_attention_backward": attention.cudnn_backward,
    "_flash_attention_forward": varlen_attention.flash,
    "_flash_attention_forward_no_dropout_inplace": varlen_attention.flash_into,
    "_flash_attention_backward": varlen_attention.flash_backward,
    "_cudnn_attention_forward": varlen_attention.cudnn,
    "_cudnn_attention_backward": varlen_attention.cudnn_backward,
    "_efficient_attention_forward": varlen_attention.efficient,
    "_efficient_attention_backward": varlen_attention.efficient_backward,
    "_use_cudnn_ctc_loss": _never,
    "_use_cudnn_ctc_loss.Tensor": _never,
    "_use_miopen_ctc_loss": _never,
    "_use_miopen_ctc_loss.Tensor": _never,
}
