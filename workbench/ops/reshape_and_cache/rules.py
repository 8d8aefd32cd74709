"""Restrictions that the kernels share."""

from __future__ import annotations

from workbench.ops.variant import Restriction

GRID = Restriction(
    "grid",
    "num_kv_heads <= 65535, the second dimension of a grid",
    lambda config, problem: problem.num_kv_heads <= 65535,
)
