"""Sizes and tensors of the kernels that copy pages, inside caches or between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from workbench.attention.ops.cache_problem import Sizes
from workbench.attention.ops.constants import constant
from workbench.attention.ops.rules import grid
from workbench.ops import Arguments, Config, Variant
from workbench.ops.tensors import RunTensors, extent
from workbench.ptx import join_reports

STEP = 16
"""Unit of all distances between caches and pages, in bytes."""


@dataclass(frozen=True)
class CopyBlocksProblem(Sizes):
    """Sizes of one batched copy. ``num_caches`` counts the key and value caches of all layers.

    A page is ``page_bytes`` bytes, whatever its dtype and layout; ``layout`` and ``dtype`` say so in every op's terms.
    """

    num_pairs: int
    num_caches: int
    page_bytes: int
    layout: str = "any"
    dtype: str = "any"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"


@dataclass(frozen=True)
class Memory:
    """Places of caches in memory.

    ``base`` is the memory that holds the caches, as bytes. ``places [num_caches] int64`` has the start of each cache in
    it, and ``page_steps`` is the distance between two pages of a cache, both in units of `STEP`.
    """

    base: torch.Tensor
    places: torch.Tensor
    page_steps: int


@dataclass
class CopyBlocksTensors(RunTensors):
    """The tensors of one run; every one of ``targets [num_blocks, ...]`` is written in place.

    Inside a cache ``sources`` and ``targets`` are the same. ``source_memory`` and ``target_memory`` say where they lie,
    None where no kernel can reach both. ``out`` is what whoever judges looks at.
    """

    sources: tuple[torch.Tensor, ...]
    targets: tuple[torch.Tensor, ...]
    pairs: torch.Tensor
    source_memory: Memory | None
    target_memory: Memory | None
    out: torch.Tensor | None = None


class MovesPages(Variant):
    """Variant whose kernel reaches all caches from one address.

    In the simulator each pair of allocations is a launch of its own.
    """

    def run(
        self, config: Config, problem: CopyBlocksProblem, tensors: CopyBlocksTensors, device: Any, **launch_options: Any
    ) -> Any:
        """Run the kernel once on a GPU, in the simulator once for each group of `by_allocation`; join the reports."""
        if problem.num_pairs == 0:
            return None
        tensors = replace(tensors, pairs=tensors.pairs.to(tensors.sources[0].device))
        groups = list(by_allocation(tensors.sources, tensors.targets)) if device.counts else []
        if len(groups) < 2:
            return super().run(config, problem, tensors, device, **launch_options)
        reports = []
        for sources, targets in groups:
            part = replace(problem, num_caches=len(sources)), tensors_of(sources, targets, tensors.pairs)
            reports.append(super().run(config, *part, device, **launch_options))
        return join_reports(reports)


ARGUMENTS: Arguments = {
    "sources": lambda config, problem, tensors: tensors.source_memory.base,
    "targets": lambda config, problem, tensors: tensors.target_memory.base,
    "source_places": lambda config, problem, tensors: tensors.source_memory.places,
    "target_places": lambda config, problem, tensors: tensors.target_memory.places,
    "source_page_steps": lambda config, problem, tensors: tensors.source_memory.page_steps,
    "target_page_steps": lambda config, problem, tensors: tensors.target_memory.page_steps,
}
"""Arguments of the kernels, beside the tensors and sizes that are passed by their own names."""

GRID = grid("num_caches")


def tensors_of(
    sources: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    pairs: torch.Tensor,
    out: torch.Tensor | None = None,
) -> CopyBlocksTensors:
    """Return the tensors of a run, with the places of all sources and of all targets if both are on one device.

    `memory_of` says which caches it takes.
    """
    together = sources[0].device == targets[0].device
    source_memory, target_memory = (memory_of(sources), memory_of(targets)) if together else (None, None)
    return CopyBlocksTensors(tuple(sources), tuple(targets), pairs, source_memory, target_memory, out)


def memory_of(caches: Sequence[torch.Tensor]) -> Memory:
    """Return the places of caches whose pages start on multiples of `STEP` bytes and are equally far apart.

    On a GPU the caches may lie anywhere in its memory. The simulator gives every allocation an address of its own, so
    there they must be parts of one: see `by_allocation`.
    """
    lowest = min(caches, key=torch.Tensor.data_ptr)
    start = lowest.data_ptr()
    end = max(cache.data_ptr() + extent(cache) for cache in caches)
    storage = lowest.untyped_storage()
    first = start - storage.data_ptr()
    room = min(end - start, storage.nbytes() - first)  # of this allocation, if there are several
    base = torch.empty(0, dtype=torch.uint8, device=lowest.device).set_(storage, first, (room,), (1,))
    steps = tuple((cache.data_ptr() - start) // STEP for cache in caches)
    apart = caches[0].stride(0) * caches[0].element_size() // STEP
    return Memory(base, constant(steps, torch.int64, lowest.device), apart)


def by_allocation(
    sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]
) -> Iterator[tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]]:
    """Yield groups of sources and targets, with all sources of a group in one allocation, and all targets in one."""
    groups: dict[tuple[int, int], list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for pair in zip(sources, targets, strict=True):
        source, target = (each.untyped_storage().data_ptr() for each in pair)
        groups.setdefault((source, target), []).append(pair)
    for group in groups.values():
        yield tuple(source for source, _ in group), tuple(target for _, target in group)
