"""Named inputs for the contiguous cache: the same decode steps as for the paged cache, stored contiguously.

Queries, keys, values, needles, lengths, the float64 answer and the error bound are those of `paged_attention`'s cases.
Sequences have shuffled rows of the cache, with free rows in between; every slot that no token owns holds NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from workbench.cache_formats.layouts import from_paged
from workbench.ops.contiguous_attention.problem import Problem, Tensors
from workbench.ops.element_types import DTYPES
from workbench.ops.named_case import by_name
from workbench.ops.paged_attention.cases import CASES as PAGED
from workbench.ops.paged_attention.cases import Case as Decode

_FREE_ROWS = 2
_ROOM = 5  # tokens that a row could still take


@dataclass(frozen=True)
class Case(Decode):
    """A decode step over a contiguous cache, in rows that have room for a few tokens more."""

    def problem(self, config: Mapping[str, Any] | None = None, arch: str = "sm_80") -> Problem:
        """The problem to solve; no configuration changes it."""
        longest = max(self.seq_lens, default=0)
        return Problem(
            num_seqs=len(self.seq_lens),
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_size=self.head_size,
            max_seqlen=longest + _ROOM,
            max_seq_len=longest,
            total_tokens=sum(self.seq_lens),
            dtype=self.dtype,
            features=self._features,
            arch=arch,
        )

    def minimum_bytes(self, problem: Problem) -> int:
        """Bytes that must cross memory once: K and V of every token, query, output, lengths and rows."""
        vectors = 2 * len(self.seq_lens) * self.num_heads + 2 * sum(self.seq_lens) * self.num_kv_heads
        return vectors * self.head_size * problem.itemsize + 8 * len(self.seq_lens)

    def inputs(self, problem: Problem, device: str | torch.device = "cpu") -> Tensors:
        """Fresh tensors; ``out`` is NaN everywhere."""
        paged = Decode(**asdict(self) | {"layout": "nhd"})
        t = paged.inputs(paged.problem())
        tokens = from_paged(t.key_cache, t.value_cache, t.block_tables, self.seq_lens, layout="nhd")
        rows = torch.randperm(len(self.seq_lens) + _FREE_ROWS, generator=torch.Generator().manual_seed(self.seed))
        shape = (len(rows), 2, self.num_kv_heads, problem.max_seqlen, self.head_size)
        cache = torch.full(shape, torch.nan, dtype=DTYPES[self.dtype])
        for side, sequences in enumerate(tokens):
            for row, sequence in zip(rows, sequences, strict=False):
                cache[row, side, :, : len(sequence)] = sequence.transpose(0, 1)
        return Tensors(
            query=t.query.to(device),
            kv_cache=cache.to(device),
            seq_lens=t.seq_lens.to(device),
            cache_rows=rows[: len(self.seq_lens)].int().to(device),
            scale=t.scale,
            out=t.out.to(device),
        )


CASES = by_name(*(Case(**asdict(case)) for case in PAGED.values() if not case.problem().features))
