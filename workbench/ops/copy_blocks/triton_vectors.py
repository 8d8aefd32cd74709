"""A chunk of a page per program, in Triton, inside a cache."""

from __future__ import annotations

from workbench.ops.copy_blocks.triton_pages import vectors_variant

VARIANT = vectors_variant("copy_blocks")
