"""Refusing a copy that would go wrong, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from workbench.errors import ArgumentError
from workbench.ops.arguments import check_apart, check_dtype, check_pages, look_at_values
from workbench.ops.copy_blocks.problem import Problem


def problem_of(
    key_caches: Sequence[torch.Tensor], value_caches: Sequence[torch.Tensor], pairs: torch.Tensor, arch: str
) -> Problem:
    """Check all metadata (shapes, strides, dtypes) and describe the problem.

    Raises:
        ArgumentError: for the first argument that cannot be used.
    """
    if len(key_caches) != len(value_caches):
        raise ArgumentError(
            "value_caches",
            f"{len(value_caches)} caches",
            f"{len(key_caches)}, as many as key_caches",
            "One of each per layer.",
        )
    lists = {"key_caches": key_caches, "value_caches": value_caches}
    named = {f"{name}[{i}]": one for name, caches in lists.items() for i, one in enumerate(caches)}
    page = check_alike(named)
    check_apart(named, named)
    check_pairs(pairs, "source page, destination page")
    return Problem(num_pairs=len(pairs), num_caches=2 * len(key_caches), page_bytes=page, arch=arch)


def check_alike(caches: Mapping[str, torch.Tensor]) -> int:
    """Check that named caches have pages, and the same ones; returns the bytes of a page."""
    first, wanted = "", None
    for name, cache in caches.items():
        if cache.dim() < 2 or cache.numel() == 0:
            raise ArgumentError(name, f"shape {tuple(cache.shape)}", "[num_blocks, ...]", "The pages come first.")
        check_pages(name, cache)
        page = cache[0].numel() * cache.element_size()
        found = cache.shape[0], page, page if cache.shape[0] == 1 else cache.stride(0) * cache.element_size()
        first, wanted = first or name, wanted or found
        if found != wanted:
            text = "{} pages of {} bytes, {} bytes apart"
            remedy = "All layers of a cache must be alike."
            raise ArgumentError(name, text.format(*found), f"{text.format(*wanted)}, as {first}", remedy)
    return wanted[1]


def check_pairs(pairs: torch.Tensor, meaning: str) -> None:
    """Check dtype, shape and strides of pairs of pages."""
    check_dtype("pairs", pairs, [torch.int64])
    if pairs.dim() != 2 or pairs.shape[1] != 2 or not pairs.is_contiguous():
        raise ArgumentError(
            "pairs",
            f"shape {tuple(pairs.shape)}, strides {pairs.stride()}",
            f"[num_pairs, 2], contiguous: {meaning}",
            "Call pairs.contiguous().",
        )


def check_copies(
    pairs: torch.Tensor, num_sources: int, num_targets: int, caches: tuple[str, str], written: str
) -> None:
    """Check that every page is one of its cache's, and that no two pairs write the same one.

    Always on a CPU; on a GPU only with ``WORKBENCH_CHECK_INDICES=1``, because it waits for the GPU. ``caches`` and
    ``written`` are what messages call the two sides, and the second page of a pair.

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
            f"0 to {(num_sources, num_targets)[side] - 1}, the pages of the {caches[side]}",
            f"A pair is (source page, {written} page).",
        )
    order = pairs[:, 1].sort(stable=True)
    twice = order.values[1:] == order.values[:-1]
    if twice.any():
        at = int(twice.nonzero()[0])
        raise ArgumentError(
            f"pairs[{int(order.indices[at + 1])}, 1]",
            f"{int(order.values[at])}, the {written} of pairs[{int(order.indices[at])}] too",
            f"each {written} once",
            "Two copies to one page would overwrite each other in no order.",
        )


def check_inside(pairs: torch.Tensor, num_blocks: int) -> None:
    """`check_copies` inside one cache, where pairs must not depend on each other's order either."""
    check_copies(pairs, num_blocks, num_blocks, ("cache", "cache"), "destination")
    if not look_at_values(pairs):
        return
    sources, destinations = pairs.unbind(1)
    both = torch.isin(destinations, sources)
    if both.any():
        at = int(both.nonzero()[0])
        raise ArgumentError(
            f"pairs[{at}, 1]",
            f"{int(destinations[at])}, which is also a source",
            "pages that no pair reads",
            "Pairs are copied in no order: make two calls.",
        )
