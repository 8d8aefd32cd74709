"""Attention operators that torch only has for GPUs (flash, memory-efficient, cuDNN), composed of products and softmax.

A program reaches them through `torch.nn.attention.sdpa_kernel`. Like torch's kernels they compute in float32 and round
once; ``is_causal`` aligns the mask to the top left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_LSE_ALIGNMENT = 32  # the memory-efficient kernel pads its rows of log_sumexp


class Dropout(NamedTuple):
    """Dropout of the weights: the probability of a zero, and the seed of the draw."""

    p: float
    seed: int

    @classmethod
    def of(cls, p: float, seed: Tensor) -> Dropout:
        """Return the dropout for a seed from `draw_seed`."""
        return cls(p, number(seed, p))


class Attention:
    """One attention in float32 (float64 for float64 inputs), with key and value heads repeated to match the query's.

    ``mask`` is True for the scores that count; None counts all.
    """

    def __init__(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, mask: Tensor | None,
        dropout: Dropout, scale: float | None,
    ) -> None:  # fmt: skip
        wide = torch.promote_types(query.dtype, torch.float32)
        self.groups = query.size(1) // key.size(1)
        self.query = query.to(wide)
        self.key, self.value = (one.to(wide).repeat_interleave(self.groups, 1) for one in (key, value))
        self.scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
        scores = self.query @ self.key.transpose(-2, -1) * self.scale
        if bias is not None:
            scores = scores + bias
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        self.lse = scores.logsumexp(-1)
        self.weights = (scores - self.lse.unsqueeze(-1)).exp().nan_to_num(0.0)  # a row that is masked out: 0
        self.kept: Tensor | float = 1.0
        if dropout.p > 0:
            generator = torch.Generator(query.device).manual_seed(dropout.seed)
            self.kept = torch.empty_like(self.weights).bernoulli_(1 - dropout.p, generator=generator) / (1 - dropout.p)

    def output(self) -> Tensor:
        """Return the attention output: the values, weighted after dropout."""
        return (self.weights * self.kept) @ self.value

    def gradients(self, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the gradients of query, key, value and scores for the gradient of the output."""
        grad = grad.to(self.query.dtype)
        grad_weights = grad @ self.value.transpose(-2, -1) * self.kept
        grad_scores = self.weights * (grad_weights - (grad_weights * self.weights).sum(-1, keepdim=True))
        grad_query = grad_scores @ self.key * self.scale
        grad_key = grad_scores.transpose(-2, -1) @ self.query * self.scale
        grad_value = (self.weights * self.kept).transpose(-2, -1) @ grad
        return grad_query, self._by_group(grad_key), self._by_group(grad_value), grad_scores

    def _by_group(self, grad: Tensor) -> Tensor:
        return grad.unflatten(1, (-1, self.groups)).sum(2)


def top_left(query: Tensor, key: Tensor, is_causal: bool) -> Tensor | None:
    """Return the causal mask [queries, keys], aligned to the top left; None unless ``is_causal``."""
    if not is_causal:
        return None
    return torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()


def draw_seed(query: Tensor, dropout_p: float) -> Tensor:
    """Draw the seed of one attention's dropout, which its backward pass uses again; zeros without dropout."""
    if dropout_p == 0:
        return torch.zeros(2, dtype=torch.uint64, device=query.device)
    return torch.randint(2**62, (2,), device=query.device).view(torch.uint64)


def number(seed: Tensor, dropout_p: float) -> int:
    """Return the value of a seed from `draw_seed`; 0 without dropout, because reading it would end a graph capture."""
    return int(seed.reshape(-1)[0].long()) if dropout_p > 0 else 0


def philox(seed: Tensor) -> tuple[Tensor, Tensor]:
    """Return seed and offset as the operators return them, two scalar tensors, for a seed from `draw_seed`."""
    return seed.view(torch.int64)[0].clone(), torch.zeros((), dtype=torch.int64, device=seed.device)


