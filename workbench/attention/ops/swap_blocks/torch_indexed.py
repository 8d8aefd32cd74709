"""Moves of pages by one index and one indexed assignment per cache: the default on a CPU, and between CPU and GPU."""

from __future__ import annotations

from workbench.attention.cache_formats.layouts import bits_of
from workbench.attention.ops.copy_blocks.problem import CopyBlocksProblem, CopyBlocksTensors
from workbench.ops import TorchVariant


def compute(problem: CopyBlocksProblem, tensors: CopyBlocksTensors) -> None:
    """Copy every pair's source page to its target page, in every cache."""
    t = tensors
    sources = t.pairs[:, 0].to(t.sources[0].device)
    destinations = t.pairs[:, 1].to(t.targets[0].device)
    for source, target in zip(t.sources, t.targets, strict=True):
        target = bits_of(target)
        target[destinations] = bits_of(source)[sources].to(target.device).view(-1, *target.shape[1:])


VARIANT = TorchVariant(
    op="swap_blocks",
    name="torch",
    idea="one indexed assignment per cache: plain torch, the pages side by side on the way",
    layouts=("any",),
    dtypes=("any",),
    features=("two devices",),
    compute=compute,
)
