"""Sizes and tensors of the kernels for one step of the gated delta rule."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench.attention.ops.cache_problem import ElementProblem
from workbench.attention.ops.rules import grid, rules
from workbench.ops import Arguments
from workbench.ops.tensors import RunTensors, made


@dataclass(frozen=True)
class GatedDeltaProblem(ElementProblem):
    """The sizes of one step: a state ``[key_size, value_size]`` for each value head of each sequence.

    ``features`` has "key_decay" where every row of a state has a decay of its own (Kimi Linear).
    """

    num_seqs: int
    num_key_heads: int
    num_value_heads: int
    key_size: int
    value_size: int
    dtype: str
    layout: str = "any"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"

    @property
    def group(self) -> int:
        """Number of value heads that share a query and a key."""
        return self.num_value_heads // self.num_key_heads

    @property
    def decays(self) -> int:
        """Number of decays of a state."""
        return self.key_size if "key_decay" in self.features else 1


@dataclass
class GatedDeltaTensors(RunTensors):
    """The tensors and numbers of one run; ``out`` is the bytes of what it writes, for whoever judges.

    query, key ``[num_seqs, num_key_heads, key_size]``; value, output ``[num_seqs, num_value_heads, value_size]``; decay
    ``[num_seqs, num_value_heads]`` or ``[num_seqs, num_value_heads, key_size] float32``; beta ``[num_seqs,
    num_value_heads] float32``; states ``[num_slots, num_value_heads, key_size, value_size] float32``; slots, new_slots
    ``[num_seqs] int32``.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    decay: torch.Tensor
    beta: torch.Tensor
    states: torch.Tensor
    slots: torch.Tensor
    new_slots: torch.Tensor
    scale: float
    output: torch.Tensor
    out: torch.Tensor | None = made()


ARGUMENTS: Arguments = {"slot_stride": lambda config, problem, tensors: tensors.states.stride(0)}
"""Arguments of the kernels, beside the tensors and sizes that are passed by their own names."""

RESTRICTIONS = rules(grid("num_seqs"))
"""Rules of every kernel."""
