"""Refusing a swap that would go wrong, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from workbench.errors import ArgumentError
from workbench.ops.arguments import check_dtype, check_pages, look_at_values
from workbench.ops.copy_blocks.problem import Problem


def problem_of(
    source_caches: Sequence[torch.Tensor], target_caches: Sequence[torch.Tensor], pairs: torch.Tensor, arch: str
) -> Problem:
    """Check all metadata (shapes, strides, dtypes) and describe the problem.

    Raises:
        ArgumentError: for the first argument that cannot be used.
    """
    if len(source_caches) != len(target_caches):
        raise ArgumentError(
            "target_caches", f"{len(target_caches)} caches", f"{len(source_caches)}, as many as sources", "Pair them."
        )
    page_bytes = None
    for side, caches in (("source_caches", source_caches), ("target_caches", target_caches)):
        apart = None
        for i, cache in enumerate(caches):
            name = f"{side}[{i}]"
            if cache.dim() < 2 or cache.numel() == 0:
                raise ArgumentError(name, f"shape {tuple(cache.shape)}", "[num_blocks, ...]", "The pages come first.")
            check_pages(name, cache)
            page = cache[0].numel() * cache.element_size()
            page_bytes = page_bytes or page
            found = cache.shape[0], page, page if cache.shape[0] == 1 else cache.stride(0) * cache.element_size()
            apart = apart or found
            if found != apart or page != page_bytes:
                raise ArgumentError(
                    name,
                    "{} pages of {} bytes, {} bytes apart".format(*found),
                    f"{apart[0]} pages of {page_bytes} bytes, {apart[2]} bytes apart",
                    "All caches of a side must be alike, and pages of both sides of one size.",
                )
    taken = {cache.data_ptr() for cache in source_caches}
    for i, cache in enumerate(target_caches):
        if cache.data_ptr() in taken:
            raise ArgumentError(
                f"target_caches[{i}]", "a source cache", "a cache that is no source", "Inside a cache use copy_blocks."
            )
    check_dtype("pairs", pairs, [torch.int64])
    if pairs.dim() != 2 or pairs.shape[1] != 2 or not pairs.is_contiguous():
        raise ArgumentError(
            "pairs",
            f"shape {tuple(pairs.shape)}, strides {pairs.stride()}",
            "[num_pairs, 2], contiguous: source page, target page",
            "Call pairs.contiguous().",
        )
    across = source_caches[0].device != target_caches[0].device
    return Problem(
        num_pairs=len(pairs),
        num_caches=len(source_caches),
        page_bytes=page_bytes,
        features=("two devices",) if across else (),
        arch=arch,
    )


def check_pairs(pairs: torch.Tensor, num_sources: int, num_targets: int) -> None:
    """Check that every page is one of its cache's, and that no two pairs write the same one.

    Always on a CPU; on a GPU only with ``WORKBENCH_CHECK_INDICES=1``, because it waits for the GPU.

    Raises:
        ArgumentError: names the first pair that cannot be used.
    """
    if not look_at_values(pairs):
        return
    wrong = (pairs < 0) | (pairs >= torch.tensor([num_sources, num_targets], device=pairs.device))
    if wrong.any():
        pair, side = wrong.nonzero()[0].tolist()
        raise ArgumentError(
            f"pairs[{pair}, {side}]",
            int(pairs[pair, side]),
            f"0 to {(num_sources, num_targets)[side] - 1}, the pages of the {('sources', 'targets')[side]}",
            "A pair is (source page, target page).",
        )
    order = pairs[:, 1].sort(stable=True)
    twice = order.values[1:] == order.values[:-1]
    if twice.any():
        at = int(twice.nonzero()[0])
        raise ArgumentError(
            f"pairs[{int(order.indices[at + 1])}, 1]",
            f"{int(order.values[at])}, the target of pairs[{int(order.indices[at])}] too",
            "each target once",
            "Two copies to one page would overwrite each other in no order.",
        )
