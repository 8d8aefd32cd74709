"""The tensors of one swap; the problem is that of `workbench.ops.copy_blocks`: pages are bytes here too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workbench.ops.copy_blocks.problem import Memory, Problem, memory_of

__all__ = ["Problem", "Tensors", "tensors_of"]


@dataclass
class Tensors:
    """The tensors of one run; every one of ``targets [num_blocks, ...]`` is written in place.

    ``source_memory`` and ``target_memory`` say where the caches lie, None where no kernel can reach both. ``out`` is
    what whoever judges looks at.
    """

    sources: tuple[torch.Tensor, ...]
    targets: tuple[torch.Tensor, ...]
    pairs: torch.Tensor
    source_memory: Memory | None
    target_memory: Memory | None
    out: torch.Tensor | None = None


def tensors_of(
    sources: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    pairs: torch.Tensor,
    out: torch.Tensor | None = None,
) -> Tensors:
    """The tensors of a run; in the simulator all sources, and all targets, must be parts of one allocation."""
    together = sources[0].device == targets[0].device
    memories = (memory_of(sources), memory_of(targets)) if together else (None, None)
    return Tensors(tuple(sources), tuple(targets), pairs, *memories, out)
