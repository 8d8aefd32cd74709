"""Positions of the highest scores: every variant exact on ties, ends of rows and special values, and refusals."""

import re

import pytest
import torch
from declarations import assert_rules, default_of, judge_drawn

import workbench
from workbench.attention import top_k_positions
from workbench.attention.ops.top_k_positions import CASES, VARIANTS, TopKCase, case
from workbench.attention.ops.top_k_positions.api import OP
from workbench.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("own_home")

TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_positions_are_those_of_torch_where_nothing_is_equal(variant):
    scores = torch.randn(3, 500, generator=torch.Generator().manual_seed(4))
    found = top_k_positions(scores, torch.tensor([500, 77, 200], dtype=torch.int32), 50, variant=variant.name)
    for row, length, positions in zip(scores, (500, 77, 200), found, strict=True):
        assert torch.equal(row[:length].topk(50).indices.sort().values.int(), positions)


@pytest.mark.parametrize("family", ["normal", "ties", "equal", "special"])
@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_rows_around_k_and_around_tiles(variant, family, judge):
    one = TopKCase("grid", k=100, seq_lens=(127, 128, 129, 0, 1, 99, 100, 101), family=family)
    verdict = judge(variant, default_of(variant, one), one, checks=True)
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("variant", KERNELS, **NAME)
@pytest.mark.parametrize("count", [2, pytest.param(30, marks=pytest.mark.long)])
def test_random_legal_configurations(variant, count, judge):
    def draw(rng, number):
        lengths = (rng.randint(0, 600), rng.randint(0, 60), 1)
        return TopKCase("drawn", rng.randint(1, 300), lengths, rng.choice(("normal", "ties")), number)

    judge_drawn(variant, count, draw, judge, checks=True)


@pytest.mark.parametrize("name", [name for name in CASES if name != "deepseek-v3.2"])
def test_the_default_on_a_cpu(name):
    one = case(name)
    t = one.inputs(one.problem())
    assert top_k_positions(t.scores, t.seq_lens, one.k, out=t.out) is t.out
    assert one.check(t.out).ok


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_no_sequences_and_rows_apart(variant):
    assert top_k_positions(torch.empty(0, 9), torch.empty(0, dtype=torch.int32), 4, variant=variant.name).shape == (
        0,
        4,
    )
    wide = torch.full((2, 30), torch.nan)
    wide[:, :3] = torch.tensor([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]])
    found = top_k_positions(wide[:, :3], torch.tensor([3, 2], dtype=torch.int32), 2, variant=variant.name)
    assert found.tolist() == [[1, 2], [0, 1]]


BAD = {
    "dtype": ("scores", lambda a: {"scores": a["scores"].half()}, "float32"),
    "strides": ("scores", lambda a: {"scores": a["scores"].T}, "contiguous"),
    "lengths": ("seq_lens", lambda a: {"seq_lens": a["seq_lens"][:2]}, "One length"),
    "length": ("seq_lens[0]", lambda a: {"seq_lens": a["seq_lens"] * 20}, "0 to 40"),
    "k": ("k", lambda a: {"k": 0}, "at least 1"),
    "out": ("out", lambda a: {"out": torch.zeros(5, 3, dtype=torch.int32)}, r"\[6, k\]"),
    "out dtype": ("out", lambda a: {"out": torch.zeros(6, 3)}, "int32"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    argument, change, message = BAD[what]
    one = case("small")
    t = one.inputs(one.problem())
    given = {"scores": t.scores, "seq_lens": t.seq_lens, "k": one.k}
    with pytest.raises(ArgumentError) as error:
        top_k_positions(**given | change(given))
    assert error.value.argument == argument
    assert re.search(message, str(error.value)), str(error.value)


def test_opcheck():
    one = case("small")
    t = one.inputs(one.problem())
    torch.library.opcheck(OP.library_op(), (t.scores, t.seq_lens, t.out), {"variant": CUDA.name})


def test_rules_and_comparison():
    problem = case("small").problem()
    assert_rules(CUDA, CUDA.default_config(problem), problem, {"threads per block": ({"NUM_THREADS": 48}, {})})
    assert_rules(TRITON, TRITON.default_config(problem), problem, {"a tile fits in registers": ({"TILE": 4096}, {})})
    assert workbench.compare("top_k_positions", device="sim").all_correct


def test_rows_without_scores_give_no_positions():
    out = torch.full((2, 3), 7, dtype=torch.int32)
    top_k_positions(torch.zeros(2, 0), torch.zeros(2, dtype=torch.int32), 3, out=out)
    assert out.eq(-1).all()
