"""Attention operators over sequences of different lengths, packed into [tokens, heads, head size].

torch only has these operators for GPUs; nested tensors and ``varlen_attn`` call them. Each sequence is an attention of
its own; without ``cu_seqlens`` each member of a batch is one. FlashAttention aligns masks and windows to the bottom
right, the memory-efficient kernel by ``custom_mask_type``, cuDNN's to the top left.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.driver.torch_device.attention import Attention, Dropout, draw_seed, number, padded_lse, philox

_TOP_LEFT, _BOTTOM_RIGHT = 1, 2  # custom_mask_type


@dataclass(frozen=True)
class Sequences:
    """Boundaries of packed sequences.

    ``cum_q`` and ``cum_k`` are offsets of queries and keys, None for a batch of equal lengths. ``used_k`` is the number
    of keys that each sequence uses, None for all.
    """

    cum_q: Tensor | None
    cum_k: Tensor | None
    used_k: Tensor | None = None

    def of_query(self, tensor: Tensor) -> list[Tensor]:
        """Split a tensor of the queries' shape into one view per sequence."""
        return _split(tensor, self.cum_q)

    def of_keys(self, tensor: Tensor) -> list[Tensor]:
        """Split a tensor of the keys' shape into one view per sequence, cut to the keys that are used."""
        pieces = _split(tensor, self.cum_k)
        if self.used_k is None:
            return pieces
        return [piece[:used] for piece, used in zip(pieces, self.used_k.tolist(), strict=True)]


@dataclass(frozen=True)
class Scores:
    """Rule for the scores of each sequence.

    The mask is causal or not, and aligned to the bottom right or the top left. ``window`` is the number of keys to the
    left and to the right, -1 for no limit; ``slopes`` are those of ALiBi.
    """

    causal: bool
    bottom_right: bool
    window: tuple[int, int]
    slopes: Tensor | None
    bias: Tensor | None
    dropout_p: float
    scale: float | None

    def attention(self, at: int, query: Tensor, key: Tensor, value: Tensor, seed: int) -> Attention:
        """Return the attention of the sequence with index ``at``, whose tensors are [tokens, heads, head size]."""
        q, k, v = (one.transpose(0, 1).unsqueeze(0) for one in (query, key, value))
        rows, columns = len(query), len(key)
        shift = columns - rows if self.bottom_right else 0
        row = torch.arange(rows, device=query.device).unsqueeze(1) + shift
        distance = row - torch.arange(columns, device=query.device)
        mask = torch.ones_like(distance, dtype=torch.bool)
        left, right = self.window
        if self.causal:
            right = 0
        if right >= 0:
            mask &= distance >= -right
        if left >= 0:
            mask &= distance <= left
        bias = self.bias[at : at + 1] if self.bias is not None else None
        if self.slopes is not None:
            slopes = self.slopes if self.slopes.dim() == 1 else self.slopes[at]
            bias = -slopes[:, None, None] * distance.abs()
        return Attention(q, k, v, bias, mask, Dropout(self.dropout_p, seed + at), self.scale)


def _split(tensor: Tensor, cumulative: Tensor | None) -> list[Tensor]:
    if cumulative is None:
        return list(tensor.unbind(0))
    tokens = tensor.squeeze(0) if tensor.dim() == 4 else tensor
    return [tokens[begin:end] for begin, end in itertools.pairwise(cumulative.tolist())]


def _each(
    query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, scores: Scores, seed: Tensor
) -> Iterator[Attention]:
    first = number(seed, scores.dropout_p)
    pieces = zip(sequences.of_query(query), sequences.of_keys(key), sequences.of_keys(value), strict=True)
    for at, (q, k, v) in enumerate(pieces):
        yield scores.attention(at, q, k, v, first)


