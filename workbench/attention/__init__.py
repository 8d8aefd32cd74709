"""Attention and its KV cache, the running example: ops, caches, quantization, a model, their pictures.

It stands beside the workbench as a package of yours would: it uses its public names, and offers its ops by entry
points. The names below are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.lazy import lazily

_LAZY = {
    "BlockManager": "workbench.attention.kvcache.block_manager",
    "Calibration": "workbench.attention.cache_formats.quantization",
    "ContiguousKVCache": "workbench.attention.kvcache.contiguous",
    "MemoryUse": "workbench.attention.kvcache.memory_use",
    "OutOfBlocksError": "workbench.attention.kvcache.errors",
    "PagedKVCache": "workbench.attention.kvcache.paged",
    "SequenceStateError": "workbench.attention.kvcache.errors",
    "UnknownSequenceError": "workbench.attention.kvcache.errors",
    "causal_attention": "workbench.attention.ops",
    "causal_attention_backward": "workbench.attention.ops",
    "contiguous_attention": "workbench.attention.ops",
    "copy_blocks": "workbench.attention.ops",
    "gather_cache": "workbench.attention.ops",
    "paged_attention": "workbench.attention.ops",
    "reshape_and_cache": "workbench.attention.ops",
    "swap_blocks": "workbench.attention.ops",
}

__all__ = list(_LAZY)

if TYPE_CHECKING:
    from workbench.attention.cache_formats.quantization import Calibration as Calibration
    from workbench.attention.kvcache.block_manager import BlockManager as BlockManager
    from workbench.attention.kvcache.contiguous import ContiguousKVCache as ContiguousKVCache
    from workbench.attention.kvcache.errors import OutOfBlocksError as OutOfBlocksError
    from workbench.attention.kvcache.errors import SequenceStateError as SequenceStateError
    from workbench.attention.kvcache.errors import UnknownSequenceError as UnknownSequenceError
    from workbench.attention.kvcache.memory_use import MemoryUse as MemoryUse
    from workbench.attention.kvcache.paged import PagedKVCache as PagedKVCache
    from workbench.attention.ops import causal_attention as causal_attention
    from workbench.attention.ops import causal_attention_backward as causal_attention_backward
    from workbench.attention.ops import contiguous_attention as contiguous_attention
    from workbench.attention.ops import copy_blocks as copy_blocks
    from workbench.attention.ops import gather_cache as gather_cache
    from workbench.attention.ops import paged_attention as paged_attention
    from workbench.attention.ops import reshape_and_cache as reshape_and_cache
    from workbench.attention.ops import swap_blocks as swap_blocks

__getattr__, __dir__ = lazily(__name__, _LAZY)
