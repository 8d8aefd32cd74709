"""Named steps of the gated delta rule, with a known answer.

States, queries, keys and values are N(0, 1), beta is in 0 to 1, decays are between 0 and -2. Sequences read slots in
shuffled order and write others; some start from zeros, some forget their state. Slots that nobody reads hold NaN, and
``Tensors.out`` is the bytes of all slots that may be written and of the output: what no sequence writes keeps its bits.
The bound follows the magnitudes through the formula: each sum of n terms in fp32 is off by n 2^-24 of theirs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.gated_delta_step.problem import GatedDeltaProblem, GatedDeltaTensors
from workbench.attention.ops.gated_delta_step.reference import step
from workbench.attention.ops.named_case import NamedCase, by_name, check_sequences
from workbench.attention.ops.state_slots import drawn_slots, read_states, slots_and_output
from workbench.ops import Check

_EPS = 2.0**-24
_FREE = 2


@dataclass(frozen=True)
class GatedDeltaCase(NamedCase):
    """One step of all sequences. Every third sequence starts from zeros, every fifth forgets its state."""

    num_seqs: int
    num_key_heads: int
    num_value_heads: int
    key_size: int
    value_size: int
    key_decay: bool = False
    dtype: str = "bfloat16"
    seed: int = 0
    _problem = GatedDeltaProblem

    def __post_init__(self) -> None:
        self._check_choices(dtype=DTYPES)

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``qwen3-next 3x32 heads 128x128 bfloat16``."""
        sizes = f"{self.num_seqs}x{self.num_value_heads} heads {self.key_size}x{self.value_size}"
        return f"{self.name} {sizes} {self.dtype}"

    @property
    def features(self) -> tuple[str, ...]:
        """The features of the problem: whether rows of a state have decays of their own."""
        return ("key_decay",) if self.key_decay else ()

    def minimum_bytes(self, problem: GatedDeltaProblem) -> int:
        """Return the bytes that must cross memory once: states that are read and written, and all else."""
        content = _content(self)
        moved = int((content.slots >= 0).sum() + (content.new_slots >= 0).sum())
        states = 4 * moved * self.num_value_heads * self.key_size * self.value_size
        vectors = 2 * self.num_key_heads * self.key_size + 2 * self.num_value_heads * self.value_size
        return states + self.num_seqs * (
            vectors * problem.itemsize + 4 * self.num_value_heads * (problem.decays + 1) + 8
        )

    def inputs(self, problem: GatedDeltaProblem, device: str | torch.device = "cpu") -> GatedDeltaTensors:
        """Return fresh tensors; states that may be written and the output are parts of ``out``, whose bits are ones."""
        c = _content(self)
        states, output, out = slots_and_output(c.states, c.value.shape, c.value.dtype, device)
        return GatedDeltaTensors(
            query=c.query.to(device, copy=True),
            key=c.key.to(device, copy=True),
            value=c.value.to(device, copy=True),
            decay=c.decay.to(device, copy=True),
            beta=c.beta.to(device, copy=True),
            states=states,
            slots=c.slots.to(device, copy=True),
            new_slots=c.new_slots.to(device, copy=True),
            scale=self.key_size**-0.5,
            output=output,
            out=out,
        )

    def reference(self) -> torch.Tensor:
        """Return the float64 answer of each sequence, its output and then its state, ``[num_seqs, numbers]``."""
        return _answer(self)[0]

    def check(self, out: torch.Tensor) -> Check:
        """Judge outputs and new states by the bound; slots that nobody writes must keep their bits."""
        c, (answer, bound) = _content(self), _answer(self)
        size = c.states.numel() * 4
        states, output = out.cpu()[:size], out.cpu()[size:].view(DTYPES[self.dtype]).view(self.num_seqs, -1)
        states = states.view(len(c.states), -1)
        kept, written = c.new_slots >= 0, c.new_slots[c.new_slots >= 0].long() - len(c.states)
        others = torch.ones(len(states), dtype=torch.bool)
        others[written] = False
        if (states[others] != 0xFF).any():
            return Check(float("inf"), 0.0, False)
        found = answer.clone()  # of a state that is forgotten nothing is judged
        found[:, : output.shape[1]] = output.double()
        found[kept, output.shape[1] :] = states[written].view(torch.float32).double()
        return check_sequences(found / bound, answer / bound, torch.ones(self.num_seqs, dtype=torch.float64))


@dataclass(frozen=True, eq=False)
class _Content:
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    decay: torch.Tensor
    beta: torch.Tensor
    states: torch.Tensor
    slots: torch.Tensor
    new_slots: torch.Tensor


@functools.lru_cache(maxsize=4)
def _content(case: GatedDeltaCase) -> _Content:
    """Draw the inputs; ``states`` are the slots that are read, those that are written follow them."""
    generator = torch.Generator().manual_seed(case.seed)
    dtype, slots = DTYPES[case.dtype], case.num_seqs + _FREE

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    keys = case.num_seqs, case.num_key_heads, case.key_size
    heads = case.num_seqs, case.num_value_heads
    states = normal(slots, case.num_value_heads, case.key_size, case.value_size)
    read, written = drawn_slots(case.num_seqs, states, generator)
    return _Content(
        query=normal(*keys).to(dtype),
        key=normal(*keys).to(dtype),
        value=normal(*heads, case.value_size).to(dtype),
        decay=-2 * torch.rand((*heads, case.key_size) if case.key_decay else heads, generator=generator),
        beta=torch.rand(heads, generator=generator),
        states=states,
        slots=read,
        new_slots=written,
    )


@functools.lru_cache(maxsize=16)
def _answer(case: GatedDeltaCase) -> tuple[torch.Tensor, torch.Tensor]:
    """Return answers ``[num_seqs, numbers]``, and the bound of every number."""
    c = _content(case)
    state = read_states(c.states, c.slots).double()
    scale = case.key_size**-0.5
    output, new = step(c.query, c.key, c.value, c.decay, c.beta, state, scale)
    # With the signs of magnitudes the error v - S k becomes their sum: values are passed as negative ones.
    sizes = step(c.query.abs(), c.key.abs(), -c.value.abs(), c.decay, -c.beta, state.abs(), scale)
    terms = (2 * case.key_size + 32) * _EPS
    rounding = torch.finfo(DTYPES[case.dtype]).eps / 2
    bounds = sizes[0].abs() * terms + output.abs() * rounding, sizes[1].abs() * terms
    smallest = torch.finfo(DTYPES[case.dtype]).tiny
    answers = (torch.cat([one.flatten(1) for one in pair], 1) for pair in ((output, new), bounds))
    answer, bound = answers
    return answer, bound + smallest


CASES = by_name(
    GatedDeltaCase("small", num_seqs=7, num_key_heads=2, num_value_heads=4, key_size=32, value_size=40),
    GatedDeltaCase("qwen3-next", num_seqs=3, num_key_heads=16, num_value_heads=32, key_size=128, value_size=128),
    GatedDeltaCase(
        "kimi-linear", num_seqs=2, num_key_heads=32, num_value_heads=32, key_size=128, value_size=128, key_decay=True
    ),
    GatedDeltaCase(
        "float32", num_seqs=4, num_key_heads=1, num_value_heads=3, key_size=24, value_size=20, dtype="float32"
    ),
)
