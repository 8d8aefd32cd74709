"""Several wide loads per thread in flight, then as many stores, all layers in one launch, from caches into others.

The kernel is ``cuda_src/copy_blocks_vectors.cu``.
"""

from __future__ import annotations

from workbench.ops.copy_blocks.vectors import vectors_variant

VARIANT = vectors_variant("swap_blocks")
