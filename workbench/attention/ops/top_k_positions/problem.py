"""Sizes and tensors of the kernels that choose the positions of the highest scores."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.attention.ops.cache_problem import Sizes
from workbench.ops import Arguments
from workbench.ops.tensors import RunTensors


@dataclass(frozen=True)
class TopKProblem(Sizes):
    """The sizes of one choice: rows of at most ``max_seq_len`` scores, of which ``k`` positions are chosen."""

    num_seqs: int
    max_seq_len: int
    k: int
    layout: str = "any"
    dtype: str = "float32"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"


@dataclass
class TopKTensors(RunTensors):
    """The tensors of one run; ``out`` is what a variant fills.

    scores ``[num_seqs, max_seq_len] float32``; seq_lens ``[num_seqs] int32``; out ``[num_seqs, k] int32``.
    """

    scores: torch.Tensor
    seq_lens: torch.Tensor
    out: torch.Tensor


ARGUMENTS: Arguments = {"scores_stride": lambda config, problem, tensors: tensors.scores.stride(0)}
"""Arguments of the kernels, beside the tensors and sizes that are passed by their own names."""