def padded_lse(lse: Tensor, length: int, wanted: bool) -> Tensor:
    """Return log_sumexp [..., tokens] padded like the memory-efficient kernel's, or empty unless ``wanted``.

    The last dimension is ``length``, rounded up to a multiple of 32.
    """
    rows = math.ceil(length / _LSE_ALIGNMENT) * _LSE_ALIGNMENT if wanted else 0
    return torch.nn.functional.pad(lse, (0, rows - lse.size(-1)), value=math.inf).float()


def _like(grad: Tensor, one: Tensor) -> Tensor:
    return torch.empty_like(one).copy_(grad)


def _three_gradients(made: Attention, grad: Tensor, *of: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (_like(found, one) for found, one in zip(made.gradients(grad), of, strict=False))
    return query, key, value


def flash(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, *, scale: float | None = None,
) -> tuple[Tensor, Tensor, None, None, int, int, Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute ``_scaled_dot_product_flash_attention`` of [batch, heads, length, head size]."""
    seed = draw_seed(query, dropout_p)
    made = Attention(query, key, value, None, top_left(query, key, is_causal), Dropout.of(dropout_p, seed), scale)
    unused = torch.zeros((), dtype=torch.uint64, device=query.device)
    mask = (made.weights * made.kept).to(query.dtype) if return_debug_mask else query.new_empty(0)
    return _like(made.output(), query), made.lse, None, None, query.size(2), key.size(2), seed, unused, mask


def flash_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    cum_seq_q: Tensor | None, cum_seq_k: Tensor | None, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
    philox_seed: Tensor, philox_offset: Tensor, *, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute ``_scaled_dot_product_flash_attention_backward``: the gradients of query, key and value."""
    made = Attention(
        query, key, value, None, top_left(query, key, is_causal), Dropout.of(dropout_p, philox_seed), scale
    )
    return _three_gradients(made, grad_out, query, key, value)


def efficient(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute ``_scaled_dot_product_efficient_attention`` of [batch, heads, length, head size]."""
    seed = draw_seed(query, dropout_p)
    made = Attention(query, key, value, attn_bias, top_left(query, key, is_causal), Dropout.of(dropout_p, seed), scale)
    out = made.output().to(query.dtype).transpose(1, 2).contiguous().transpose(1, 2)
    return out, padded_lse(made.lse, query.size(2), compute_log_sumexp), *philox(seed)


def efficient_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, out: Tensor,
    logsumexp: Tensor, philox_seed: Tensor, philox_offset: Tensor, dropout_p: float, grad_input_mask: Sequence[bool],
    is_causal: bool = False, *, scale: float | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Compute ``_scaled_dot_product_efficient_attention_backward``; the bias's gradient is None unless asked for."""
    made = Attention(
        query, key, value, attn_bias, top_left(query, key, is_causal), Dropout.of(dropout_p, philox_seed), scale
    )
    grad_query, grad_key, grad_value, grad_scores = made.gradients(grad_out)
    grad_bias = None
    if attn_bias is not None and grad_input_mask[3]:
        grad_bias = grad_scores.sum_to_size(attn_bias.shape).to(attn_bias.dtype)
    return _like(grad_query, query), _like(grad_key, key), _like(grad_value, value), grad_bias


def cudnn(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> tuple[Tensor, Tensor, None, None, int, int, Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute ``_scaled_dot_product_cudnn_attention`` of [batch, heads, length, head size]."""
    seed = draw_seed(query, dropout_p)
    made = Attention(query, key, value, attn_bias, top_left(query, key, is_causal), Dropout.of(dropout_p, seed), scale)
    out = made.output().to(query.dtype)
    lse, lengths = made.lse.float().unsqueeze(-1), (query.size(2), key.size(2))
    return out, lse, None, None, *lengths, *philox(seed), query.new_empty(0)


def cudnn_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, philox_seed: Tensor,
    philox_offset: Tensor, attn_bias: Tensor | None, cum_seq_q: Tensor | None, cum_seq_k: Tensor | None, max_q: int,
    max_k: int, dropout_p: float, is_causal: bool, *, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute ``_scaled_dot_product_cudnn_attention_backward``: the gradients of query, key and value."""
    made = Attention(
        query, key, value, attn_bias, top_left(query, key, is_causal), Dropout.of(dropout_p, philox_seed), scale
    )
    return _three_gradients(made, grad_out, query, key, value)
