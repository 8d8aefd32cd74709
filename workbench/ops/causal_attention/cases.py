"""Named inputs for causal attention, with a float64 answer that uses no mask: every token attends by itself to the
tokens up to it.

Queries, keys and values are N(0, 1), so that a wrong head, scale or token shows. Error bound, per sequence and in the
maximum norm: ``2 * max |same_precision - reference| + 1e-5`` as for paged attention, where same_precision is the same
token-by-token computation in the case's dtype; for float64 cases 1e-12 instead.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch

from workbench.ops.causal_attention.problem import DTYPES, Problem, Tensors
from workbench.ops.named_case import NamedCase, by_name, check_sequences
from workbench.ops.paged_attention.reference import attend
from workbench.ops.variant import Check


@dataclass(frozen=True)
class Case(NamedCase):
    """``num_queries`` tokens at the end of ``num_tokens``, in each of ``num_seqs`` sequences."""

    name: str
    num_heads: int
    num_kv_heads: int
    head_size: int
    num_tokens: int
    num_queries: int | None = None
    num_seqs: int = 2
    dtype: str = "float32"
    seed: int = 0

    def __post_init__(self):
        self._check_choices(dtype=DTYPES)
        if self.num_queries is None:
            object.__setattr__(self, "num_queries", self.num_tokens)

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``gqa 2x65 float32``."""
        return f"{self.name} {self.num_seqs}x{self.num_tokens} {self.dtype}"

    def override(self, **changes) -> Self:
        """The case with fields changed; ArgumentError for a name that is no field."""
        if "num_tokens" in changes and self.num_queries == self.num_tokens:
            changes.setdefault("num_queries", None)
        return super().override(**changes)

    def problem(self, config: Mapping[str, Any] | None = None, arch: str = "sm_80") -> Problem:
        """The problem to solve, in blocks of a configuration's BLOCK_SIZE."""
        return Problem(
            num_seqs=self.num_seqs,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            num_queries=self.num_queries,
            num_tokens=self.num_tokens,
            head_size=self.head_size,
            dtype=self.dtype,
            block_size=(config or {}).get("BLOCK_SIZE", 16),
            arch=arch,
        )

    def minimum_bytes(self, problem: Problem) -> int:
        """Bytes that must cross memory once: query, output, keys and values."""
        elements = 2 * self.num_heads * self.num_queries + 2 * self.num_kv_heads * self.num_tokens
        return self.num_seqs * elements * self.head_size * DTYPES[self.dtype].itemsize

    def inputs(self, problem: Problem, device: str | torch.device = "cpu") -> Tensors:
        """Fresh tensors; ``out`` is NaN everywhere."""
        query, key, value = (tensor.to(device, copy=True) for tensor in _content(self))
        return Tensors(query, key, value, self.head_size**-0.5, torch.full_like(query, torch.nan))

    def reference(self) -> torch.Tensor:
        """The float64 answer, ``[num_seqs, num_heads, num_queries, head_size]``."""
        return _answers(self)[0]

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output; the verdict reports the sequence that comes closest to, or furthest past, its bound."""
        return check_sequences(out, *_answers(self))


@functools.lru_cache(maxsize=4)
def _content(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(case.seed)

    def normal(heads: int, tokens: int) -> torch.Tensor:
        shape = (case.num_seqs, heads, tokens, case.head_size)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(DTYPES[case.dtype])

    kv = case.num_kv_heads, case.num_tokens
    return normal(case.num_heads, case.num_queries), normal(*kv), normal(*kv)


@functools.lru_cache(maxsize=16)
def _answers(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    exact = _token_by_token(case, torch.float64)
    if case.dtype == "float64":
        return exact, torch.full((case.num_seqs,), 1e-12, dtype=torch.float64)
    error = (_token_by_token(case, DTYPES[case.dtype]).double() - exact).abs().flatten(1).amax(1)
    return exact, 2 * error + 1e-5


def _token_by_token(case: Case, dtype: torch.dtype) -> torch.Tensor:
    query, key, value = _content(case)
    out = torch.empty(query.shape, dtype=dtype)
    for seq in range(case.num_seqs):
        for i in range(case.num_queries):
            seen = case.num_tokens - case.num_queries + i + 1
            keys, values = (side[seq, :, :seen].transpose(0, 1) for side in (key, value))
            out[seq, :, i] = attend(query[seq, :, i], keys, values, scale=case.head_size**-0.5, dtype=dtype)
    return out


CASES = by_name(
    Case("gqa", num_heads=8, num_kv_heads=2, head_size=64, num_tokens=65),
    Case("mha", num_heads=4, num_kv_heads=4, head_size=32, num_tokens=33, dtype="float16"),
    Case("mqa", num_heads=4, num_kv_heads=1, head_size=80, num_tokens=16, dtype="bfloat16"),
    Case("one-token", num_heads=4, num_kv_heads=2, head_size=64, num_tokens=1),
    Case("cached-prefix", num_heads=4, num_kv_heads=2, head_size=64, num_tokens=49, num_queries=7),
    Case("exact", num_heads=6, num_kv_heads=2, head_size=16, num_tokens=37, dtype="float64"),
)
