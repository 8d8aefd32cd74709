"""The operations of the running example, each implemented several ways.

``from workbench.attention import paged_attention`` gives the function; its folder here is the module of the same name.
"""

from workbench.attention.ops.causal_attention import causal_attention
from workbench.attention.ops.causal_attention_backward import causal_attention_backward
from workbench.attention.ops.contiguous_attention import contiguous_attention
from workbench.attention.ops.conv_step import conv_step
from workbench.attention.ops.copy_blocks import copy_blocks
from workbench.attention.ops.gated_delta_step import gated_delta_step
from workbench.attention.ops.gather_cache import gather_cache
from workbench.attention.ops.indexer_scores import indexer_scores
from workbench.attention.ops.mla_decode import mla_decode
from workbench.attention.ops.paged_attention import paged_attention
from workbench.attention.ops.paged_prefill import paged_prefill
from workbench.attention.ops.pool_windows import pool_windows
from workbench.attention.ops.reshape_and_cache import reshape_and_cache
from workbench.attention.ops.rotate_heads import rotate_heads
from workbench.attention.ops.swap_blocks import swap_blocks
from workbench.attention.ops.top_k_positions import top_k_positions

__all__ = [
    "causal_attention",
    "causal_attention_backward",
    "contiguous_attention",
    "conv_step",
    "copy_blocks",
    "gated_delta_step",
    "gather_cache",
    "indexer_scores",
    "mla_decode",
    "paged_attention",
    "paged_prefill",
    "pool_windows",
    "reshape_and_cache",
    "rotate_heads",
    "swap_blocks",
    "top_k_positions",
]
