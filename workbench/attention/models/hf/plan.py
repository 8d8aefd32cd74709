"""Decisions about a model by its configuration: the windows of its layers, and what each layer keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from workbench.attention.models.hf.pool import LayerParts
from workbench.attention.models.hf.refusals import refused
from workbench.errors import ArgumentError

LAYER_TYPES = ("full_attention", "sliding_attention")

_POOLED = {"deepseek_v3": LAYER_TYPES[:1], "kimi_linear": (*LAYER_TYPES[:1], "linear_attention")}
_POOLED |= {"qwen3_next": _POOLED["kimi_linear"]} | dict.fromkeys(
    ("deepseek_v32", "glm_moe_dsa"), ("indexed_attention",)
)
"""Types of layers of the models whose layers lie in a pool of pages."""

_ATTENTION = ("paged_attention", "mla_decode")
_OPS = (*_ATTENTION, "conv_step", "gated_delta_step", "indexer_scores", "top_k_positions")


def variants_of(variant: str | Mapping[str, str]) -> dict[str, str]:
    """Return the variant of each operation; one name stands for attention, and the other operations choose."""
    named = dict.fromkeys(_ATTENTION, variant) if isinstance(variant, str) else dict(variant)
    unknown = sorted(set(named) - set(_OPS))
    if unknown:
        raise ArgumentError("variant", f"variants of {', '.join(unknown)}", ", ".join(_OPS), "Name these operations.")
    return dict.fromkeys(_OPS, "auto") | named


def windows_of(config: Any) -> list[int | None]:
    """Return the sliding window of each layer in tokens, None for full attention; refuse other attention."""
    if getattr(config, "is_encoder_decoder", False):
        raise refused("config", f"{config.model_type}, an encoder and a decoder", "a decoder-only model")
    known = _POOLED.get(config.model_type)
    for name in ("kv_lora_rank", "attention_chunk_size"):
        if getattr(config, name, None) and not known:
            raise refused("config", f"{config.model_type} with {name}", "attention over plain keys and values")
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None)
    if types is None:
        return [window] * config.num_hidden_layers
    unknown = sorted(set(types) - set(known or LAYER_TYPES))
    if unknown:
        raise refused(
            "config", f"{config.model_type} with layers of {', '.join(unknown)}", ", ".join(known or LAYER_TYPES)
        )
    return [window if kind == "sliding_attention" else None for kind in types]


def parts_of(config: Any, dtype: torch.dtype) -> list[LayerParts] | None:
    """Return what each layer keeps, or None for a model of keys and values alone."""
    if config.model_type not in _POOLED:
        return None
    types = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    found = [_state(config, dtype) if kind == "linear_attention" else _tokens(config, dtype) for kind in types]
    return [
        _with_index_keys(parts, config, dtype) if runs else parts
        for parts, runs in zip(found, _indexers(config, types), strict=True)
    ]


def _indexers(config: Any, types: list[str]) -> list[bool]:
    """Return the layers that run an indexer; others of GLM-5 read what the layer before them has chosen."""
    modes = getattr(config, "indexer_types", None) or ["full"] * len(types)
    return [kind == "indexed_attention" and mode == "full" for kind, mode in zip(types, modes, strict=True)]


def _with_index_keys(latent: LayerParts, config: Any, dtype: torch.dtype) -> LayerParts:
    return LayerParts("latent", (*latent.parts, ((config.index_head_dim,), dtype)))


def _tokens(config: Any, dtype: torch.dtype) -> LayerParts:
    if rank := getattr(config, "kv_lora_rank", None):
        return LayerParts("latent", (((rank + config.qk_rope_head_dim,), dtype),))
    side = ((config.num_key_value_heads, config.head_dim), dtype)
    return LayerParts("full", (side, side))


def _state(config: Any, dtype: torch.dtype) -> LayerParts:
    if config.model_type == "kimi_linear":
        heads, key_size = config.linear_num_heads, config.linear_head_dim
        key_heads, value_size = heads, key_size
    else:
        heads, key_heads = config.linear_num_value_heads, config.linear_num_key_heads
        key_size, value_size = config.linear_key_head_dim, config.linear_value_head_dim
    channels = 2 * key_heads * key_size + heads * value_size
    inputs = (config.linear_conv_kernel_dim - 1, channels)
    return LayerParts("state", (((heads, key_size, value_size), torch.float32), (inputs, dtype)))
