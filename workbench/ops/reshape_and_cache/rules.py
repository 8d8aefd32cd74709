"""Restrictions that the kernels share."""

from __future__ import annotations

from workbench.ops.variant import Restriction

GRID = Restriction(
    "grid",
    "num_kv_heads <= 65535, the second dimension of a grid",
    lambda config, problem: problem.num_kv_heads <= 65535,
)
WHOLE_X_GROUPS = Restriction(
    "whole x groups",
    "layout 'x' only: head_size % x == 0 with x = 16 / sizeof(cache element)",
    lambda config, problem: problem.layout != "x" or problem.head_size % problem.x == 0,
)
