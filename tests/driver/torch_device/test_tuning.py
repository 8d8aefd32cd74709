"""Triton's autotuner and torch.compile on the simulated device: one launch for each candidate, predicted times."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

RUNS: list[int] = []


@triton.autotune(
    configs=[triton.Config({}, num_warps=warps) for warps in (2, 4)],
    key=["n"],
    pre_hook=lambda arguments, reset_only=False: RUNS.append(arguments["n"]),
)
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@pytest.mark.gpu
@pytest.mark.simulated_only("times on a GPU are measured")
def test_an_autotuner_launches_each_configuration_once():
    RUNS.clear()
    x = torch.ones(256, device="cuda")
    out = torch.zeros_like(x)
    double[(1,)](x, out, 256, BLOCK=256)
    assert (out == 2).all()
    assert len(RUNS) == 3  # two that are timed, and the launch itself
    assert all(0 < time[0] < 1 for time in double.configs_timings.values())


@pytest.mark.gpu
@pytest.mark.long
def test_compiled_functions_forward_and_backward():
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x * 2) + 1

    x = torch.randn(128, device="cuda", requires_grad=True)
    out = torch.compile(function)(x)
    out.sum().backward()
    ours, x.grad = x.grad, None
    expected = function(x)
    expected.sum().backward()
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(ours, x.grad)


@pytest.mark.gpu
@pytest.mark.long
def test_compiled_functions_as_graphs():
    """Compare a function that torch.compile replays as a CUDA graph, for new inputs each time."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x * 2) + 1

    compiled = torch.compile(function, mode="reduce-overhead")
    x = torch.randn(128, device="cuda")
    for _ in range(4):  # a warm-up, a recording, and replays
        x = x + 0.5
        torch.testing.assert_close(compiled(x).clone(), function(x))
