"""Sizes and tensors of the kernels for one step of a causal convolution."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.attention.ops.cache_problem import ElementProblem
from workbench.attention.ops.rules import grid, rules
from workbench.ops import Arguments
from workbench.ops.tensors import RunTensors, made


@dataclass(frozen=True)
class ConvProblem(ElementProblem):
    """The sizes of one step: ``width`` inputs of each channel, of which ``width - 1`` lie in the state."""

    num_seqs: int
    channels: int
    width: int
    dtype: str
    layout: str = "any"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"


@dataclass
class ConvTensors(RunTensors):
    """The tensors of one run; ``out`` is the bytes of what it writes, for whoever judges.

    inputs, output ``[num_seqs, channels]``; weight ``[width, channels]``; states ``[num_slots, width - 1, channels]``;
    slots, new_slots ``[num_seqs] int32``.
    """

    inputs: torch.Tensor
    weight: torch.Tensor
    states: torch.Tensor
    slots: torch.Tensor
    new_slots: torch.Tensor
    output: torch.Tensor
    out: torch.Tensor | None = made()


ARGUMENTS: Arguments = {"slot_stride": lambda config, problem, tensors: tensors.states.stride(0)}
"""Arguments of the kernels, beside the tensors and sizes that are passed by their own names."""

RESTRICTIONS = rules(grid("num_seqs"))
"""Rules of every kernel."""
