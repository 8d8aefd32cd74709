"""Hadamard rotation of heads: its own inverse, products kept, every variant against its bound, refusals."""

import re

import pytest
import torch
from declarations import assert_rules, default_of, judge_drawn

import workbench
from workbench.attention import rotate_heads
from workbench.attention.ops.rotate_heads import CASES, VARIANTS, RotationCase, case
from workbench.attention.ops.rotate_heads.api import OP
from workbench.attention.ops.rotate_heads.reference import hadamard
from workbench.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("own_home")

TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}
SMALL = case("small")


def test_the_matrix_is_a_rotation_and_its_own_inverse():
    matrix = hadamard(64)
    identity = torch.eye(64, dtype=torch.float64)
    assert torch.equal(matrix.abs(), torch.full_like(matrix, 0.125))
    assert torch.equal(matrix @ matrix, identity)
    assert torch.equal(rotate_heads(identity.float()[:, None])[:, 0].double(), matrix)


def test_products_stay_and_an_outlier_is_spread():
    generator = torch.Generator().manual_seed(4)
    query, key = (torch.randn(5, 2, 96, generator=generator) for _ in range(2))
    turned = rotate_heads(query), rotate_heads(key)
    torch.testing.assert_close((turned[0] * turned[1]).sum(-1), (query * key).sum(-1))
    torch.testing.assert_close(rotate_heads(turned[1]), key)
    key[..., 40] = 100.0  # of the block 32 to 63
    largest = rotate_heads(key).abs().amax((0, 1))
    assert largest[32:64].min() > 10.0
    assert largest[32:64].max() < 30.0
    assert largest[:32].max() < 10.0


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_cases(variant, name, judge):
    verdict = judge(variant, default_of(variant, case(name)), case(name), checks=True)
    assert verdict.ok, str(verdict)


@pytest.mark.long
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_random_legal_configurations(variant, judge):
    def draw(rng, number):
        block = 2 ** rng.randint(1, 9)
        sizes = rng.choice((1, 5, 33)), rng.choice((1, 2, 5)), block * rng.choice((1, 3))
        return RotationCase("drawn", *sizes, block, rng.choice(variant.dtypes), "outliers", number)

    judge_drawn(variant, 30, draw, judge, checks=True)


BAD = {
    "dtype": ("heads", {"heads": torch.zeros(2, 3, 32, dtype=torch.float64)}, "float16"),
    "shape": ("heads", {"heads": torch.zeros(3, 32)}, "num_heads"),
    "strides": ("heads", {"heads": torch.zeros(2, 32, 3).mT}, "side by side"),
    "odd": ("block", {"heads": torch.zeros(2, 4, 33)}, "even size"),
    "block": ("block", {"heads": torch.zeros(2, 4, 96), "block": 64}, "divides head_size"),
    "out": ("out", {"heads": torch.zeros(2, 4, 32), "out": torch.zeros(2, 4, 16)}, r"\(2, 4, 32\)"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    argument, given, message = BAD[what]
    with pytest.raises(ArgumentError) as error:
        rotate_heads(**given)
    assert error.value.argument == argument
    assert re.search(message, str(error.value)), str(error.value)


def test_opcheck_rules_and_comparison():
    problem = SMALL.problem()
    heads = SMALL.inputs(problem).heads
    torch.library.opcheck(
        OP.library_op(), (heads, 16, torch.empty(heads.shape, dtype=heads.dtype)), {"variant": "torch"}
    )
    cuda = {"threads per block": ({"NUM_THREADS": 48}, {}), "a block in a warp": ({"VEC_SIZE": 1}, {"block": 64})}
    assert_rules(CUDA, CUDA.default_config(problem), problem, cuda)
    triton = {
        "whole blocks": ({"TILE": 128}, {"block": 256}),
        "every thread has work": ({"TILE": 2048, "num_warps": 1}, {}),
    }
    assert_rules(TRITON, TRITON.default_config(problem), problem, triton)
    assert workbench.compare("rotate_heads", device="sim").all_correct
