"""The operations of the running example, each implemented several ways.

``from workbench.attention import paged_attention`` gives the function; its folder here is the module of the same name.
"""

from __future__ import annotations

from types import MappingProxyType

from workbench.attention.ops.causal_attention import OP as CAUSAL_ATTENTION
from workbench.attention.ops.causal_attention import causal_attention
from workbench.attention.ops.causal_attention_backward import OP as CAUSAL_ATTENTION_BACKWARD
from workbench.attention.ops.causal_attention_backward import causal_attention_backward
from workbench.attention.ops.contiguous_attention import OP as CONTIGUOUS_ATTENTION
from workbench.attention.ops.contiguous_attention import contiguous_attention
from workbench.attention.ops.copy_blocks import OP as COPY_BLOCKS
from workbench.attention.ops.copy_blocks import copy_blocks
from workbench.attention.ops.gather_cache import OP as GATHER_CACHE
from workbench.attention.ops.gather_cache import gather_cache
from workbench.attention.ops.paged_attention import OP as PAGED_ATTENTION
from workbench.attention.ops.paged_attention import paged_attention
from workbench.attention.ops.reshape_and_cache import OP as RESHAPE_AND_CACHE
from workbench.attention.ops.reshape_and_cache import reshape_and_cache
from workbench.attention.ops.swap_blocks import OP as SWAP_BLOCKS
from workbench.attention.ops.swap_blocks import swap_blocks

OPS = MappingProxyType(
    {
        op.name: op
        for op in (
            CAUSAL_ATTENTION,
            CAUSAL_ATTENTION_BACKWARD,
            CONTIGUOUS_ATTENTION,
            PAGED_ATTENTION,
            RESHAPE_AND_CACHE,
            COPY_BLOCKS,
            SWAP_BLOCKS,
            GATHER_CACHE,
        )
    }
)
"""The ops by name, in teaching order."""

__all__ = [
    "OPS",
    "causal_attention",
    "causal_attention_backward",
    "contiguous_attention",
    "copy_blocks",
    "gather_cache",
    "paged_attention",
    "reshape_and_cache",
    "swap_blocks",
]
