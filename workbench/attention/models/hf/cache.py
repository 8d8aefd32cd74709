"""The cache of one batch for transformers, over a `PagedKVCache` or a pool of pages for several kinds of layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers.cache_utils import Cache

from workbench.attention.kvcache import PagedKVCache
from workbench.attention.models.hf.layers import CacheLayer, LatentLayer, PagedLayer
from workbench.attention.models.hf.plan import parts_of, variants_of, windows_of
from workbench.attention.models.hf.pool import LayerPool
from workbench.attention.models.hf.refusals import refused
from workbench.attention.models.hf.states import StateLayer
from workbench.attention.models.hf.step import ForwardPass
from workbench.errors import ArgumentError

_LAYERS: dict[str, type[CacheLayer]] = {"full": PagedLayer, "latent": LatentLayer, "state": StateLayer}


class PagedCache(Cache):
    """A cache for one batch of a decoder-only model, for ``generate(..., past_key_values=)``.

    Row i of the batch is sequence i of ``.paged``, which all layers share: a `PagedKVCache`, or a `LayerPool` for
    models with latents or states, which `serve` prepares. Blocks behind a sliding window are freed if every layer has
    the same window. In a quantized cache, the tokens of a first prompt attend to each other's keys and values before
    quantization, and all later tokens to the quantized ones.

    Args:
        config: configuration of the model; of a multimodal model its text decoder is used.
        num_blocks: blocks of the pool; a batch needs at most ``ceil(tokens / block_size)`` for each row.
        block_size: tokens per block.
        dtype: element type of keys and values; default the model's.
        layout: order of the elements in a block, as in `PagedKVCache`.
        device: where the cache lives.
        kv_cache_dtype: "auto" or a quantized type, as in `PagedKVCache`.
        k_scale: scale of quantized keys, as in `PagedKVCache`.
        v_scale: scale of quantized values, as in `PagedKVCache`.
        variant: variant of the operation by which a new token attends, `paged_attention` or `mla_decode`; or variants
            of several operations, ``{"conv_step": "cuda_vectors", "gated_delta_step": "cuda_columns"}``.

    Raises:
        ArgumentError: if the model has another kind of attention, or a size does not fit.
        OutOfBlocksError: while generating, if the pool is full; the tokens so far stay in the cache.
    """

    def __init__(
        self,
        config: Any,
        *,
        num_blocks: int,
        block_size: int = 16,
        dtype: torch.dtype | None = None,
        layout: str = "nhd",
        device: torch.device | str = "cpu",
        kv_cache_dtype: str = "auto",
        k_scale: Any = None,
        v_scale: Any = None,
        variant: str | Mapping[str, str] = "auto",
    ):
        config = config.get_text_config(decoder=True)
        windows = windows_of(config)
        dtype = dtype or getattr(config, "dtype", None) or torch.float32
        parts = parts_of(config, dtype)
        if parts is not None:
            plain = (layout, kv_cache_dtype, k_scale, v_scale)
            if plain != ("nhd", "auto", None, None):
                raise refused("kv_cache_dtype", plain, f"the defaults for {config.model_type}, whose pages are mixed")
            self.paged: Any = LayerPool(parts, num_blocks=num_blocks, block_size=block_size, device=device)
        else:
            self.paged = PagedKVCache(
                num_layers=len(windows),
                num_blocks=num_blocks,
                block_size=block_size,
                num_kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
                head_size=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
                dtype=dtype,
                layout=layout,
                device=device,
                sliding_window=windows[0] if len(set(windows)) == 1 else None,
                kv_cache_dtype=kv_cache_dtype,
                k_scale=k_scale,
                v_scale=v_scale,
            )
        self.step = ForwardPass(self.paged)
        kinds = ["full"] * len(windows) if parts is None else [layer.kind for layer in parts]
        variants = variants_of(variant)
        layers = [_LAYERS[kind](self.paged, self.step, index, variants) for index, kind in enumerate(kinds)]
        for layer, window in zip(layers, windows, strict=True):
            layer.sliding_window, layer.is_sliding = window, window is not None
        super().__init__(layers=layers)

    def __repr__(self) -> str:
        counts = self.paged.manager.statistics()
        return f"PagedCache({counts.used_blocks} of {counts.num_blocks} blocks in use)"

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Let row i continue from row ``beam_idx[i]``; they share blocks, which are copied when one of them writes."""
        self.paged.reorder({row: int(parent) for row, parent in enumerate(beam_idx)})
        self.step.shown = self.step.shown[beam_idx.cpu()]

    def reset(self) -> None:
        """Free every block, so that the cache can take another batch."""
        for row in range(self.step.num_rows):
            self.paged.free(row)
        self.step.start_over()
        for layer in self.layers:
            layer.steps = 0

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor:
        """Refuse a module that `serve` has not prepared."""
        raise ArgumentError(
            "past_key_values",
            "a PagedCache in a model as transformers made it",
            "a served one",
            "Call hf.serve(model).",
        )

    def update_indexer(self, indexer_key_states: torch.Tensor, layer_idx: int) -> torch.Tensor:
        """Refuse an indexer that `serve` has not prepared."""
        return self.get_conv_state(layer_idx)

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse to remove tokens, as assisted generation would."""
        raise refused("crop", f"{tokens_to_remove} tokens to remove", "a cache that only grows")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Refuse to repeat rows; let ``generate`` repeat the prompts."""
        raise refused("batch_repeat_interleave", repeats, "rows that keep their places")

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Refuse to select rows, because rows stay until `reset`."""
        raise refused("batch_select_indices", indices, "rows that keep their places")
