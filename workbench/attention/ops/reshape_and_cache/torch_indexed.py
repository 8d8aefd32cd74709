"""Writes of tokens to their slots by one indexed assignment per cache: the default on a CPU."""

from __future__ import annotations

import torch

from workbench.attention.cache_formats import nvfp4
from workbench.attention.cache_formats.layouts import LAYOUTS, bits_of, canonical_values
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, quantize
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.reshape_and_cache.problem import ReshapeAndCacheProblem, ReshapeAndCacheTensors
from workbench.ops import TorchVariant


def compute(problem: ReshapeAndCacheProblem, tensors: ReshapeAndCacheTensors) -> None:
    """Write key and value ``[num_tokens, num_kv_heads, head_size]`` into the caches."""
    t = tensors
    # 1. Load: the tokens that have a slot.
    kept = t.slot_mapping >= 0
    slots = t.slot_mapping[kept]
    page, offset = slots // problem.block_size, slots % problem.block_size

    # 2. Place: each token's elements as the cache holds them, [kept, num_kv_heads, head_size].
    key = _stored(t.key[kept], t.k_scale, slots, problem)
    value = _stored(t.value[kept], t.v_scale, slots, problem)

    # 3. Store.
    if problem.kv_cache_dtype == "nvfp4":
        nvfp4.store_rows(t.key_cache, problem.layout, page, offset, key)
        nvfp4.store_rows(t.value_cache, problem.layout, page, offset, value)
        return
    key_cache, value_cache = bits_of(t.key_cache), bits_of(t.value_cache)
    if problem.layout == "x":
        # [num_blocks, num_kv_heads, head_size/x, block_size, x]: the indexed dimensions come first in the result.
        key_cache[page, :, :, offset, :] = key.unflatten(2, (-1, problem.x))
    else:
        canonical_values(key_cache, problem.layout)[page, offset] = key
    canonical_values(value_cache, problem.layout)[page, offset] = value


def _stored(
    tokens: torch.Tensor, scale: torch.Tensor | None, slots: torch.Tensor, problem: ReshapeAndCacheProblem
) -> torch.Tensor:
    """Return tokens ``[n, num_kv_heads, head_size]`` as cache elements: one-byte ones as their bits, nvfp4 as rows."""
    if problem.kv_cache_dtype == "auto":
        return tokens
    if scale is not None and scale.dim() == 3:  # [num_blocks, block_size, num_kv_heads]
        scale = scale.flatten(0, 1)[slots]
    return bits_of(quantize(tokens, 1.0 if scale is None else scale, problem.kv_cache_dtype))


VARIANT = TorchVariant(
    op="reshape_and_cache",
    name="torch",
    idea="one indexed assignment per cache: plain torch, every layout, quantized or not",
    layouts=LAYOUTS,
    dtypes=tuple(DTYPES),
    features=tuple(CACHE_DTYPES),
    compute=compute,
)
