"""Pooled windows: every variant against its bound, refusals."""

import re

import pytest
import torch
from declarations import assert_rules, default_of, judge_drawn

import workbench
from workbench.attention import pool_windows
from workbench.attention.ops.pool_windows import VARIANTS, PoolCase, case
from workbench.attention.ops.pool_windows.api import OP
from workbench.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("own_home")

TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}


@pytest.mark.parametrize("name", ["small", "large", "float32"])
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_windows_of_every_family(variant, name, judge):
    verdict = judge(variant, default_of(variant, case(name)), case(name), checks=True)
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.parametrize("count", [2, pytest.param(30, marks=pytest.mark.long)])
def test_random_legal_configurations(variant, count, judge):
    def draw(rng, number):
        size, dtype = rng.choice((16, 40, 64, 200)), rng.choice(variant.dtypes)
        return PoolCase("drawn", rng.choice((1, 3)), rng.choice((1, 4, 7)), size, dtype, "first", number)

    judge_drawn(variant, count, draw, judge, checks=True)


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_a_window_without_tokens_is_zero_and_none_is_nothing(variant):
    one = case("small")
    t = one.inputs(one.problem())
    out = pool_windows(t.values, t.gates, t.position_bias, variant=variant.name, out=t.out)
    assert out is t.out
    assert one.check(out).ok
    assert (out[-1] == 0).all()
    assert pool_windows(t.values[:0], t.gates[:0], t.position_bias, variant=variant.name).shape == (0, 40)


BAD = {
    "dtype": ("values", lambda t: {"values": t.values.double()}, "float32"),
    "shape": ("values", lambda t: {"values": t.values[0]}, "num_windows"),
    "gates": ("gates", lambda t: {"gates": t.gates[:, 1:]}, "contiguous"),
    "gates dtype": ("gates", lambda t: {"gates": t.gates.float()}, "bfloat16"),
    "bias": ("position_bias", lambda t: {"position_bias": t.position_bias[1:]}, r"\(4, 40\)"),
    "out": ("out", lambda t: {"out": t.out[1:]}, r"\(5, 40\)"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    argument, change, message = BAD[what]
    t = case("small").inputs(case("small").problem())
    given = {"values": t.values, "gates": t.gates, "position_bias": t.position_bias}
    with pytest.raises(ArgumentError) as error:
        pool_windows(**given | change(t))
    assert error.value.argument == argument
    assert re.search(message, str(error.value)), str(error.value)


def test_opcheck_rules_and_comparison():
    problem = case("small").problem()
    t = case("small").inputs(problem)
    torch.library.opcheck(OP.library_op(), (t.values, t.gates, t.position_bias, t.out), {"variant": CUDA.name})
    cuda = {"threads per block": ({"NUM_THREADS": 48}, {}), "whole vectors": ({"VEC_SIZE": 8}, {"head_size": 36})}
    assert_rules(CUDA, CUDA.default_config(problem), problem, cuda)
    assert_rules(TRITON, TRITON.default_config(problem), problem, {"every thread has work": ({"num_warps": 4}, {})})
    assert workbench.compare("pool_windows", device="sim").all_correct
