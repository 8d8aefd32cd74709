"""Paged attention in plain torch operations, all sequences at once: the default on a CPU.

The pages of every sequence are gathered, padded to the longest, and the padding is masked, without a loop over
sequences or tokens. It supports every layout, every cache dtype and every feature, so that it also serves as the slow
path to compare with.
"""

from __future__ import annotations

import torch

from workbench.attention.cache_formats.layouts import LAYOUTS, canonical_keys, canonical_values
from workbench.attention.cache_formats.quantization import CACHE_DTYPES
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.paged_attention.problem import PagedAttentionProblem, PagedAttentionTensors
from workbench.attention.ops.torch_pages import tokens_of_pages
from workbench.ops import TorchVariant


def compute(problem: PagedAttentionProblem, tensors: PagedAttentionTensors) -> None:
    """Fill ``tensors.out [num_seqs, num_heads, head_size]``."""
    t = tensors
    num_pages = -(-problem.max_seq_len // problem.page)
    tables = t.block_tables[:, :num_pages].long()
    device = t.query.device

    # 1. Load: gather each sequence's pages, [num_seqs, tokens, num_kv_heads, head_size] in fp32.
    positions = torch.arange(num_pages * problem.page, device=device)
    lengths = t.seq_lens.long()[:, None]
    used = torch.arange(num_pages, device=device) * problem.page < lengths
    tables = torch.where(used, tables, 0)
    valid = positions < lengths
    if t.sliding_window is not None:
        valid = valid & (positions >= lengths - t.sliding_window)
    keys = tokens_of_pages(t.key_cache, tables, canonical_keys, problem.layout, t.k_scale)
    values = tokens_of_pages(t.value_cache, tables, canonical_values, problem.layout, t.v_scale)
    values = values.masked_fill(~valid[:, :, None, None], 0.0)  # 0 * NaN of an unused slot would be NaN

    # 2. Score: [num_seqs, num_kv_heads, group, tokens].
    query = t.query.float().view(problem.num_seqs, problem.num_kv_heads, problem.group, problem.head_size)
    scores = torch.matmul(query, keys.permute(0, 2, 3, 1)) * t.scale
    if t.soft_cap is not None:
        scores = t.soft_cap * torch.tanh(scores / t.soft_cap)
    if t.alibi_slopes is not None:
        slopes = t.alibi_slopes.float().view(problem.num_kv_heads, problem.group, 1)
        scores = scores + slopes * (positions - (lengths - 1))[:, None, None]
    scores = scores.masked_fill(~valid[:, None, None], -torch.inf)

    # 3. Softmax; a sequence without tokens has no maximum, and weights of zero.
    highest = scores.amax(-1, keepdim=True) if num_pages else scores.new_full((*scores.shape[:-1], 1), -torch.inf)
    sinks = None
    if t.sinks is not None:
        sinks = t.sinks.float().view(problem.num_kv_heads, problem.group, 1)
        highest = torch.maximum(highest, sinks)
    highest = highest.clamp(min=torch.finfo(torch.float32).min)
    weights = torch.exp(scores - highest)
    total = weights.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + torch.exp(sinks - highest)

    # 4. Accumulate, then divide once per row.
    sums = torch.matmul(weights, values.transpose(1, 2))
    t.out.copy_((sums / total.clamp(min=torch.finfo(torch.float32).tiny)).view_as(t.out))


VARIANT = TorchVariant(
    op="paged_attention",
    name="torch",
    idea="gather every sequence's pages, pad, mask: plain torch, every layout and feature",
    layouts=LAYOUTS,
    dtypes=tuple(DTYPES),
    features=("alibi", "sliding_window", "soft_cap", "sinks", *CACHE_DTYPES, "token_scales"),
    compute=compute,
)
