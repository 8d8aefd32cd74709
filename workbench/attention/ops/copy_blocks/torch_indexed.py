"""Copies of pages by one indexed assignment per cache, in plain torch: the default on a CPU."""

from __future__ import annotations

from workbench.attention.cache_formats.layouts import bits_of
from workbench.attention.ops.copy_blocks.problem import CopyBlocksProblem, CopyBlocksTensors
from workbench.ops import TorchVariant


def compute(problem: CopyBlocksProblem, tensors: CopyBlocksTensors) -> None:
    """Copy every pair's source page to its destination, in every cache."""
    sources, destinations = tensors.pairs.unbind(1)
    for cache in tensors.targets:
        pages = bits_of(cache)
        pages[destinations] = pages[sources]


VARIANT = TorchVariant(
    op="copy_blocks",
    name="torch",
    idea="one indexed assignment per cache: plain torch, through a copy of the source pages",
    layouts=("any",),
    dtypes=("any",),
    compute=compute,
)
