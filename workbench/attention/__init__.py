"""Attention and its KV cache, the running example: ops, caches, quantization, a model and their pictures.

It relates to the workbench as a package of yours would: it uses public names only, and registers its ops by entry
points. The names below are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.attention import kvcache
from workbench.base.packages import lazily

_OPS = (
    "causal_attention", "causal_attention_backward", "contiguous_attention", "conv_step", "copy_blocks",
    "gated_delta_step", "gather_cache", "indexer_scores", "mla_decode", "paged_attention", "paged_prefill",
    "pool_windows", "reshape_and_cache", "rotate_heads", "swap_blocks", "top_k_positions",
)  # fmt: skip
_LAZY = dict.fromkeys(kvcache.__all__, "workbench.attention.kvcache") | dict.fromkeys(_OPS, "workbench.attention.ops")

__all__ = list(_LAZY)

if TYPE_CHECKING:
    from workbench.attention.kvcache import BlockManager as BlockManager
    from workbench.attention.kvcache import Calibration as Calibration
    from workbench.attention.kvcache import Compressor as Compressor
    from workbench.attention.kvcache import ContiguousKVCache as ContiguousKVCache
    from workbench.attention.kvcache import LayerGroup as LayerGroup
    from workbench.attention.kvcache import LayerKind as LayerKind
    from workbench.attention.kvcache import MemoryUse as MemoryUse
    from workbench.attention.kvcache import OutOfBlocksError as OutOfBlocksError
    from workbench.attention.kvcache import PagedKVCache as PagedKVCache
    from workbench.attention.kvcache import PagePlan as PagePlan
    from workbench.attention.kvcache import SequenceStateError as SequenceStateError
    from workbench.attention.kvcache import UnknownSequenceError as UnknownSequenceError
    from workbench.attention.kvcache import plan_pages as plan_pages
    from workbench.attention.ops import causal_attention as causal_attention
    from workbench.attention.ops import causal_attention_backward as causal_attention_backward
    from workbench.attention.ops import contiguous_attention as contiguous_attention
    from workbench.attention.ops import conv_step as conv_step
    from workbench.attention.ops import copy_blocks as copy_blocks
    from workbench.attention.ops import gated_delta_step as gated_delta_step
    from workbench.attention.ops import gather_cache as gather_cache
    from workbench.attention.ops import indexer_scores as indexer_scores
    from workbench.attention.ops import mla_decode as mla_decode
    from workbench.attention.ops import paged_attention as paged_attention
    from workbench.attention.ops import paged_prefill as paged_prefill
    from workbench.attention.ops import pool_windows as pool_windows
    from workbench.attention.ops import reshape_and_cache as reshape_and_cache
    from workbench.attention.ops import rotate_heads as rotate_heads
    from workbench.attention.ops import swap_blocks as swap_blocks
    from workbench.attention.ops import top_k_positions as top_k_positions

__getattr__, __dir__ = lazily(__name__, _LAZY)
