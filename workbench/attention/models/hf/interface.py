"""The attention function that transformers calls, the function that makes its mask, and the models that it serves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from workbench.attention.models.hf.cache import PagedCache
from workbench.attention.models.hf.causal import ScoreRule
from workbench.attention.models.hf.indexer import ROTATIONS, choose
from workbench.attention.models.hf.layers import LatentLayer
from workbench.attention.models.hf.refusals import refused
from workbench.attention.models.hf.states import INPUTS, StateLayer
from workbench.errors import ArgumentError

NAME = "workbench_paged"
"""Name of the attention function, for ``attn_implementation``."""


def serve(model: PreTrainedModel) -> PreTrainedModel:
    """Prepare a model for a `PagedCache` and return it: a model with latents or linear attention needs it, others may.

    The model takes the attention function, and tells the cache its mask before its first layer. Its latent attention
    hands latents to the attention function in place of keys and values, and its linear attention keeps its states in
    the cache. With another cache, or another ``attn_implementation``, the model computes as before.

    Raises:
        ArgumentError: if the model has been served already.
    """
    if getattr(model, "_workbench_served", False):
        raise ArgumentError("model", "a model that is served already", "one as transformers made it", "Serve it once.")
    model._workbench_served = True
    model.base_model.register_forward_pre_hook(_make_room, with_kwargs=True)
    for module in model.modules():
        if hasattr(module, "expand_kv"):
            module.expand_kv = partial(_latents, module.expand_kv)
        elif type(module).__name__ in INPUTS:
            module.forward = partial(_linear_attention, module, module.forward)
        elif type(module).__name__ in ROTATIONS:
            module.forward = partial(_indexer, module, module.forward)
    model.set_attn_implementation(NAME)
    return model


def _make_room(module: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    cache = named.get("past_key_values")
    if isinstance(cache, PagedCache):
        tokens = named.get("input_ids") if named.get("inputs_embeds") is None else named["inputs_embeds"]
        tokens = args[0] if tokens is None else tokens
        cache.step.make_room(named.get("attention_mask"), num_rows=tokens.shape[0], num_new=tokens.shape[1])


def _latents(
    expand: Callable[..., tuple[torch.Tensor, torch.Tensor]], latent: torch.Tensor, rotated: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return latents of a `LatentLayer` as they are, others as keys and values."""
    return (latent, rotated) if hasattr(latent, "paged_layer") else expand(latent, rotated)


def _linear_attention(
    module: torch.nn.Module,
    forward: Callable[..., torch.Tensor],
    hidden_states: torch.Tensor,
    cache_params: Any = None,
    attention_mask: torch.Tensor | None = None,
    **others: Any,
) -> torch.Tensor:
    layer = cache_params.layers[module.layer_idx] if isinstance(cache_params, PagedCache) else None
    if isinstance(layer, StateLayer):
        with torch.no_grad():
            return layer.advance(module, hidden_states, forward)
    return forward(hidden_states, cache_params=cache_params, attention_mask=attention_mask, **others)


def _indexer(
    module: torch.nn.Module,
    forward: Callable[..., torch.Tensor],
    hidden_states: torch.Tensor,
    q_resid: torch.Tensor,
    position_embeddings: tuple[torch.Tensor, torch.Tensor],
    *others: Any,
    past_key_values: Any = None,
) -> torch.Tensor:
    if isinstance(past_key_values, PagedCache):
        layer = past_key_values.layers[cast(int, module.layer_idx)]
        with torch.no_grad():
            return choose(cast(LatentLayer, layer), module, hidden_states, q_resid, position_embeddings)
    return forward(hidden_states, q_resid, position_embeddings, *others, past_key_values=past_key_values)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention over a `PagedCache`, as transformers' attention interface requires.

    The mask is 2-D or None; see `padding_mask`. ``s_aux`` ``[num_heads]`` are the attention sinks of GPT-OSS: a score
    per head that enters the denominator of the softmax only; ``indices`` are the positions that `serve`'s indexers have
    chosen.

    Raises:
        ArgumentError: if the model or the call needs a feature that is not supported; the error names it.
    """
    layer = getattr(key, "paged_layer", None)
    if layer is None:
        raise ArgumentError(
            "past_key_values",
            "none, or of another class",
            "a PagedCache",
            f"attn_implementation={NAME!r} keeps keys and values there; a model with latents needs hf.serve.",
        )
    if others.get("position_bias") is not None:
        raise refused("position_bias", f"a tensor in {type(module).__name__}", "attention without a position bias")
    if dropout:
        raise ArgumentError("dropout", dropout, "0", "Call model.eval(): attention has no backward pass.")
    if sliding_window != layer.sliding_window:
        raise refused(
            "sliding_window", f"{sliding_window} in layer {layer.index}", f"{layer.sliding_window}, as in its config"
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    sinks = None if s_aux is None else s_aux.detach().float().reshape(-1)
    rule = ScoreRule(float(scale), softcap, sinks, indices)
    with torch.no_grad():
        layer.enter(attention_mask, query.shape[0], query.shape[2])
        return layer.attend(module, query, key, value, rule), None


def padding_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *args: Any,
    attention_mask: torch.Tensor | None = None,
    **others: Any,
) -> torch.Tensor | None:
    """Return the mask for `attention`: True for those of ``kv_length`` columns that are tokens; None if all are.

    Models with indexers always take a 4-D mask; what they do with it does not matter, as `serve` has read the mask.
    """
    if "indexed_attention" in (getattr(others.get("config"), "layer_types", None) or ()):
        return torch.ones(batch_size, 1, 1, kv_length, dtype=torch.bool)
    if attention_mask is None or (attention_mask.shape[1] >= kv_length and attention_mask.all()):
        return None
    return attention_mask[:, -kv_length:]
