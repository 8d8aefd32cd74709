"""Indexers of sparse attention over the paged cache: which tokens each query reads."""

from __future__ import annotations

import sys
from typing import Any, cast

import torch

from workbench.attention import indexer_scores, top_k_positions
from workbench.attention.models.hf.layers import CacheLayer, LatentLayer
from workbench.attention.models.hf.pool import LayerPool

ROTATIONS = {"DeepseekV32Indexer": "apply_rotary_pos_emb", "GlmMoeDsaIndexer": "apply_rotary_pos_emb_interleave"}
"""Function that rotates queries and keys, in the module of each class: halves for DeepSeek-V3.2, pairs for GLM-5."""


def choose(
    layer: LatentLayer,
    module: Any,
    hidden: torch.Tensor,
    residual: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """Store the index keys of new tokens and return the positions that each of them reads.

    Args:
        layer: the layer of the cache.
        module: the model's indexer.
        hidden: ``[num_rows, num_new, hidden_size]``.
        residual: ``[num_rows, num_new, q_lora_rank]``, of which the indexer makes its queries.
        rotation: cosines and sines of the new tokens.

    Returns:
        Positions in the row's tokens, padding not counted, ``[num_rows, num_new, k] int32``, ascending, then -1.
    """
    rotate, size = (
        getattr(sys.modules[type(module).__module__], ROTATIONS[type(module).__name__]),
        module.qk_rope_head_dim,
    )
    query = module.wq_b(residual).unflatten(-1, (module.n_heads, module.head_dim))
    key = module.k_norm(module.wk(hidden))[:, :, None]
    rotated = rotate(query[..., :size], key[..., :size], *rotation, unsqueeze_dim=2)
    query, key = (torch.cat([r, whole[..., size:]], -1) for r, whole in zip(rotated, (query, key), strict=True))
    weights = module.weights_proj(hidden.to(module.weights_proj.weight.dtype)).float()
    weights = weights * (module.n_heads**-0.5 * module.softmax_scale)
    layer.paged.store(layer.paged.layers[layer.index][1], key[:, :, 0].flatten(0, 1), layer.step.slots)
    return select(layer, 1, query, weights, module.index_topk)


def select(
    layer: CacheLayer, part: int, query: torch.Tensor, weights: torch.Tensor, most: int, *, rate: int = 1
) -> torch.Tensor:
    """Return the positions of the highest scores for each new token, ``[num_rows, num_new, k] int32``, then -1.

    A new token in 16 bits is scored by `indexer_scores`; prompts, and tokens in float32, in plain torch.

    Args:
        layer: the layer of the cache.
        part: which of its tensors holds the index keys.
        query: ``[num_rows, num_new, num_heads, size]``.
        weights: ``[num_rows, num_new, num_heads] float32``, with all constant factors.
        most: number of positions, where a row has as many.
        rate: tokens of one key; a token at position p scores the keys before ``(p + 1) // rate``.
    """
    step, variants = layer.step, layer.variants
    paged = cast(LayerPool, layer.paged)
    counts = step.seq_lens // rate
    k = min(most, max(int(counts.max()), 1))
    if query.shape[1] == 1 and query.dtype != torch.float32:
        newest = query[:, 0].contiguous(), weights[:, 0].contiguous(), paged.layers[layer.index][part]
        scores = indexer_scores(*newest, step.block_tables, counts, variant=variants["indexer_scores"])
        return top_k_positions(scores, counts, k, variant=variants["top_k_positions"])[:, None]
    chosen = torch.full((*query.shape[:2], k), -1, dtype=torch.int32, device=query.device)
    for row, new in enumerate(step.real):
        keys = paged.gather(layer.index, row)[part].float()
        if not len(keys):
            continue
        products = (query[row, new].float() @ keys.T).relu()
        scores = torch.einsum("nh,nht->nt", weights[row, new], products)
        lengths = step.had[row] + torch.arange(1, len(scores) + 1, dtype=torch.int32, device=query.device)
        chosen[row, new] = top_k_positions(scores, lengths // rate, k, variant=variants["top_k_positions"])
    return chosen
