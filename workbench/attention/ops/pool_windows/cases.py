"""Named windows of tokens with a known answer.

Values, gates and biases are N(0, 1), gates times ``spread``. In "large" gates are several hundred, so that exp of them
would overflow; in "first" the first half of the first window's gates is minus infinity, as in the first entry of
DeepSeek-V4's overlapping windows, and the whole of the last window's. An entry is an average: its error is at most that
of its weights, a few 2^-24 times the largest logit, and that of the sum, relative to the largest value of its window,
and half a step of the output's dtype.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.named_case import NamedCase, by_name, check_sequences
from workbench.attention.ops.pool_windows.problem import PoolProblem, PoolTensors
from workbench.attention.ops.pool_windows.reference import pooled
from workbench.ops import Check

FAMILIES = ("normal", "large", "first")
_EPS = 2.0**-24


@dataclass(frozen=True)
class PoolCase(NamedCase):
    """Windows of ``window`` tokens with ``head_size`` elements each."""

    num_windows: int
    window: int
    head_size: int
    dtype: str = "bfloat16"
    family: str = "normal"
    seed: int = 0
    _problem = PoolProblem

    def __post_init__(self) -> None:
        self._check_choices(dtype=DTYPES, family=FAMILIES)

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``sparse 9x8x512 bfloat16``."""
        return f"{self.name} {self.num_windows}x{self.window}x{self.head_size} {self.dtype}"

    def minimum_bytes(self, problem: PoolProblem) -> int:
        """Return the bytes that must cross memory once: values, gates, biases and entries."""
        rows = self.num_windows * (2 * self.window + 1)
        return self.head_size * (rows * problem.itemsize + 4 * self.window)

    def inputs(self, problem: PoolProblem, device: str | torch.device = "cpu") -> PoolTensors:
        """Return fresh tensors; ``out`` is NaN everywhere."""
        values, gates, bias = (one.to(device, copy=True) for one in _content(self))
        return PoolTensors(values, gates, bias, torch.full_like(values[:, 0], torch.nan))

    def reference(self) -> torch.Tensor:
        """Return the float64 answer, ``[num_windows, head_size]``."""
        return pooled(*_content(self))

    def bound(self) -> torch.Tensor:
        """Return the largest error allowed in each window, ``[num_windows] float64``."""
        values, gates, bias = _content(self)
        logits = (gates.double() + bias).masked_fill(gates.isinf(), 0.0).abs().amax((1, 2))
        largest = values.double().abs().amax((1, 2))
        rounding = torch.finfo(DTYPES[self.dtype]).eps / 2
        return largest * (rounding + _EPS * (2 * logits + 2 * self.window + 8)) + torch.finfo(torch.float32).tiny

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output; the verdict reports the window that comes closest to, or furthest past, its bound."""
        return check_sequences(out, self.reference(), self.bound())


@functools.lru_cache(maxsize=16)
def _content(case: PoolCase) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(case.seed)
    shape = case.num_windows, case.window, case.head_size
    values, gates = (torch.randn(shape, generator=generator) for _ in range(2))
    bias = torch.randn(shape[1:], generator=generator)
    if case.family == "large":
        gates = gates * 200.0
    elif case.family == "first":
        gates[0, : case.window // 2] = -torch.inf
        gates[-1] = -torch.inf
    return values.to(DTYPES[case.dtype]), gates.to(DTYPES[case.dtype]), bias


CASES = by_name(
    PoolCase("small", num_windows=5, window=4, head_size=40, family="first"),
    PoolCase("sparse", num_windows=9, window=8, head_size=512, family="first"),
    PoolCase("heavy", num_windows=2, window=128, head_size=512),
    PoolCase("large", num_windows=3, window=8, head_size=96, dtype="float16", family="large"),
    PoolCase("float32", num_windows=7, window=5, head_size=33, dtype="float32"),
)
