"""Scores of the tokens of a paged cache, by an indexer that chooses what attention reads."""

from workbench.attention.ops.indexer_scores.api import OP, indexer_scores
from workbench.attention.ops.indexer_scores.cases import CASES, IndexerCase
from workbench.attention.ops.indexer_scores.cuda_mma import VARIANT as CUDA_MMA
from workbench.attention.ops.indexer_scores.problem import IndexerProblem, IndexerTensors
from workbench.attention.ops.indexer_scores.torch_gathered import VARIANT as TORCH
from workbench.attention.ops.indexer_scores.triton_dot import VARIANT as TRITON_DOT

VARIANTS = (TORCH, CUDA_MMA, TRITON_DOT)

OP.add(*VARIANTS, *CASES.values())
OP.function = indexer_scores
case = OP.case

__all__ = ["CASES", "OP", "VARIANTS", "IndexerCase", "IndexerProblem", "IndexerTensors", "case", "indexer_scores"]
