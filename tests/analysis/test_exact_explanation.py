"""Words for a difference: two programs in torch, one of which has a fault, and what is said of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from workbench.analysis.exact import ExactNames, Part, Programs, constants_of, explained, raw, ringed
from workbench.base.busy import OwnDeadline

SHAPES = {"x": (3, 17), "w": (17, 4), "b": (4,)}


def words(
    right: Callable[..., Any], wrong: Callable[..., Any], part: Part = "P", launches: int = 400, **names
) -> Sequence[str]:
    """Return the explanation of two programs of the tensors x, w and b."""
    inputs = right.__code__.co_varnames[: right.__code__.co_argcount]

    def elements_of(program: Callable[..., Any]) -> Callable:
        return lambda given: {"out": raw(program(*(ringed(given[name], set()) for name in inputs)))}

    draws = []
    for seed in (0, 1):
        generator = torch.Generator().manual_seed(seed)
        draws.append({name: torch.randn(SHAPES[name], generator=generator) for name in inputs})
    programs = Programs(elements_of(wrong), elements_of(right), launches, OwnDeadline(60))
    results = programs.kernel(draws[0]), programs.reference(draws[0])
    return explained(programs, results, draws, part, ExactNames(**names)).lines


def product(x, w, b):
    return x @ w + b


def softmax(x):
    return torch.softmax(x, -1)


def norm(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def weighed(x, *weights: tuple[int, float]):
    """Softmax whose denominator has some columns that often."""
    powers = x.exp()
    total = powers.sum(-1, keepdim=True)
    for column, weight in weights:
        total = total + (weight - 1) * powers[:, column : column + 1]
    return powers / total


def without_column(x, w, b):
    kept = x.clone()
    kept[:, 5] = 0 * kept[:, 5]
    return kept @ w + b


def rows_exchanged(x, w, b):
    return torch.cat([x[:1], x[2:], x[1:2]]) @ w + b


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        (softmax, lambda x: weighed(x, (16, 0)), "x[0, 16] is missing from the sum that divides out[0, 0]"),
        (softmax, lambda x: weighed(x, (9, 2)), "the sum that divides out[0, 0] has x[0, 9] twice"),
        (softmax, lambda x: weighed(x, (3, 0), (4, 0), (5, 0)), "x[0, 3:6] is missing from the sum that divides"),
        (softmax, lambda x: torch.softmax(x, -1) * 2, "every element of out is 2 times the reference's"),
        (softmax, lambda x: torch.softmax(x, -1) + 1e-6, "every element of out is 1e-06 more than the reference's"),
        (softmax, lambda x: torch.softmax(x * 3, -1), "it is what the reference gives for x times 3"),
        (product, without_column, "x[0, 5] is missing from out[0, 0]"),
        (product, rows_exchanged, "out[1, 0] depends on x[2, 0], and the reference's does not"),
        (product, lambda x, w, b: x @ w - b, "out[0, 0] has b[0] times -1"),
        (product, lambda x, w, b: x @ w, "b[0] is missing from out[0, 0]"),
        (product, lambda x, w, b: 3 * (x @ w) + b, "out[0, 0] has each term of x[0, :] times 3"),
        (norm, lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True)), "the kernel lacks the reference's 1e-05"),
        (
            norm, lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) / 16 + 1e-5),
            "the sum under the root that divides out[0, 0] has each term of x[0, :] times 17/16",
        ),
    ],
)  # fmt: skip
def test_a_fault_is_named(right: Callable, wrong: Callable, line: str) -> None:
    said = words(right, wrong, constants=(1e-6,))
    assert any(one.startswith(line) for one in said), said


def test_a_number_too_much_under_a_root_is_named() -> None:
    def plain(x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True))

    said = words(plain, norm, constants=(1e-5,))
    assert said[1] == "where the inputs are all -1, 1 / out[0, 0]² is 1e-05 more or less than the reference's"


def test_a_missing_term_of_a_logarithm_is_named() -> None:
    wrong = words(lambda x: torch.logsumexp(x, -1), lambda x: torch.logsumexp(x[:, :-1], -1), "logarithm")
    assert "x[0, 16] is missing from the sum whose logarithm out[0] is" in wrong


def test_another_number_is_named_where_it_makes_the_same_computation() -> None:
    said = words(lambda x: torch.tanh(0.044715 * x), lambda x: torch.tanh(0.0447 * x), constants=(0.0447, 0.05))
    assert said[1] == "the kernel has 0.0447 where the reference has 0.044715"
    rounded = words(lambda x: torch.tanh(0.79788456 * x), lambda x: torch.tanh(0.79788452 * x), constants=(0.79788452,))
    assert rounded[1] == "its 0.79788452 is the reference's 0.79788456, rounded"
    assert "the kernel has" not in " ".join(words(lambda x: torch.tanh(0.3 * x), lambda x: torch.tanh(0.5 * x * x)))


def test_the_first_line_says_where() -> None:
    assert words(softmax, lambda x: torch.softmax(2 * x, -1))[0] == "every element of out differs"

    def one_row(x):
        return torch.cat([softmax(x[:2]), weighed(x[2:], (16, 0))])

    assert words(softmax, one_row)[0] == "out[2, :] differ, and no other of out"


def test_the_last_line_has_a_small_input() -> None:
    assert words(softmax, lambda x: weighed(x, (16, 0)))[-1] == "it shows where the inputs are all 0"
    assert words(product, without_column)[-1] == "it shows where the inputs are all 1"

    def crossed(x, w, b):  # only where a number meets another one
        return x @ w + b + (x[:, 3:4] - x[:, 4:5]) * w[5:6]

    assert words(product, crossed)[-1] in {
        f"it shows where the inputs are 0 but for x[{row}, {column}] and w[5, {out}]"
        for row, column, out in itertools.product(range(3), (3, 4), range(4))
    }


def test_launches_are_bounded() -> None:
    said = words(product, without_column, launches=12)
    assert said[-1] == "the launches that an explanation may take were used up here"
    assert said[0] == "every element of out differs"


def test_the_same_computation_has_no_words() -> None:
    assert words(softmax, lambda x: weighed(x)) == ()


def test_axes_have_their_names() -> None:
    said = words(softmax, lambda x: weighed(x, (16, 0)), axes={"x": ("sequence", "")})
    assert "x[sequence=0, 16] is missing from the sum that divides out[0, 0]" in said


def test_the_constants_of_a_kernel() -> None:
    ptx = "mul.f32 %f1, %f2, 0f3F000000; add.f64 %d1, %d2, 0d4008000000000000; mov.f32 %f3, 0f00000000;"
    assert constants_of(ptx) == [0.5, 3.0]
