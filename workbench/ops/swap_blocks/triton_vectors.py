"""A chunk of a page per program, in Triton, from caches into others."""

from __future__ import annotations

from workbench.ops.copy_blocks.triton_pages import vectors_variant

VARIANT = vectors_variant("swap_blocks")
