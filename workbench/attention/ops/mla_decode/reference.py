"""Multi-head latent attention by its formula, in float64: absorbed, as the op computes it, and unabsorbed.

A token is cached as a latent c of ``latent_size`` elements and a part r of ``rope_size`` elements that carries its
position, one for all heads. Head h has the matrices U_h ``[nope_size, latent_size]``, which makes the rest of its key
out of the latent, and W_h ``[value_size, latent_size]``, which makes its value (DeepSeek-V2, 2024):

    k_t = [U_h c_t, r_t]      v_t = W_h c_t      o_h = sum_t softmax_t(scale * q_h . k_t) v_t

*Absorbed*, the matrices move to the query and to the result, because q . (U c) = (U^T q) . c, and a sum of W c_t is W
of a sum. What remains between them is attention of all heads to one key, whose first part is the value as well:

    s_t = scale * [U_h^T q_nope, q_rope] . [c_t, r_t]      l_h = sum_t softmax(s)_t c_t      o_h = W_h l_h

``scale`` is that of the unabsorbed product, 1/sqrt(nope_size + rope_size), though the absorbed one has more terms.
"""

from __future__ import annotations

import torch

from workbench.attention.cache_formats.layouts import slots_of
from workbench.attention.ops.paged_attention.reference import attend


def absorb(query: torch.Tensor, key_weight: torch.Tensor) -> torch.Tensor:
    """Fold the matrices of the keys into the queries.

    Args:
        query: ``[num_seqs, num_heads, nope_size + rope_size]``, the second part rotated.
        key_weight: U, ``[num_heads, nope_size, latent_size]``.

    Returns:
        ``[num_seqs, num_heads, latent_size + rope_size]`` in the query's dtype, the query of `mla_decode`.
    """
    nope, rope = query.tensor_split([key_weight.shape[1]], dim=-1)
    return torch.cat([torch.einsum("shn,hnl->shl", nope, key_weight.to(query.dtype)), rope], dim=-1)


def unabsorbed(
    query: torch.Tensor,
    latents: torch.Tensor,
    key_weight: torch.Tensor,
    value_weight: torch.Tensor,
    *,
    scale: float,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Attend with one token of one sequence to keys and values that are made of the latents for every head.

    Args:
        query: ``[num_heads, nope_size + rope_size]``, the second part rotated.
        latents: ``[tokens, latent_size + rope_size]``.
        key_weight: U, ``[num_heads, nope_size, latent_size]``.
        value_weight: W, ``[num_heads, value_size, latent_size]``.
        scale: factor of the scores.
        dtype: dtype of computation and result.

    Returns:
        ``[num_heads, value_size]`` in ``dtype``.
    """
    latent, rope = latents.to(dtype).tensor_split([key_weight.shape[2]], dim=-1)
    made = torch.einsum("tl,hnl->thn", latent, key_weight.to(dtype))
    keys = torch.cat([made, rope[:, None].expand(-1, len(query), -1)], dim=-1)
    values = torch.einsum("tl,hvl->thv", latent, value_weight.to(dtype))
    return attend(query, keys, values, scale=scale, dtype=dtype)


def absorbed(
    query: torch.Tensor,
    latents: torch.Tensor,
    *,
    latent_size: int,
    scale: float,
    sinks: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Attend with one absorbed query ``[num_heads, key_size]`` to the latents of its sequence ``[tokens, key_size]``.

    Returns:
        ``[num_heads, latent_size]`` in ``dtype``.
    """
    keys = latents[:, None]
    return attend(query, keys, keys[..., :latent_size], scale=scale, sinks=sinks, dtype=dtype)


def reference(
    query: torch.Tensor,
    latent_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    scale: float,
    latent_size: int = 512,
) -> torch.Tensor:
    """Compute `mla_decode` in float64; arguments as there.

    Returns:
        ``[num_seqs, num_heads, latent_size] float64``.
    """
    lengths, tokens = seq_lens.tolist(), latent_cache.flatten(0, 1)
    parts = tokens[slots_of(block_tables, lengths, latent_cache.shape[1])].split(lengths)
    rows = [absorbed(q, part, latent_size=latent_size, scale=scale) for q, part in zip(query, parts, strict=True)]
    return torch.stack(rows) if rows else query[..., :latent_size].double()
