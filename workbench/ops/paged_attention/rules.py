"""Restrictions that several variants share, and what they are made of."""

from __future__ import annotations

from workbench.ops.paged_attention.problem import Problem
from workbench.ops.variant import Restriction


def shared_limit(problem: Problem) -> int:
    """Bytes of shared memory that one block may take on the problem's architecture."""
    from workbench.toolchain.occupancy import limits_of

    return limits_of(problem.arch).shared_per_block


PAGE_SIZE = Restriction(
    "page size",
    "BLOCK_SIZE == the page size of the cache",
    lambda config, problem: problem.block_size in (None, config["BLOCK_SIZE"]),
)

GRID = Restriction(
    "grid",
    "num_seqs <= 65535, the second dimension of a grid",
    lambda config, problem: problem.num_seqs <= 65535,
)
