"""Named inputs for the contiguous cache: the same decode steps as for the paged cache, stored contiguously.

Queries, keys, values, needles, lengths, the float64 answer and the error bound are those of `paged_attention`'s cases.
Sequences have shuffled rows of the cache, with free rows in between; every slot that no token owns holds NaN.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import torch

from workbench.attention.cache_formats.layouts import from_paged
from workbench.attention.ops.contiguous_attention.problem import ContiguousAttentionProblem, ContiguousAttentionTensors
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.named_case import by_name
from workbench.attention.ops.paged_attention.cases import CASES as PAGED
from workbench.attention.ops.paged_attention.cases import DecodeStep, PagedAttentionCase
from workbench.ops import Config

_FREE_ROWS = 2
_ROOM = 5  # tokens that a row could still take


@dataclass(frozen=True)
class ContiguousAttentionCase(DecodeStep):
    """A decode step over a contiguous cache, in rows that have room for a few tokens more."""

    _problem = ContiguousAttentionProblem

    @property
    def max_seqlen(self) -> int:
        """Number of tokens that a row has room for."""
        return self.max_seq_len + _ROOM

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> ContiguousAttentionProblem:
        """Return the problem to solve, in the only layout; no configuration changes it."""
        return replace(super().problem(config, arch), layout="contiguous")

    def minimum_bytes(self, problem: ContiguousAttentionProblem) -> int:
        """Return the bytes that must cross memory once: K and V of every token, query, output, lengths and rows."""
        vectors = 2 * self.num_seqs * self.num_heads + 2 * self.total_tokens * self.num_kv_heads
        return vectors * self.head_size * problem.itemsize + 8 * self.num_seqs

    def inputs(
        self, problem: ContiguousAttentionProblem, device: str | torch.device = "cpu"
    ) -> ContiguousAttentionTensors:
        """Return fresh tensors; ``out`` is NaN everywhere."""
        paged = PagedAttentionCase(**asdict(self) | {"layout": "nhd"})
        t = paged.inputs(paged.problem())
        tokens = from_paged(t.key_cache, t.value_cache, t.block_tables, self.seq_lens, layout="nhd")
        rows = torch.randperm(self.num_seqs + _FREE_ROWS, generator=torch.Generator().manual_seed(self.seed))
        shape = (len(rows), 2, self.num_kv_heads, problem.max_seqlen, self.head_size)
        cache = torch.full(shape, torch.nan, dtype=DTYPES[self.dtype])
        for side, sequences in enumerate(tokens):
            for row, sequence in zip(rows, sequences, strict=False):
                cache[row, side, :, : len(sequence)] = sequence.transpose(0, 1)
        return ContiguousAttentionTensors(
            query=t.query.to(device),
            kv_cache=cache.to(device),
            seq_lens=t.seq_lens.to(device),
            cache_rows=rows[: self.num_seqs].int().to(device),
            scale=t.scale,
            out=t.out.to(device),
        )


CASES = by_name(*(ContiguousAttentionCase(**asdict(case)) for case in PAGED.values() if not case.problem().features))
