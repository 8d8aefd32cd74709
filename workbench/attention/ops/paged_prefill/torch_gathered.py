"""Attention of new tokens over pages in plain torch operations, all sequences of one query length at once.

It is the default on a CPU, supports every layout, every cache dtype and every feature, and waits for the lengths where
they lie on a GPU.
"""

from __future__ import annotations

import torch

from workbench.attention.cache_formats.layouts import LAYOUTS, canonical_keys, canonical_values
from workbench.attention.cache_formats.quantization import CACHE_DTYPES
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.paged_prefill.problem import FEATURES, PagedPrefillProblem, PagedPrefillTensors
from workbench.attention.ops.paged_prefill.reference import visible
from workbench.attention.ops.torch_pages import tokens_of_pages
from workbench.ops import TorchVariant


def compute(problem: PagedPrefillProblem, tensors: PagedPrefillTensors) -> None:
    """Fill ``tensors.out [num_tokens, num_heads, head_size]``."""
    by_length: dict[int, list[int]] = {}
    for seq, length in enumerate(tensors.cu_seqlens_q.diff().tolist()):
        by_length.setdefault(length, []).append(seq)
    for length, seqs in by_length.items():
        if length:
            _attend(problem, tensors, length, torch.tensor(seqs, device=tensors.query.device))


def _attend(problem: PagedPrefillProblem, t: PagedPrefillTensors, query_len: int, seqs: torch.Tensor) -> None:
    """Compute the sequences ``seqs``, which have ``query_len`` new tokens each."""
    # 1. Load: queries [num_seqs, query_len, num_heads, head_size], and what each sequence sees of its pages.
    rows = t.cu_seqlens_q[seqs].long()[:, None] + torch.arange(query_len, device=seqs.device)
    lengths = t.seq_lens[seqs].long()
    mask = None if t.tree_mask is None else t.tree_mask[rows]
    sees = visible(query_len, lengths, sliding_window=t.sliding_window, tree_mask=mask)
    num_pages = -(-sees.shape[2] // problem.page)
    used = torch.arange(num_pages, device=seqs.device) * problem.page < lengths[:, None]
    tables = torch.where(used, t.block_tables[seqs, :num_pages].long(), 0)
    keys = tokens_of_pages(t.key_cache, tables, canonical_keys, problem.layout, t.k_scale)[:, : sees.shape[2]]
    values = tokens_of_pages(t.value_cache, tables, canonical_values, problem.layout, t.v_scale)[:, : sees.shape[2]]
    values = values.masked_fill(~sees.any(1)[:, :, None, None], 0.0)  # 0 * NaN of an unused slot would be NaN

    # 2. Score: [num_seqs, num_kv_heads, group, query_len, tokens].
    query = t.query[rows].float().unflatten(2, (problem.num_kv_heads, problem.group)).permute(0, 2, 3, 1, 4)
    scores = query @ keys.permute(0, 2, 3, 1)[:, :, None] * t.scale
    if t.soft_cap is not None:
        scores = t.soft_cap * torch.tanh(scores / t.soft_cap)
    scores = scores.masked_fill(~sees[:, None, None], -torch.inf)

    # 3. Softmax: every token sees itself, so that the maximum is finite.
    highest = scores.amax(-1, keepdim=True)
    sinks = None if t.sinks is None else t.sinks.float().view(problem.num_kv_heads, problem.group, 1, 1)
    if sinks is not None:
        highest = torch.maximum(highest, sinks)
    weights = torch.exp(scores - highest)
    total = weights.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + torch.exp(sinks - highest)

    # 4. Accumulate, then divide once per row.
    sums = weights @ values.transpose(1, 2)[:, :, None] / total
    t.out[rows] = sums.permute(0, 3, 1, 2, 4).flatten(2, 3).to(t.out.dtype)


VARIANT = TorchVariant(
    op="paged_prefill",
    name="torch",
    idea="the pages of sequences with equally many new tokens, gathered and masked: plain torch",
    layouts=LAYOUTS,
    dtypes=tuple(DTYPES),
    features=(*FEATURES, *CACHE_DTYPES, "token_scales"),
    compute=compute,
)
