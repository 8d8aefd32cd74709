"""One step of a causal convolution: torch's own convolution, every variant against its bound, refusals."""

import re

import pytest
import torch
from declarations import assert_rules, default_of, judge_drawn
from torch.nn import functional

import workbench
from workbench.attention import conv_step
from workbench.attention.ops.conv_step import VARIANTS, ConvCase, case
from workbench.attention.ops.conv_step.api import OP
from workbench.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("own_home")

TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}
SMALL = case("small")


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_steps_are_a_convolution_over_the_sequence(variant):
    """In place, over six tokens that begin with nothing: torch's conv1d of each channel, padded on the left."""
    generator = torch.Generator().manual_seed(6)
    inputs, weight = torch.randn(2, 6, 40, generator=generator), torch.randn(4, 40, generator=generator)
    padded = functional.pad(inputs.transpose(1, 2), (3, 0))
    whole = functional.silu(functional.conv1d(padded, weight.T[:, None], groups=40)).transpose(1, 2)
    states, slots = torch.full((3, 3, 40), torch.nan), torch.tensor([2, 0], dtype=torch.int32)
    for token in range(6):
        read = torch.full_like(slots, -1) if token == 0 else slots
        found = conv_step(inputs[:, token].contiguous(), weight, states, read, slots, variant=variant.name)
        torch.testing.assert_close(found, whole[:, token], atol=1e-5, rtol=1e-5)
    assert torch.equal(states[slots.long()], inputs[:, 3:])


@pytest.mark.parametrize("name", ["small", "float16", "float32"])
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_states_keep_to_their_slots(variant, name, judge):
    verdict = judge(variant, default_of(variant, case(name)), case(name), checks=True)
    assert verdict.ok, str(verdict)


@pytest.mark.long
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_random_legal_configurations(variant, judge):
    def draw(rng, number):
        sizes = rng.choice((1, 5)), rng.choice((16, 40, 304)), rng.choice((2, 3, 4, 5))
        return ConvCase("drawn", *sizes, rng.choice(variant.dtypes), number)

    judge_drawn(variant, 30, draw, judge, checks=True)


BAD = {
    "dtype": ("inputs", lambda t: {"inputs": t.inputs.double()}, "float16"),
    "shape": ("inputs", lambda t: {"inputs": t.inputs[0]}, "channels"),
    "weight": ("weight", lambda t: {"weight": t.weight[:, :50]}, r"\(4, 104\)"),
    "width": ("weight", lambda t: {"weight": t.weight[:1]}, "at least 2"),
    "states": ("states", lambda t: {"states": t.states[:, :2]}, r"\[num_slots, 3, 104\]"),
    "slots": ("slots", lambda t: {"slots": t.slots[:3]}, "One slot"),
    "slot": ("new_slots[0]", lambda t: {"new_slots": t.new_slots + 99}, "-1 to 17"),
    "out": ("out", lambda t: {"out": torch.empty(7, 96, dtype=torch.bfloat16)}, r"\(7, 104\)"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    argument, change, message = BAD[what]
    t = SMALL.inputs(SMALL.problem())
    given = {name: getattr(t, name) for name in ("inputs", "weight", "states", "slots", "new_slots")}
    with pytest.raises(ArgumentError) as error:
        conv_step(**given | change(t))
    assert error.value.argument == argument
    assert re.search(message, str(error.value)), str(error.value)


def test_opcheck_rules_and_comparison():
    problem = SMALL.problem()
    t = SMALL.inputs(problem)
    given = t.inputs, t.weight, t.states.nan_to_num(), t.slots, t.new_slots, torch.empty_like(t.inputs)
    torch.library.opcheck(OP.library_op(), given, {"variant": CUDA.name})
    every = {"grid": ({}, {"num_seqs": 70_000})}
    cuda = {"threads per block": ({"NUM_THREADS": 48}, {}), "whole vectors": ({"VEC_SIZE": 8}, {"channels": 100})}
    assert_rules(CUDA, CUDA.default_config(problem), problem, every | cuda)
    triton = {"every thread has work": ({"TILE": 32}, {})}
    assert_rules(TRITON, TRITON.default_config(problem), problem, every | triton)
    assert workbench.compare("conv_step", device="sim").all_correct
