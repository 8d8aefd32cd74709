"""Restrictions that the kernels share."""

from __future__ import annotations

from workbench.ops.variant import Restriction

GRID = Restriction(
    "grid",
    "num_kv_heads and num_seqs <= 65535, the second and third dimension of a grid",
    lambda config, problem: max(problem.num_kv_heads, problem.num_seqs) <= 65535,
)
WHOLE_X_GROUPS = Restriction(
    "whole x groups",
    "layout 'x' only: head_size % x == 0 with x = 16 / sizeof(cache element)",
    lambda config, problem: problem.layout != "x" or problem.head_size % problem.x == 0,
)
