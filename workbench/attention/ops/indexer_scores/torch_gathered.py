"""Scores of an indexer in plain torch operations, all sequences at once: the default on a CPU."""

from __future__ import annotations

import torch

from workbench.attention.cache_formats import fp8_index_keys
from workbench.attention.ops.indexer_scores.problem import DTYPES, IndexerProblem, IndexerTensors
from workbench.ops import TorchVariant


def compute(problem: IndexerProblem, tensors: IndexerTensors) -> None:
    """Fill ``tensors.out [num_seqs, max_seq_len]``."""
    t, p = tensors, problem
    # 1. Load: the keys of each sequence, [num_seqs, tokens, head_size] in fp32.
    token = torch.arange(p.max_seq_len, device=t.query.device)
    valid = token < t.seq_lens[:, None]
    column = (token // p.page).clamp(max=max(t.block_tables.shape[1] - 1, 0))
    pages = t.block_tables[:, column].long().masked_fill(~valid, 0) if t.block_tables.numel() else valid.long()
    if len(t.index_cache) == 0:
        t.out.fill_(-torch.inf)
        return
    keys = (fp8_index_keys.unpack(t.index_cache) if p.quantized else t.index_cache)[pages, token % p.page].float()

    # 2. Score: [num_seqs, tokens, num_heads], the positive ones weighted.
    products = (keys @ t.query.float().transpose(1, 2)).relu()
    scores = (products @ t.weights[..., None]).squeeze(-1)

    # 3. Store.
    t.out.copy_(scores.masked_fill(~valid, -torch.inf))


VARIANT = TorchVariant(
    op="indexer_scores",
    name="torch",
    idea="keys up to the longest sequence, gathered and masked: plain torch",
    layouts=("any",),
    dtypes=tuple(DTYPES),
    compute=compute,
)
