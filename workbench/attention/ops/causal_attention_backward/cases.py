"""Named inputs for the gradients: those of `causal_attention`, with N(0, 1) for the gradients of output and lse.

The answer is autograd's through "torch_naive" in float64. Error bound, per sequence and gradient and in the maximum
norm: ``2 * max |same_precision - reference| + 1e-5``, where same_precision is autograd's in the case's dtype; for
float64 cases 1e-12 instead.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from workbench.attention.ops.causal_attention.api import causal_attention
from workbench.attention.ops.causal_attention.cases import CausalAttentionCase
from workbench.attention.ops.causal_attention.problem import DTYPES, CausalAttentionProblem, lse_dtype
from workbench.attention.ops.causal_attention_backward.tensors import CausalAttentionBackwardTensors
from workbench.attention.ops.named_case import by_name, check_sequences
from workbench.ops import Check, cdiv


@dataclass(frozen=True)
class CausalAttentionBackwardCase(CausalAttentionCase):
    """One backward pass; with ``lse`` that has a gradient too."""

    def minimum_bytes(self, problem: CausalAttentionProblem) -> int:
        """Return the bytes that must cross memory once.

        They are those of queries, output, their gradients, keys, values and theirs, and lse.
        """
        queries, tokens = (sum(lengths) for lengths in zip(*self.lengths, strict=True))
        read = self.num_heads * queries * (3 * self.head_size * problem.itemsize + 4)
        read += 2 * self.num_kv_heads * tokens * self.head_size * problem.itemsize
        rows = self.num_heads * self.num_queries + 2 * self.num_kv_heads * self.num_tokens
        return read + self.num_seqs * rows * self.head_size * problem.itemsize

    def inputs(  # type: ignore[override]  # other tensors, of another op
        self, problem: CausalAttentionProblem, device: str | torch.device = "cpu"
    ) -> CausalAttentionBackwardTensors:
        """Return fresh tensors; the gradients are NaN everywhere."""
        tensors, lengths = _given(self)
        query, key, value, output, lse, d_output, d_lse = (one.to(device, copy=True) for one in tensors)
        query_lens, seq_lens = (one if one is None else one.to(device, copy=True) for one in lengths)
        sides = query, key, value
        places, size = _places(sides)
        out = torch.full((size,), torch.nan, dtype=query.dtype, device=device)
        d_query, d_key, d_value = (out[place].view(side.shape) for place, side in zip(places, sides, strict=True))
        return CausalAttentionBackwardTensors(
            query, key, value, output, lse, d_output, d_lse, self.head_size**-0.5, query_lens, seq_lens,
            d_query, d_key, d_value, out,
        )  # fmt: skip

    def reference(self) -> torch.Tensor:
        """Return the float64 gradients of query, key and value, as they lie in ``tensors.out``; zeros in between."""
        exact = [exact for exact, _ in _gradients_and_bounds(self)]
        places, size = _places(exact)
        out = torch.zeros(size, dtype=torch.float64)
        for place, one in zip(places, exact, strict=True):
            out[place] = one.flatten()
        return out

    def check(self, out: torch.Tensor) -> Check:
        """Judge ``tensors.out`` by the gradient that comes closest to, or furthest past, its bound."""
        checks, answers = [], _gradients_and_bounds(self)
        places, _ = _places([exact for exact, _ in answers])
        for name, place, (exact, bound) in zip(("query", "key", "value"), places, answers, strict=True):
            one = check_sequences(out[place].view(exact.shape), exact, bound)
            checks.append(Check(one.max_error, one.bound, one.ok, f"gradient of {name}"))
        return max(checks, key=lambda one: one.max_error / one.bound)


def _places(sides: Sequence[torch.Tensor]) -> tuple[list[slice], int]:
    """Return the slices of ``tensors.out`` for the gradients of these tensors, and its number of elements.

    Each slice starts on a multiple of 16 bytes.
    """
    places, end = [], 0
    for side in sides:
        places.append(slice(end, end + side.numel()))
        end += cdiv(side.numel(), 8) * 8
    return places, end


def _forward(case: CausalAttentionBackwardCase) -> CausalAttentionCase:
    return CausalAttentionCase(**{item.name: getattr(case, item.name) for item in fields(CausalAttentionCase)})


@functools.lru_cache(maxsize=4)
def _given(
    case: CausalAttentionBackwardCase,
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor | None, torch.Tensor | None]]:
    """Return query, key, value, output, lse and the gradients of the last two; and the lengths."""
    forward = _forward(case)
    t = forward.inputs(forward.problem())
    generator = torch.Generator().manual_seed(case.seed + 1)
    d_output, d_lse = (
        torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in (t.query, t.query[..., 0])
    )
    for seq, (queries, _) in enumerate(case.lengths):
        d_output[seq, :, queries:] = d_lse[seq, :, queries:] = torch.nan
    if not case.lse:
        d_lse = torch.zeros_like(d_lse)
    exact = (x.double() for x in (t.query, t.key, t.value))
    output, lse = causal_attention(*exact, query_lens=t.query_lens, seq_lens=t.seq_lens, return_lse=True)
    dtype, logarithms = t.query.dtype, lse_dtype(t.query.dtype)
    rounded = output.to(dtype), lse.to(logarithms), d_output.to(dtype), d_lse.to(logarithms)
    return (t.query, t.key, t.value, *rounded), (t.query_lens, t.seq_lens)


@functools.lru_cache(maxsize=8)
def _gradients_and_bounds(case: CausalAttentionBackwardCase) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    exact = _autograd(case, torch.float64)
    if case.dtype == "float64":
        return tuple((one, torch.full((case.num_seqs,), 1e-12, dtype=torch.float64)) for one in exact)
    same = _autograd(case, DTYPES[case.dtype])
    errors = [(a.double() - b).abs().flatten(1).amax(1) for a, b in zip(same, exact, strict=True)]
    return tuple((one, 2 * error + 1e-5) for one, error in zip(exact, errors, strict=True))


def _autograd(case: CausalAttentionBackwardCase, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    (query, key, value, _, _, d_output, d_lse), (query_lens, seq_lens) = _given(case)
    sides = [side.detach().to(dtype).requires_grad_() for side in (query, key, value)]
    found = causal_attention(*sides, query_lens=query_lens, seq_lens=seq_lens, return_lse=True, variant="torch_naive")
    return torch.autograd.grad(found, sides, (d_output.to(dtype), d_lse.to(lse_dtype(dtype))))


CASES = by_name(
    CausalAttentionBackwardCase("gqa", num_heads=4, num_kv_heads=2, head_size=64, num_tokens=49, num_seqs=1,
        dtype="float16"),
    CausalAttentionBackwardCase("tiles", num_heads=2, num_kv_heads=1, head_size=64, num_tokens=130, num_seqs=1,
        dtype="bfloat16", lse=True),
    CausalAttentionBackwardCase("cached-prefix", num_heads=2, num_kv_heads=2, head_size=80, num_tokens=70,
        num_queries=33, dtype="float16"),
    CausalAttentionBackwardCase("padded", num_heads=4, num_kv_heads=1, head_size=32, num_tokens=90, num_queries=70,
        num_seqs=4, dtype="float16", query_lens=(70, 1, 33, 0), seq_lens=(70, 90, 64, 0), lse=True),
    CausalAttentionBackwardCase("exact", num_heads=6, num_kv_heads=2, head_size=16, num_tokens=37, dtype="float64",
        lse=True),
)  # fmt: skip
