"""One step of the gated delta rule by its formula, in float64.

A head's state S ``[key_size, value_size]`` maps keys to values. A step lets it decay, corrects what it holds for the
new key by a share of the error, and reads it with the query (Yang et al., "Gated Delta Networks", 2024):

    S' = diag(exp(g)) S      u = beta (v - S'^T k)      S = S' + k u^T      o = scale S^T q

q and k have length 1: each is divided by the root of its sum of squares plus 1e-6. The decay g <= 0 is one number of
the head (Qwen3-Next), or one for each row of the state (Kimi Linear).
"""

from __future__ import annotations

import torch

EPSILON = 1e-6
"""Number added to a sum of squares before its root is taken."""


def normalised(vectors: torch.Tensor) -> torch.Tensor:
    """Return vectors ``[..., size]`` divided by their lengths."""
    return vectors * torch.rsqrt(vectors.square().sum(-1, keepdim=True) + EPSILON)


def step(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute one step for any number of sequences, in the dtype of ``state``.

    Args:
        query: ``[num_seqs, num_key_heads, key_size]``.
        key: as query.
        value: ``[num_seqs, num_value_heads, value_size]``.
        decay: ``[num_seqs, num_value_heads]`` or ``[num_seqs, num_value_heads, key_size]``.
        beta: ``[num_seqs, num_value_heads]``.
        state: ``[num_seqs, num_value_heads, key_size, value_size]``.
        scale: factor of the output.

    Returns:
        The output ``[num_seqs, num_value_heads, value_size]`` and the new states.
    """
    group = value.shape[1] // query.shape[1]
    q, k = (normalised(one.to(state.dtype)).repeat_interleave(group, 1) for one in (query, key))
    factors = decay.to(state.dtype).exp()
    decayed = state * (factors[..., None] if decay.dim() == 3 else factors[..., None, None])
    error = value.to(state.dtype) - torch.einsum("shk,shkv->shv", k, decayed)
    new = decayed + torch.einsum("shk,shv->shkv", k, beta.to(state.dtype)[..., None] * error)
    return torch.einsum("shk,shkv->shv", q, new) * scale, new
