"""torch's operators on memory whose floats stand for elements: as a program on `RingTensor` computes them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from workbench.analysis.exact import NoExactRule, RingTensor, elements, raw
from workbench.analysis.exact.device_operators import DeviceOperators, computing_on_elements
from workbench.analysis.exact.elements import MODULUS, floats

X, W = torch.randn(3, 7, generator=torch.Generator().manual_seed(0)), torch.ones(7, 7).tril() * 0.3


def in_memory(program, *given: torch.Tensor) -> torch.Tensor:
    with computing_on_elements(DeviceOperators()):
        return elements(program(*(one.clone() for one in given)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_each_element_has_its_float(dtype: torch.dtype) -> None:
    every = torch.arange(MODULUS + 5)
    assert torch.equal(elements(floats(every, dtype)), every)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, w: torch.softmax(x @ w, -1),
        lambda x, w: functional.layer_norm(x, (7,), w[6], w[5]),
        lambda x, w: functional.linear(x, w, w[2]).tanh().sum(0),
        lambda x, w: torch.where(x > 0, x * 0.7, x.exp()).mean(1, keepdim=True),
        lambda x, w: torch.cat([x.half().float(), w]) / 3,
        lambda x, w: functional.scaled_dot_product_attention(x[None], x[None], x[None] + w[0]),
    ],
)
def test_operators_compute_as_on_ring_tensors(program) -> None:
    assert torch.equal(in_memory(program, X, W), raw(program(RingTensor.of(X), RingTensor.of(W))))


def test_what_an_operator_writes_is_seen_through_views() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x[1].mul_(w[0, 0]).add_(1)
        x[:, 2] = w[3, 0]
        return x

    wanted = elements(X)
    wanted[1] = (wanted[1] * elements(W)[0, 0] + 1) % MODULUS
    wanted[:, 2] = elements(W)[3, 0]
    assert torch.equal(in_memory(program, X, W), wanted)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (torch.lgamma, "torch.lgamma"),
        (lambda x: x.to(torch.int32), "roundings to whole numbers"),
        (lambda x: x.sum().item(), "reads a number"),
    ],
)
def test_what_has_no_rule_is_named(program, words: str) -> None:
    with pytest.raises(NoExactRule, match=words), computing_on_elements(DeviceOperators()):
        program(X)
