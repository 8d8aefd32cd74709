"""Scores of DeepSeek-V3.2's lightning indexer by their formula, in float64.

Each of its heads has a query q_h, all share one key k_t for each token t; a token's score is

    s_t = sum_h w_h relu(q_h . k_t)

w_h is what the model's own projection gives for the head, times 1/sqrt(number of heads) and 1/sqrt(head_size). Keys and
queries of FP8 have scales above 0, which come out of the relu: that of the key multiplies the score, that of the query
belongs into w_h. A rotation of both (Hadamard) before they are quantized leaves the products as they are.
"""

from __future__ import annotations

import torch


def scores(
    query: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """Score the tokens of one sequence.

    Args:
        query: ``[num_heads, head_size]``.
        weights: ``[num_heads]``.
        keys: ``[tokens, head_size]``.
        dtype: dtype of computation and result.

    Returns:
        ``[tokens]`` in ``dtype``.
    """
    products = keys.to(dtype) @ query.to(dtype).T
    return products.relu() @ weights.to(dtype)
