"""Attention over the contiguous cache in plain torch operations, all sequences at once: the default on a CPU."""

from __future__ import annotations

import torch

from workbench.attention.ops.contiguous_attention.problem import ContiguousAttentionProblem, ContiguousAttentionTensors
from workbench.attention.ops.dtypes import DTYPES
from workbench.ops import TorchVariant


def compute(problem: ContiguousAttentionProblem, tensors: ContiguousAttentionTensors) -> None:
    """Fill ``tensors.out [num_seqs, num_heads, head_size]``."""
    t, p = tensors, problem
    if p.max_seq_len == 0:
        t.out.zero_()
        return
    # 1. Load: each sequence's row up to the longest, [num_seqs, 2, num_kv_heads, tokens, head_size] in fp32.
    cache = t.kv_cache[:, :, :, : p.max_seq_len][t.cache_rows.long()].float()
    valid = torch.arange(p.max_seq_len, device=cache.device) < t.seq_lens[:, None]
    valid = valid[:, None, :, None]
    key, value = cache[:, 0], cache[:, 1].masked_fill(~valid, 0.0)  # 0 * NaN of an unused slot would be NaN

    # 2. Score: [num_seqs, num_kv_heads, group, tokens].
    query = t.query.float().view(p.num_seqs, p.num_kv_heads, p.group, p.head_size)
    scores = (query @ key.transpose(-1, -2) * t.scale).masked_fill(~valid.transpose(-1, -2), -torch.inf)

    # 3. Softmax; a sequence without tokens has no maximum, and weights of zero.
    highest = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).min)
    weights = torch.exp(scores - highest)
    total = weights.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)

    # 4. Accumulate, then divide once per row.
    t.out.copy_((weights @ value / total).view_as(t.out))


VARIANT = TorchVariant(
    op="contiguous_attention",
    name="torch",
    idea="rows up to the longest sequence, masked: plain torch",
    layouts=("contiguous",),
    dtypes=tuple(DTYPES),
    compute=compute,
)
