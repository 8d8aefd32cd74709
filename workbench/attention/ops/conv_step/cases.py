"""Named steps of a causal convolution, with a known answer.

Inputs, weights and states are N(0, 1). Sequences read slots in shuffled order and write others; some start from zeros,
some forget their state. Slots that nobody reads hold NaN, and ``Tensors.out`` is the bytes of all slots that may be
written and of the output: new states are exact, and what no sequence writes keeps its bits. SiLU's slope is below 1.1:
the bound of an output is that of the sum, and half a step of the dtype.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from workbench.attention.ops.conv_step.problem import ConvProblem, ConvTensors
from workbench.attention.ops.conv_step.reference import step
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.named_case import NamedCase, by_name, check_sequences
from workbench.attention.ops.state_slots import drawn_slots, read_states, slots_and_output
from workbench.ops import Check

_EPS = 2.0**-24
_FREE = 2


@dataclass(frozen=True)
class ConvCase(NamedCase):
    """One step of all sequences. Every third sequence starts from zeros, every fifth forgets its state."""

    num_seqs: int
    channels: int
    width: int = 4
    dtype: str = "bfloat16"
    seed: int = 0
    _problem = ConvProblem

    def __post_init__(self) -> None:
        self._check_choices(dtype=DTYPES)

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``qwen3-next 3x8192 bfloat16``."""
        return f"{self.name} {self.num_seqs}x{self.channels} {self.dtype}"

    def minimum_bytes(self, problem: ConvProblem) -> int:
        """Return the bytes that must cross memory once: states that are read and written, and all else."""
        c = _content(self)
        moved = int((c.slots >= 0).sum() + (c.new_slots >= 0).sum())
        rows = moved * (self.width - 1) + 2 * self.num_seqs + self.width
        return rows * self.channels * problem.itemsize + 8 * self.num_seqs

    def inputs(self, problem: ConvProblem, device: str | torch.device = "cpu") -> ConvTensors:
        """Return fresh tensors; states that may be written and the output are parts of ``out``, whose bits are ones."""
        c = _content(self)
        states, output, out = slots_and_output(c.states, c.inputs.shape, c.inputs.dtype, device)
        return ConvTensors(
            inputs=c.inputs.to(device, copy=True),
            weight=c.weight.to(device, copy=True),
            states=states,
            slots=c.slots.to(device, copy=True),
            new_slots=c.new_slots.to(device, copy=True),
            output=output,
            out=out,
        )

    def reference(self) -> torch.Tensor:
        """Return the float64 output, ``[num_seqs, channels]``."""
        return _answer(self)[0]

    def check(self, out: torch.Tensor) -> Check:
        """Judge outputs by the bound; states must be right in every bit."""
        c, dtype = _content(self), DTYPES[self.dtype]
        output, new, bound = _answer(self)
        size = c.states.numel() * dtype.itemsize
        states = torch.full((size,), 0xFF, dtype=torch.uint8).view(dtype).view(c.states.shape)
        kept = c.new_slots >= 0
        states[c.new_slots[kept].long() - len(states)] = new[kept]
        if not torch.equal(out.cpu()[:size], states.view(torch.uint8).flatten()):
            return Check(float("inf"), 0.0, False)
        return check_sequences(out.cpu()[size:].view(dtype).view(output.shape), output, bound)


@dataclass(frozen=True, eq=False)
class _Content:
    inputs: torch.Tensor
    weight: torch.Tensor
    states: torch.Tensor
    slots: torch.Tensor
    new_slots: torch.Tensor


@functools.lru_cache(maxsize=4)
def _content(case: ConvCase) -> _Content:
    """Draw the inputs; ``states`` are the slots that are read, those that are written follow them."""
    generator, dtype = torch.Generator().manual_seed(case.seed), DTYPES[case.dtype]
    inputs, weight, states = (
        torch.randn(shape, generator=generator).to(dtype)
        for shape in (
            (case.num_seqs, case.channels),
            (case.width, case.channels),
            (case.num_seqs + _FREE, case.width - 1, case.channels),
        )
    )
    slots, new_slots = drawn_slots(case.num_seqs, states, generator)
    return _Content(inputs, weight, states, slots, new_slots)


@functools.lru_cache(maxsize=16)
def _answer(case: ConvCase) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the output, the new states, and the bound of each sequence."""
    c = _content(case)
    state = read_states(c.states, c.slots)
    output, new = step(c.inputs, c.weight.double(), state)
    sums = (torch.cat([state, c.inputs[:, None]], 1).double().abs() * c.weight.double().abs()).sum(1)
    rounding = torch.finfo(c.inputs.dtype).eps / 2 * output.abs()
    bound = (rounding + (2 * case.width + 16) * _EPS * sums).amax(1) + torch.finfo(c.inputs.dtype).tiny
    return output, new, bound


CASES = by_name(
    ConvCase("small", num_seqs=7, channels=104),
    ConvCase("qwen3-next", num_seqs=3, channels=8192),
    ConvCase("float16", num_seqs=4, channels=72, width=3, dtype="float16"),
    ConvCase("float32", num_seqs=6, channels=36, width=2, dtype="float32"),
)