def _forward(
    query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, scores: Scores, seed: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Return the output of all sequences, and the log_sumexp of each, [heads, tokens]."""
    out = query.new_empty(*query.shape[:-1], value.size(-1))
    lse = []
    for place, made in zip(sequences.of_query(out), _each(query, key, value, sequences, scores, seed), strict=True):
        place.copy_(made.output()[0].transpose(0, 1))
        lse.append(made.lse[0].float())
    return out, lse


def _backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, scores: Scores, seed: Tensor
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Return the gradients of query, key and value, and those of the scores, one tensor per sequence."""
    grads = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
    of_scores = []
    places = zip(sequences.of_query(grads[0]), *map(sequences.of_keys, grads[1:]), strict=True)
    attentions = _each(query, key, value, sequences, scores, seed)
    for place, grad, made in zip(places, sequences.of_query(grad_out), attentions, strict=True):
        *found, grad_scores = made.gradients(grad.transpose(0, 1).unsqueeze(0))
        for one, other in zip(place, found, strict=True):
            one.copy_(other[0].transpose(0, 1))
        of_scores.append(grad_scores)
    return *grads, of_scores


def _of_flash(
    is_causal: bool, dropout_p: float, scale: float | None, left: int | None, right: int | None, slopes: Tensor | None
) -> Scores:
    window = (-1 if left is None else left, -1 if right is None else right)
    return Scores(is_causal, True, window, slopes, None, dropout_p, scale)


def flash(
    query: Tensor, key: Tensor, value: Tensor, cum_seq_q: Tensor | None, cum_seq_k: Tensor | None, max_q: int,
    max_k: int, dropout_p: float, is_causal: bool, return_debug_mask: bool, *, scale: float | None = None,
    window_size_left: int | None = None, window_size_right: int | None = None, seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None, block_table: Tensor | None = None, num_splits: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute ``_flash_attention_forward`` of [tokens, heads, head size], or [batch, length, heads, head size].

    Raises NotImplementedError for a ``block_table``.
    """
    if block_table is not None:
        raise NotImplementedError("aten::_flash_attention_forward with a block_table does not run on the simulated GPU")
    seed = draw_seed(query, dropout_p)
    scores = _of_flash(is_causal, dropout_p, scale, window_size_left, window_size_right, alibi_slopes)
    out, lse = _forward(query, key, value, Sequences(cum_seq_q, cum_seq_k, seqused_k), scores, seed)
    joined = torch.stack(lse) if cum_seq_q is None else torch.cat(lse, -1)
    unused = torch.zeros((), dtype=torch.uint64, device=query.device)
    return out, joined, seed, unused, query.new_empty(0)


def flash_into(out: Tensor, *arguments: object, **options: object) -> Tensor:
    """Compute ``_flash_attention_forward_no_dropout_inplace`` into ``out``, and return log_sumexp."""
    made, lse, *_ = flash(*arguments, **options)  # type: ignore[arg-type]  # the operator's schema has checked them
    out.copy_(made)
    return lse


def flash_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    cum_seq_q: Tensor | None, cum_seq_k: Tensor | None, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
    rng_state: Tensor, unused: Tensor, *, scale: float | None = None, window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute ``_flash_attention_backward``: the gradients of query, key and value."""
    scores = _of_flash(is_causal, dropout_p, scale, window_size_left, window_size_right, None)
    return _backward(grad_out, query, key, value, Sequences(cum_seq_q, cum_seq_k), scores, rng_state)[:3]


def _of_efficient(
    mask_type: int, bias: Tensor | None, dropout_p: float, scale: float | None, window: int | None
) -> Scores:
    left = -1 if not window else window - 1  # a window of this operator counts the row's own key
    causal = mask_type in (_TOP_LEFT, _BOTTOM_RIGHT)
    return Scores(causal, mask_type == _BOTTOM_RIGHT, (left, -1), None, bias, dropout_p, scale)


def efficient(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None, max_seqlen_q: int | None, max_seqlen_k: int | None, dropout_p: float,
    custom_mask_type: int, compute_log_sumexp: bool = False, *, scale: float | None = None,
    seqlen_k: Tensor | None = None, window_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int]:  # fmt: skip
    """Compute ``_efficient_attention_forward`` of [batch, length, heads, head size].

    Packed sequences are a batch of 1.
    """
    seed = draw_seed(query, dropout_p)
    scores = _of_efficient(custom_mask_type, bias, dropout_p, scale, window_size)
    out, lse = _forward(query, key, value, Sequences(cu_seqlens_q, cu_seqlens_k, seqlen_k), scores, seed)
    longest_q = query.size(1) if max_seqlen_q is None else max_seqlen_q
    longest_k = key.size(1) if max_seqlen_k is None else max_seqlen_k
    joined = torch.stack([padded_lse(one, longest_q, compute_log_sumexp) for one in lse])
    return out, joined, *philox(seed), longest_q, longest_k


def efficient_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, out: Tensor,
    cu_seqlens_q: Tensor | None, cu_seqlens_k: Tensor | None, max_seqlen_q: int, max_seqlen_k: int, logsumexp: Tensor,
    dropout_p: float, philox_seed: Tensor, philox_offset: Tensor, custom_mask_type: int, bias_requires_grad: bool, *,
    scale: float | None = None, num_splits_key: int | None = None, window_size: int | None = None,
    shared_storage_dqdkdv: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Compute ``_efficient_attention_backward``; the bias's gradient is None without ``bias_requires_grad``."""
    scores = _of_efficient(custom_mask_type, bias, dropout_p, scale, window_size)
    sequences = Sequences(cu_seqlens_q, cu_seqlens_k)
    *grads, of_scores = _backward(grad_out, query, key, value, sequences, scores, philox_seed)
    grad_bias = torch.cat(of_scores).to(bias.dtype) if bias is not None and bias_requires_grad else None
    return grads[0], grads[1], grads[2], grad_bias


def cudnn(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None, max_q: int, max_k: int, compute_log_sumexp: bool, dropout_p: float = 0.0,
    is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, int, int, Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute ``_cudnn_attention_forward`` of [tokens, heads, head size]; ``is_causal`` aligns to the top left."""
    seed = draw_seed(query, dropout_p)
    scores = Scores(is_causal, False, (-1, -1), None, attn_bias, dropout_p, scale)
    out, lse = _forward(query, key, value, Sequences(cum_seq_q, cum_seq_k), scores, seed)
    joined = torch.cat([one.T for one in lse]).unsqueeze(-1)
    return out, joined, cum_seq_q, cum_seq_k, max_q, max_k, *philox(seed), query.new_empty(0)


def cudnn_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, philox_seed: Tensor,
    philox_offset: Tensor, attn_bias: Tensor | None, cum_seq_q: Tensor | None, cum_seq_k: Tensor | None, max_q: int,
    max_k: int, dropout_p: float, is_causal: bool, *, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute ``_cudnn_attention_backward``: the gradients of query, key and value."""
    scores = Scores(is_causal, False, (-1, -1), None, attn_bias, dropout_p, scale)
    return _backward(grad_out, query, key, value, Sequences(cum_seq_q, cum_seq_k), scores, philox_seed)[:3]
