"""One step of the gated delta rule: a state in place of a cache that grows."""

from workbench.attention.ops.gated_delta_step.api import OP, gated_delta_step
from workbench.attention.ops.gated_delta_step.cases import CASES, GatedDeltaCase
from workbench.attention.ops.gated_delta_step.cuda_columns import VARIANT as CUDA_COLUMNS
from workbench.attention.ops.gated_delta_step.problem import GatedDeltaProblem, GatedDeltaTensors
from workbench.attention.ops.gated_delta_step.torch_formula import VARIANT as TORCH
from workbench.attention.ops.gated_delta_step.triton_tile import VARIANT as TRITON_TILE

VARIANTS = (TORCH, CUDA_COLUMNS, TRITON_TILE)

OP.add(*VARIANTS, *CASES.values())
OP.function = gated_delta_step
case = OP.case

__all__ = [
    "CASES",
    "OP",
    "VARIANTS",
    "GatedDeltaCase",
    "GatedDeltaProblem",
    "GatedDeltaTensors",
    "case",
    "gated_delta_step",
]
