"""Restrictions that the kernels share."""

from __future__ import annotations

from workbench.ops.variant import Restriction

GRID = Restriction(
    "grid",
    "num_kv_heads and num_seqs <= 65535, the second and third dimension of a grid",
    lambda config, problem: max(problem.num_kv_heads, problem.num_seqs) <= 65535,
)
