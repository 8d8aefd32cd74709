"""The cache of keys and values of past tokens: its layouts in memory, and who owns which part of it.

The names below are loaded when first used: importing `BlockManager` imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.lazy import lazily

_LAZY = {
    "BlockManager": "workbench.kvcache.block_manager",
    "Calibration": "workbench.cache_formats.quantization",
    "ContiguousKVCache": "workbench.kvcache.contiguous",
    "MemoryUse": "workbench.kvcache.memory_use",
    "OutOfBlocksError": "workbench.kvcache.errors",
    "PagedKVCache": "workbench.kvcache.paged",
    "SequenceStateError": "workbench.kvcache.errors",
    "UnknownSequenceError": "workbench.kvcache.errors",
}

__all__ = list(_LAZY)

if TYPE_CHECKING:
    from workbench.cache_formats.quantization import Calibration as Calibration
    from workbench.kvcache.block_manager import BlockManager as BlockManager
    from workbench.kvcache.contiguous import ContiguousKVCache as ContiguousKVCache
    from workbench.kvcache.errors import OutOfBlocksError as OutOfBlocksError
    from workbench.kvcache.errors import SequenceStateError as SequenceStateError
    from workbench.kvcache.errors import UnknownSequenceError as UnknownSequenceError
    from workbench.kvcache.memory_use import MemoryUse as MemoryUse
    from workbench.kvcache.paged import PagedKVCache as PagedKVCache

_STUDIES = ("buddy", "replay", "samples", "sharing", "traces", "waste")

__getattr__, __dir__ = lazily(__name__, _LAZY, {name: f"workbench.cache_studies.{name}" for name in _STUDIES})
