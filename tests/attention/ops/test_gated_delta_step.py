"""One step of the gated delta rule: transformers' own step, every variant against its bound, memory and refusals."""

import re

import pytest
import torch
from declarations import assert_rules, default_of, judge_drawn

import workbench
from workbench.attention import gated_delta_step
from workbench.attention.ops.gated_delta_step import VARIANTS, GatedDeltaCase, case
from workbench.attention.ops.gated_delta_step.api import OP
from workbench.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("own_home")

TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}
SMALL = case("small")


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_steps_are_those_of_transformers(variant):
    """Five steps, each from the slot of the one before into another one: Qwen3-Next's recurrence over five tokens."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

    generator = torch.Generator().manual_seed(6)
    query, key, value = (torch.randn(2, 5, *shape, generator=generator) for shape in ((2, 16), (2, 16), (4, 24)))
    decay, beta = -torch.rand(2, 5, 4, generator=generator), torch.rand(2, 5, 4, generator=generator)
    theirs, last = torch_recurrent_gated_delta_rule(
        query, key, value, decay, beta, output_final_state=True, use_qk_l2norm_in_kernel=True
    )
    states, slots = torch.full((6, 4, 16, 24), torch.nan), torch.full((2,), -1, dtype=torch.int32)
    for token in range(5):
        new = (2 * (token % 3) + torch.arange(2)).int()
        given = [one[:, token].contiguous() for one in (query, key, value, decay, beta)]
        ours = gated_delta_step(*given, states, slots, new, variant=variant.name)
        torch.testing.assert_close(ours, theirs[:, token], atol=2e-5, rtol=2e-5)
        slots = new
    torch.testing.assert_close(states[slots.long()], last, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("key_decay", [False, True])
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_states_keep_to_their_slots(variant, key_decay, judge):
    one = SMALL.override(key_decay=key_decay)
    verdict = judge(variant, default_of(variant, one), one, checks=True)
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.parametrize("count", [2, pytest.param(30, marks=pytest.mark.long)])
def test_random_legal_configurations(variant, count, judge):
    def draw(rng, number):
        keys, sizes = rng.choice((1, 2)), (rng.choice((16, 24, 64)), rng.choice((20, 32, 100)))
        heads = keys * rng.choice((1, 3))
        return GatedDeltaCase("drawn", 4, keys, heads, *sizes, rng.random() < 0.5, rng.choice(variant.dtypes), number)

    judge_drawn(variant, count, draw, judge, checks=True)


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_in_place_and_no_sequences(variant):
    t = SMALL.inputs(SMALL.problem())
    given = [t.query[:2], t.key[:2], t.value[:2], t.decay[:2], t.beta[:2]]
    states = t.states[t.slots[:2].long()].clone()
    slots = torch.tensor([1, 0], dtype=torch.int32)
    apart, together = torch.cat([states, torch.zeros_like(states)]), states.clone()
    expected = gated_delta_step(*given, apart, slots, slots + 2, variant=variant.name)
    assert torch.equal(gated_delta_step(*given, together, slots, variant=variant.name), expected)
    assert torch.equal(together, apart[2:])
    empty = [one[:0] for one in given]
    assert gated_delta_step(*empty, states, slots[:0], variant=variant.name).shape == (0, 4, 40)


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_a_state_is_read_and_written_once(variant, sim):
    one = case("qwen3-next", num_key_heads=1, num_value_heads=2)
    config = default_of(variant, one)
    problem = one.problem(config)
    tensors = one.inputs(problem)
    report = variant.run(config, problem, tensors, sim, statistics=True)
    assert one.check(tensors.out).ok
    assert report.unique_bytes_read + report.unique_bytes_written == pytest.approx(
        one.minimum_bytes(problem), rel=0.001
    )
    state = 2 * 128 * 128 * 4
    assert 32 * report.global_store_sectors <= 1.01 * 3 * state
    # Two of three sequences read a state; every block, and with Triton every warp, reads query and key.
    assert 32 * report.global_load_sectors <= 1.15 * 2 * state


BAD = {
    "query dtype": ("query", lambda t: {"query": t.query.double()}, "float16"),
    "value heads": ("value", lambda t: {"value": t.value[:, :3]}, "multiple of 2"),
    "key": ("key", lambda t: {"key": t.key[..., :16]}, "contiguous"),
    "decay": ("decay", lambda t: {"decay": t.decay[:, :2]}, r"\(7, 4\)"),
    "decay of rows": ("decay", lambda t: {"decay": t.decay[..., None].repeat(1, 1, 8)}, r"\(7, 4, 32\)"),
    "beta": ("beta", lambda t: {"beta": t.beta.half()}, "float32"),
    "states": ("states", lambda t: {"states": t.states.transpose(2, 3)}, r"\[num_slots, 4, 32, 40\]"),
    "slots": ("slots", lambda t: {"slots": t.slots.long()}, "int32"),
    "slot": ("slots[0]", lambda t: {"slots": t.slots + 99}, "-1 to 17"),
    "one slot twice": ("new_slots[0]", lambda t: {"new_slots": torch.zeros_like(t.slots) + 17}, "written as well"),
    "another's slot": ("new_slots[0]", lambda t: {"new_slots": t.slots.roll(-1)}, "read as well"),
    "scale": ("scale", lambda t: {"scale": float("nan")}, "finite"),
    "out": ("out", lambda t: {"out": torch.empty(7, 4, 40)}, "bfloat16"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    argument, change, message = BAD[what]
    t = SMALL.inputs(SMALL.problem())
    given = {name: getattr(t, name) for name in ("query", "key", "value", "decay", "beta", "states", "slots")}
    before = t.states.clone()
    with pytest.raises(ArgumentError) as error:
        gated_delta_step(**given | {"new_slots": t.new_slots} | change(t))
    assert error.value.argument == argument
    assert re.search(message, str(error.value)), str(error.value)
    assert torch.equal(t.states.view(torch.int32), before.view(torch.int32)), "something was written"


def test_opcheck_rules_and_comparison():
    problem = SMALL.problem()
    t = SMALL.inputs(problem)
    given = t.query, t.key, t.value, t.decay, t.beta, t.states.nan_to_num(), t.slots, t.new_slots, t.scale
    torch.library.opcheck(OP.library_op(), (*given, torch.empty_like(t.value)), {"variant": CUDA.name})
    every = {"grid": ({}, {"num_seqs": 70_000})}
    cuda = {
        "threads per block": ({"NUM_THREADS": 48}, {}),
        "whole rows": ({"NUM_THREADS": 128}, {"key_size": 18}),
        "whole vectors": ({"VEC_SIZE": 4}, {"value_size": 42}),
        "registers": ({"NUM_THREADS": 32, "VEC_SIZE": 4}, {"key_size": 64}),
    }
    assert_rules(CUDA, CUDA.default_config(problem), problem, every | cuda)
    triton = {"registers": ({"TILE": 128, "num_warps": 1}, {"key_size": 64})}
    assert_rules(TRITON, TRITON.default_config(problem), problem, every | triton)
    assert workbench.compare("gated_delta_step", device="sim").all_correct
