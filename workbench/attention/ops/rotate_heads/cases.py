"""Named rotations with a known answer.

Elements are N(0, 1); in "outliers" three channels of each head are a hundred times as large, as keys have them. The
heads are the first of a wider token, as keys are of a projection for queries, keys and values; what lies between them
is NaN. A sum in fp32 in stages has an error of at most one 2^-24 a stage, relative to the sum of magnitudes, and the
output half a step of its dtype.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.named_case import NamedCase, by_name, check_sequences
from workbench.attention.ops.rotate_heads.problem import RotationProblem, RotationTensors
from workbench.attention.ops.rotate_heads.reference import rotated
from workbench.ops import Check

FAMILIES = ("normal", "outliers")
_EPS = 2.0**-24


@dataclass(frozen=True)
class RotationCase(NamedCase):
    """Heads of tokens that are rotated in blocks of ``block`` elements."""

    num_tokens: int
    num_heads: int
    head_size: int
    block: int
    dtype: str = "bfloat16"
    family: str = "normal"
    seed: int = 0
    _problem = RotationProblem

    def __post_init__(self) -> None:
        self._check_choices(dtype=DTYPES, family=FAMILIES)

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``llama-3 9x8x128 bfloat16``."""
        return f"{self.name} {self.num_tokens}x{self.num_heads}x{self.head_size} {self.dtype}"

    def minimum_bytes(self, problem: RotationProblem) -> int:
        """Return the bytes that must cross memory once: every element is read and written."""
        return 2 * problem.num_elements * problem.itemsize

    def inputs(self, problem: RotationProblem, device: str | torch.device = "cpu") -> RotationTensors:
        """Return fresh tensors; ``out`` is NaN everywhere."""
        tokens = _tokens(self).to(device, copy=True)
        heads = tokens[:, : self.num_heads * self.head_size].unflatten(1, (self.num_heads, self.head_size))
        return RotationTensors(heads, self.block, torch.full_like(heads, torch.nan).contiguous())

    def reference(self) -> torch.Tensor:
        """Return the float64 answer, ``[num_tokens, num_heads, head_size]``."""
        return _answer(self)[0]

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output by a bound for each block; the verdict reports the closest to, or furthest past, it."""
        return check_sequences(out.unflatten(-1, (-1, self.block)).flatten(0, 2), *_answer(self)[1:])


@functools.lru_cache(maxsize=16)
def _tokens(case: RotationCase) -> torch.Tensor:
    """Draw the tokens, each on 16 bytes and eight elements or more wider than its heads."""
    width = case.num_heads * case.head_size
    drawn = torch.randn(case.num_tokens, width, generator=torch.Generator().manual_seed(case.seed))
    if case.family == "outliers":
        drawn.unflatten(1, (-1, case.head_size))[..., [1, case.head_size // 2, -1]] *= 100.0
    tokens = torch.full((case.num_tokens, width // 8 * 8 + 16), torch.nan)
    tokens[:, :width] = drawn
    return tokens.to(DTYPES[case.dtype])


@functools.lru_cache(maxsize=16)
def _answer(case: RotationCase) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the answer, its blocks ``[num_blocks, block]``, and the bound of each block."""
    heads = _tokens(case)[:, : case.num_heads * case.head_size].unflatten(1, (case.num_heads, case.head_size))
    answer = rotated(heads, case.block)
    blocks, magnitudes = (x.unflatten(-1, (-1, case.block)).flatten(0, 2) for x in (answer, heads.double().abs()))
    sums = magnitudes.sum(1) * case.block**-0.5
    rounding = torch.finfo(DTYPES[case.dtype]).eps / 2
    stages = case.block.bit_length() - 1
    return (
        answer,
        blocks,
        rounding * blocks.abs().amax(1) + (stages + 2) * _EPS * sums + torch.finfo(torch.float32).tiny,
    )


CASES = by_name(
    RotationCase("small", num_tokens=5, num_heads=3, head_size=80, block=16, family="outliers"),
    RotationCase("llama-3", num_tokens=9, num_heads=8, head_size=128, block=128, family="outliers"),
    RotationCase("deepseek-v4", num_tokens=3, num_heads=1, head_size=512, block=512, dtype="float16"),
    RotationCase("float32", num_tokens=7, num_heads=1, head_size=6, block=2, dtype="float32"),
)
