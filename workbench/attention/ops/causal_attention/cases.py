"""Named inputs for causal attention, with a float64 answer that uses no mask.

Every token attends by itself to the tokens up to it.

Queries, keys and values are N(0, 1), so that a wrong head, scale or token shows. Error bound, per sequence and in the
maximum norm: ``2 * max |same_precision - reference| + 1e-5`` as for paged attention, where same_precision is the same
token-by-token computation in the case's dtype; for float64 cases 1e-12 instead.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Self

import torch

from workbench.attention.ops.causal_attention.problem import (
    DTYPES,
    CausalAttentionProblem,
    CausalAttentionTensors,
    lse_dtype,
)
from workbench.attention.ops.named_case import NamedCase, by_name, check_sequences
from workbench.attention.ops.paged_attention.reference import attend
from workbench.errors import ArgumentError
from workbench.ops import Check


@dataclass(frozen=True)
class CausalAttentionCase(NamedCase):
    """Attention of ``num_queries`` tokens at the end of ``num_tokens``, in each of ``num_seqs`` sequences.

    With ``query_lens`` and ``seq_lens``, one entry per sequence, those are the largest lengths, and what is past a
    sequence's own is padding: NaN in query, key and value. With ``lse`` that is judged too.
    """

    num_heads: int
    num_kv_heads: int
    head_size: int
    num_tokens: int
    num_queries: int = None  # type: ignore[assignment]  # by default ``num_tokens``, as `__post_init__` says
    num_seqs: int = 2
    dtype: str = "float32"
    seed: int = 0
    query_lens: tuple[int, ...] = ()
    seq_lens: tuple[int, ...] = ()
    lse: bool = False

    _problem = CausalAttentionProblem

    def __post_init__(self) -> None:
        self._check_choices(dtype=DTYPES)
        if self.num_queries is None:
            object.__setattr__(self, "num_queries", self.num_tokens)
        for name in ("query_lens", "seq_lens"):
            lengths = tuple(getattr(self, name))
            object.__setattr__(self, name, lengths)
            if lengths and len(lengths) != self.num_seqs:
                what = f"{len(lengths)} entries"
                raise ArgumentError(name, what, f"{self.num_seqs}, one per sequence, or none", "Change num_seqs too.")

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``gqa 2x65 float32``."""
        extra = [*self.features, *(["lse"] if self.lse else [])]
        return " ".join([self.name, f"{self.num_seqs}x{self.num_tokens}", self.dtype, *extra])

    @property
    def features(self) -> tuple[str, ...]:
        """Features of the problem: "lengths" if sequences are padded to one length."""
        return ("lengths",) if self.query_lens or self.seq_lens else ()

    @property
    def lengths(self) -> tuple[tuple[int, int], ...]:
        """Queries and tokens of each sequence."""
        queries = self.query_lens or (self.num_queries,) * self.num_seqs
        return tuple(zip(queries, self.seq_lens or (self.num_tokens,) * self.num_seqs, strict=True))

    def override(self, **changes: Any) -> Self:
        """Return the case with fields changed. Raises ArgumentError for a name that is no field.

        A case whose ``num_queries`` is its ``num_tokens`` keeps the two equal.
        """
        if "num_tokens" in changes and self.num_queries == self.num_tokens:
            changes.setdefault("num_queries", None)
        return super().override(**changes)

    def minimum_bytes(self, problem: CausalAttentionProblem) -> int:
        """Return the bytes that must cross memory once: queries, keys and values, output and, if it is judged, lse."""
        queries, tokens = (sum(lengths) for lengths in zip(*self.lengths, strict=True))
        read = (self.num_heads * queries + 2 * self.num_kv_heads * tokens) * self.head_size * problem.itemsize
        rows = self.num_seqs * self.num_heads * self.num_queries
        return read + rows * (self.head_size * problem.itemsize + (4 if self.lse else 0))

    def inputs(self, problem: CausalAttentionProblem, device: str | torch.device = "cpu") -> CausalAttentionTensors:
        """Return fresh tensors; output and lse are NaN everywhere."""
        query, key, value = (tensor.to(device, copy=True) for tensor in _content(self))
        output, lse = torch.full_like(query, torch.nan), None
        out = output
        if self.lse:  # one piece of memory for both
            rows, logarithms = query.numel() * query.itemsize, lse_dtype(query.dtype)
            size = rows + query.numel() // self.head_size * logarithms.itemsize
            out = torch.full((size,), 0xFF, dtype=torch.uint8, device=device)  # NaN in every dtype
            output, lse = out[:rows].view(query.dtype).view(query.shape), out[rows:].view(logarithms)
            lse = lse.view(query.shape[:-1])
        query_lens = seq_lens = None
        if self.features:
            query_lens, seq_lens = torch.tensor(self.lengths, dtype=torch.int32, device=device).T.contiguous()
        return CausalAttentionTensors(query, key, value, self.head_size**-0.5, output, lse, query_lens, seq_lens, out)

    def reference(self) -> torch.Tensor:
        """Return the float64 answer, ``[num_seqs, num_heads, num_queries, head_size]``.

        With ``lse`` each row has one element more: the logarithm.
        """
        return _answers(self)[0]

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output; the verdict reports the sequence that comes closest to, or furthest past, its bound."""
        if self.lse:
            out = self._joined(out)
        return check_sequences(out, *_answers(self))

    def _joined(self, raw: torch.Tensor) -> torch.Tensor:
        """Join output and lse, given as bytes, in the form of the answer.

        In rows of lse that belong to no query minus infinity becomes 0.
        """
        dtype = DTYPES[self.dtype]
        shape = self.num_seqs, self.num_heads, self.num_queries
        rows = math.prod(shape) * self.head_size * dtype.itemsize
        output = raw[:rows].view(dtype).view(*shape, self.head_size).double()
        lse = raw[rows:].view(lse_dtype(dtype)).view(*shape, 1).double().clone()
        for seq, (queries, _) in enumerate(self.lengths):
            padding = lse[seq, :, queries:]
            padding[padding == -torch.inf] = 0.0
        return torch.cat([output, lse], dim=-1)


@functools.lru_cache(maxsize=4)
def _content(case: CausalAttentionCase) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(case.seed)

    def normal(heads: int, tokens: int, lengths: tuple[int, ...]) -> torch.Tensor:
        shape = (case.num_seqs, heads, tokens, case.head_size)
        made = torch.randn(shape, generator=generator, dtype=torch.float64).to(DTYPES[case.dtype])
        for seq, length in enumerate(lengths):
            made[seq, :, length:] = torch.nan
        return made

    queries, tokens = zip(*case.lengths, strict=True)
    kv = case.num_kv_heads, case.num_tokens, tokens
    return normal(case.num_heads, case.num_queries, queries), normal(*kv), normal(*kv)


@functools.lru_cache(maxsize=16)
def _answers(case: CausalAttentionCase) -> tuple[torch.Tensor, torch.Tensor]:
    exact = _token_by_token(case, torch.float64)
    if case.dtype == "float64":
        return exact, torch.full((case.num_seqs,), 1e-12, dtype=torch.float64)
    error = (_token_by_token(case, DTYPES[case.dtype]).double() - exact).abs().flatten(1).amax(1)
    return exact, 2 * error + 1e-5


def _token_by_token(case: CausalAttentionCase, dtype: torch.dtype) -> torch.Tensor:
    query, key, value = _content(case)
    out = torch.zeros(*query.shape[:-1], case.head_size + case.lse, dtype=dtype)
    scale = case.head_size**-0.5
    for seq, (queries, tokens) in enumerate(case.lengths):
        for i in range(queries):
            seen = tokens - queries + i + 1
            keys, values = (side[seq, :, :seen].transpose(0, 1) for side in (key, value))
            row = out[seq, :, i]
            row[:, : case.head_size] = attend(query[seq, :, i], keys, values, scale=scale, dtype=dtype)
            if case.lse:
                each = keys.repeat_interleave(case.num_heads // case.num_kv_heads, 1)  # [seen, num_heads, head_size]
                scores = (each.to(dtype) * query[seq, :, i].to(dtype)).sum(-1) * scale
                row[:, -1] = scores.logsumexp(0)
    return out


CASES = by_name(
    CausalAttentionCase("tiles", num_heads=4, num_kv_heads=2, head_size=64, num_tokens=130, num_seqs=1,
        dtype="float16"),
    CausalAttentionCase("gqa", num_heads=8, num_kv_heads=2, head_size=64, num_tokens=65),
    CausalAttentionCase("mha", num_heads=4, num_kv_heads=4, head_size=32, num_tokens=33, dtype="float16"),
    CausalAttentionCase("mqa", num_heads=4, num_kv_heads=1, head_size=80, num_tokens=16, dtype="bfloat16"),
    CausalAttentionCase("one-token", num_heads=4, num_kv_heads=2, head_size=64, num_tokens=1),
    CausalAttentionCase("cached-prefix", num_heads=4, num_kv_heads=2, head_size=64, num_tokens=49, num_queries=7),
    CausalAttentionCase("exact", num_heads=6, num_kv_heads=2, head_size=16, num_tokens=37, dtype="float64"),
    CausalAttentionCase("padded", num_heads=4, num_kv_heads=1, head_size=64, num_tokens=90, num_queries=70, num_seqs=4,
         dtype="bfloat16", query_lens=(70, 1, 33, 0), seq_lens=(70, 90, 64, 0), lse=True),
)  # fmt: skip
