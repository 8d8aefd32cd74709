"""A chunk of a page per program, in Triton, inside a cache."""

from __future__ import annotations

from workbench.ops.copy_blocks.triton_pages import default_config, vectors_variant

VARIANT = vectors_variant("copy_blocks", lambda problem: default_config(problem))
