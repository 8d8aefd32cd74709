"""KV caches, paged and contiguous, with the block manager that assigns blocks to sequences and to groups of layers.

The names below are loaded when first used: importing `BlockManager` does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.base.packages import lazily

_LAZY = {
    "BlockManager": "workbench.attention.kvcache.block_manager",
    "Calibration": "workbench.attention.cache_formats.quantization",
    "Compressor": "workbench.attention.kvcache.compressor",
    "ContiguousKVCache": "workbench.attention.kvcache.contiguous",
    "LayerGroup": "workbench.attention.kvcache.layer_groups",
    "LayerKind": "workbench.attention.kvcache.page_plan",
    "MemoryUse": "workbench.attention.kvcache.memory_use",
    "OutOfBlocksError": "workbench.attention.kvcache.errors",
    "PagePlan": "workbench.attention.kvcache.page_plan",
    "PagedKVCache": "workbench.attention.kvcache.paged",
    "SequenceStateError": "workbench.attention.kvcache.errors",
    "UnknownSequenceError": "workbench.attention.kvcache.errors",
    "plan_pages": "workbench.attention.kvcache.page_plan",
}

__all__ = list(_LAZY)

if TYPE_CHECKING:
    from workbench.attention.cache_formats.quantization import Calibration as Calibration
    from workbench.attention.kvcache.block_manager import BlockManager as BlockManager
    from workbench.attention.kvcache.compressor import Compressor as Compressor
    from workbench.attention.kvcache.contiguous import ContiguousKVCache as ContiguousKVCache
    from workbench.attention.kvcache.errors import OutOfBlocksError as OutOfBlocksError
    from workbench.attention.kvcache.errors import SequenceStateError as SequenceStateError
    from workbench.attention.kvcache.errors import UnknownSequenceError as UnknownSequenceError
    from workbench.attention.kvcache.layer_groups import LayerGroup as LayerGroup
    from workbench.attention.kvcache.memory_use import MemoryUse as MemoryUse
    from workbench.attention.kvcache.page_plan import LayerKind as LayerKind
    from workbench.attention.kvcache.page_plan import PagePlan as PagePlan
    from workbench.attention.kvcache.page_plan import plan_pages as plan_pages
    from workbench.attention.kvcache.paged import PagedKVCache as PagedKVCache

__getattr__, __dir__ = lazily(__name__, _LAZY)
