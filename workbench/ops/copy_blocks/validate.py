"""Refusing a copy that would go wrong, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from workbench.errors import ArgumentError
from workbench.ops.arguments import check_dtype, check_pages, look_at_values
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
    named = [(f"{name}[{i}]", cache) for name, caches in _both(key_caches, value_caches) for i, cache in caches]
    first_name, first = named[0]
    for name, cache in named:
        if cache.dim() < 2 or cache.numel() == 0:
            raise ArgumentError(name, f"shape {tuple(cache.shape)}", "[num_blocks, ...]", "The pages come first.")
        check_pages(name, cache)
        if _pages(cache) != _pages(first):
            raise ArgumentError(
                name,
                "{} pages of {} bytes, {} bytes apart".format(*_pages(cache)),
                "{} pages of {} bytes, {} bytes apart, as {}".format(*_pages(first), first_name),
                "All layers of a cache must be alike.",
            )
    check_dtype("pairs", pairs, [torch.int64])
    if pairs.dim() != 2 or pairs.shape[1] != 2 or not pairs.is_contiguous():
        raise ArgumentError(
            "pairs",
            f"shape {tuple(pairs.shape)}, strides {pairs.stride()}",
            "[num_pairs, 2], contiguous: source page, destination page",
            "Call pairs.contiguous().",
        )
    return Problem(num_pairs=len(pairs), num_caches=len(named), page_bytes=_pages(first)[1], arch=arch)


def check_pairs(pairs: torch.Tensor, num_blocks: int) -> None:
    """Check that every page is one of the cache's, and that pairs do not depend on each other's order.

    Always on a CPU; on a GPU only with ``WORKBENCH_CHECK_INDICES=1``, because it waits for the GPU.

    Raises:
        ArgumentError: names the first pair that cannot be used.
    """
    if not look_at_values(pairs):
        return
    wrong = (pairs < 0) | (pairs >= num_blocks)
    if wrong.any():
        pair, side = wrong.nonzero()[0].tolist()
        raise ArgumentError(
            f"pairs[{pair}, {side}]",
            int(pairs[pair, side]),
            f"0 to {num_blocks - 1}, the pages of the cache",
            "A pair is (source page, destination page).",
        )
    sources, destinations = pairs.unbind(1)
    order = destinations.sort(stable=True)
    twice = order.values[1:] == order.values[:-1]
    if twice.any():
        at = int(twice.nonzero()[0])
        raise ArgumentError(
            f"pairs[{int(order.indices[at + 1])}, 1]",
            f"{int(order.values[at])}, the destination of pairs[{int(order.indices[at])}] too",
            "each destination once",
            "Two copies to one page would overwrite each other in no order.",
        )
    both = torch.isin(destinations, sources)
    if both.any():
        at = int(both.nonzero()[0])
        raise ArgumentError(
            f"pairs[{at}, 1]",
            f"{int(destinations[at])}, which is also a source",
            "pages that no pair reads",
            "Pairs are copied in no order: make two calls.",
        )


def _both(key_caches, value_caches):
    return ("key_caches", enumerate(key_caches)), ("value_caches", enumerate(value_caches))


def _pages(cache: torch.Tensor) -> tuple[int, int, int]:
    """Number of pages, bytes of one, bytes from one to the next."""
    page = cache[0].numel() * cache.element_size()
    return cache.shape[0], page, page if cache.shape[0] == 1 else cache.stride(0) * cache.element_size()
