"""Recorded queries, keys and values of a running model, for studying quantized caches and their outliers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from workbench.attention.models.generation import check_prompt
from workbench.attention.models.gpt import GPT
from workbench.attention.models.paged_steps import causal


@torch.inference_mode()
def record(model: GPT, tokens: Sequence[int], *, num_queries: int | None = None) -> dict[str, torch.Tensor]:
    """Run a model once over a text and record the inputs of attention in every layer.

    Args:
        model: the model to run.
        tokens: ids of the text, at most the model's context.
        num_queries: number of last tokens whose queries are kept; default all.

    Returns:
        ``keys``, ``values [num_layers, num_tokens, num_kv_heads, head_size]``, ``queries [num_layers, num_queries,
        num_heads, head_size]`` in the model's dtype; keys and queries after the rotary embedding.

    Raises:
        ArgumentError: if there are no tokens, unknown ones, or too many.
    """
    tokens = check_prompt(model, tokens, 0)
    first = 0 if num_queries is None else max(0, len(tokens) - num_queries)
    found: dict[str, list[torch.Tensor]] = {"queries": [], "keys": [], "values": []}

    def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        for kept, tensor in zip(found.values(), (query[first:], key, value), strict=True):
            kept.append(tensor.clone())
        return causal(query, key, value)

    ids = torch.tensor(tokens, device=model.device)
    model(ids, torch.arange(len(tokens), device=model.device), attend)
    return {name: torch.stack(layers) for name, layers in found.items()}
