"""FlashAttention-2 in Triton with tensor descriptors: on sm_90 TMA copies every tile, and wgmma multiplies it.

The kernel is that of ``triton_flash``. A program makes one descriptor each for its queries, keys, values and output
rows. A descriptor knows where its tensor ends, so tiles need no mask: past a sequence's tokens are zeros.

``warp_specialize`` is no tunable: for sm_90 Triton 3.7 refuses this loop of two products on four warps and ignores the
setting on other numbers of warps.
"""

from __future__ import annotations

from dataclasses import replace

from workbench.attention.ops.causal_attention.problem import blocks
from workbench.attention.ops.causal_attention.triton_flash import VARIANT as FLASH
from workbench.attention.ops.causal_attention.triton_rows import constexprs
from workbench.attention.ops.rules import TMA

VARIANT = replace(
    FLASH,
    name="triton_descriptors",
    idea="FlashAttention-2 in Triton with tensor descriptors: TMA copies tiles and fills what lies past the end",
    steps=(
        replace(
            FLASH.steps[0],
            grid=lambda config, problem: blocks(config, problem),
            constexprs=lambda config, problem: {**constexprs(config, problem), "DESCRIPTORS": True},
        ),
    ),
    space={
        "BLOCK_M": (64, 128),
        "BLOCK_N": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (1, 2, 3),
    },
    restrictions=(TMA, *FLASH.restrictions),
)
