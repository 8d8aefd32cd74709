"""Refusing a swap that would go wrong, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from workbench.errors import ArgumentError
from workbench.ops.arguments import check_apart
from workbench.ops.copy_blocks.problem import Problem
from workbench.ops.copy_blocks.validate import check_alike, check_pairs


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
    sources, targets = (
        {f"{side}[{i}]": cache for i, cache in enumerate(caches)}
        for side, caches in (("source_caches", source_caches), ("target_caches", target_caches))
    )
    source_page, target_page = check_alike(sources), check_alike(targets)
    if source_page != target_page:
        allowed = f"{source_page} bytes, as source_caches[0]"
        raise ArgumentError(
            "target_caches[0]", f"pages of {target_page} bytes", allowed, "Pages of both sides are of one size."
        )
    check_apart(sources | targets, targets, "Inside a cache use copy_blocks.")
    check_pairs(pairs, "source page, target page")
    across = source_caches[0].device != target_caches[0].device
    return Problem(
        num_pairs=len(pairs),
        num_caches=len(source_caches),
        page_bytes=source_page,
        features=("two devices",) if across else (),
        arch=arch,
    )
