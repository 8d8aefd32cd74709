"""Helpers that peers share: the check for an installed package, and the number of parts that fill a GPU."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from workbench.attention.bench.paged_attention.cells import Cell

NO_QUANTIZED = "takes keys and values of the query's dtype only"
LEAST_TILE = 16
"""Number of tokens of the smallest tile that Triton's ``tl.dot`` takes."""


def missing(module: str, package: str) -> str:
    """Return the reason why a module of a package cannot be used; empty if it can."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return f"{package} is not installed"
    return "" if importlib.util.find_spec(module) else f"{package} cannot be imported"


def parts_for(cell: Cell, blocks: int, tile: int) -> int:
    """Return the number of parts, a power of two, into which to split each sequence.

    It gives about ``blocks`` thread blocks in all, one per part and KV head; each part has at least one tile.
    """
    wanted = max(1, blocks // (cell.num_seqs * cell.num_kv_heads))
    return 1 << (min(wanted, cell.context // tile).bit_length() - 1)
