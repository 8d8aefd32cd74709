"""Reads of tokens from their slots by one index per cache: the default on a CPU."""

from __future__ import annotations

import torch

from workbench.attention.cache_formats import nvfp4
from workbench.attention.cache_formats.layouts import LAYOUTS, bits_of, canonical_keys, canonical_values
from workbench.attention.cache_formats.quantization import CACHE_DTYPES, dequantize
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.gather_cache.problem import GatherCacheProblem, GatherCacheTensors
from workbench.ops import TorchVariant


def compute(problem: GatherCacheProblem, tensors: GatherCacheTensors) -> None:
    """Fill keys and values ``[num_tokens, num_kv_heads, head_size]``."""
    t = tensors
    # 1. Find every token's page and place in it.
    position = torch.arange(t.block_tables.shape[1] * problem.block_size, device=t.seq_lens.device)
    seq, position = (position < t.seq_lens.long()[:, None]).nonzero(as_tuple=True)
    page = t.block_tables.long()[seq, position // problem.block_size]
    offset = position % problem.block_size

    # 2. Load, and multiply by the scale.
    for out, cache, canonical, scale in (
        (t.keys, t.key_cache, canonical_keys, t.k_scale),
        (t.values, t.value_cache, canonical_values, t.v_scale),
    ):
        if problem.kv_cache_dtype == "nvfp4":
            tokens = nvfp4.load_rows(cache, problem.layout, page, offset)
        else:
            tokens = canonical(bits_of(cache), problem.layout)[page, offset].view(cache.dtype)
        if problem.kv_cache_dtype != "auto":
            if scale is not None and scale.dim() == 3:
                scale = scale[page, offset]
            tokens = dequantize(tokens, 1.0 if scale is None else scale)
        out.copy_(tokens)


VARIANT = TorchVariant(
    op="gather_cache",
    name="torch",
    idea="one index per cache: plain torch, every layout, quantized or not",
    layouts=LAYOUTS,
    dtypes=tuple(DTYPES),
    features=tuple(CACHE_DTYPES),
    compute=compute,
)
