"""The operations of the running example, each implemented several ways.

``from workbench.attention import paged_attention`` gives the function; its folder here is the module of the same name.
"""

from workbench.attention.ops.causal_attention import causal_attention
from workbench.attention.ops.causal_attention_backward import causal_attention_backward
from workbench.attention.ops.contiguous_attention import contiguous_attention
from workbench.attention.ops.copy_blocks import copy_blocks
from workbench.attention.ops.gather_cache import gather_cache
from workbench.attention.ops.mla_decode import mla_decode
from workbench.attention.ops.paged_attention import paged_attention
from workbench.attention.ops.paged_prefill import paged_prefill
from workbench.attention.ops.reshape_and_cache import reshape_and_cache
from workbench.attention.ops.swap_blocks import swap_blocks

__all__ = [
    "causal_attention",
    "causal_attention_backward",
    "contiguous_attention",
    "copy_blocks",
    "gather_cache",
    "mla_decode",
    "paged_attention",
    "paged_prefill",
    "reshape_and_cache",
    "swap_blocks",
]
