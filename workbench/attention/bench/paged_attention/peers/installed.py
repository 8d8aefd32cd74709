"""What the peers' values share: whether a package is here, and how many parts fill a GPU."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from workbench.attention.bench.paged_attention.cells import Cell

NO_QUANTIZED = "takes keys and values of the query's dtype only"
LEAST_TILE = 16
"""Tokens of the smallest tile that a product of Triton's takes."""


def missing(module: str, package: str) -> str:
    """Why ``module`` of ``package`` cannot be used; empty if it can."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return f"{package} is not installed"
    return "" if importlib.util.find_spec(module) else f"{package} cannot be imported"


def parts_for(cell: Cell, blocks: int, tile: int) -> int:
    """Into how many parts, a power of two, to split each sequence for about ``blocks`` thread blocks in all, one per
    part and KV head; each part has a tile at least."""
    wanted = max(1, blocks // (cell.num_seqs * cell.num_kv_heads))
    return 1 << (min(wanted, cell.context // tile).bit_length() - 1)
