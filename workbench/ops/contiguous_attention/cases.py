"""Named inputs for the contiguous cache: the same decode steps as for the paged cache, stored contiguously.

Queries, keys, values, needles, lengths, the float64 answer and the error bound are those of `paged_attention`'s cases.
Sequences have shuffled rows of the cache, with free rows in between; every slot that no token owns holds NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch

from workbench.cache_formats.layouts import from_paged
from workbench.ops.contiguous_attention.problem import Problem, Tensors
from workbench.ops.element_types import DTYPES
from workbench.ops.paged_attention.cases import CASES as PAGED
from workbench.ops.paged_attention.cases import Case as Decode
from workbench.ops.variant import Check

_FREE_ROWS = 2
_ROOM = 5  # tokens that a row could still take


@dataclass(frozen=True)
class Case:
    """A decode step over a contiguous cache: what ``decode`` says, in rows that have room for a few tokens more."""

    decode: Decode

    @property
    def name(self) -> str:
        """The name of the decode step."""
        return self.decode.name

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``llama-3-8b 4x300 float16``."""
        return self.decode.label

    @property
    def seq_lens(self) -> tuple[int, ...]:
        """Tokens of each sequence."""
        return self.decode.seq_lens

    def override(self, **changes) -> Self:
        """The case with fields of the decode step changed; ``context`` and ``num_seqs`` as there."""
        return type(self)(self.decode.override(**changes))

    def problem(self, config: Mapping[str, Any] | None = None, arch: str = "sm_80") -> Problem:
        """The problem to solve; no configuration changes it."""
        d = self.decode
        return Problem(
            num_seqs=len(d.seq_lens),
            num_heads=d.num_heads,
            num_kv_heads=d.num_kv_heads,
            head_size=d.head_size,
            max_seqlen=max(d.seq_lens, default=0) + _ROOM,
            max_seq_len=max(d.seq_lens, default=0),
            total_tokens=sum(d.seq_lens),
            dtype=d.dtype,
            features=d.problem().features,
            arch=arch,
        )

    def minimum_bytes(self, problem: Problem) -> int:
        """Bytes that must cross memory once: K and V of every token, query, output, lengths and rows."""
        d = self.decode
        vectors = 2 * len(d.seq_lens) * d.num_heads + 2 * sum(d.seq_lens) * d.num_kv_heads
        return vectors * d.head_size * DTYPES[d.dtype].itemsize + 8 * len(d.seq_lens)

    def inputs(self, problem: Problem, device: str | torch.device = "cpu") -> Tensors:
        """Fresh tensors; ``out`` is NaN everywhere."""
        d = self.decode
        paged = d.override(layout="nhd")
        t = paged.inputs(paged.problem())
        tokens = from_paged(t.key_cache, t.value_cache, t.block_tables, d.seq_lens, layout="nhd")
        rows = torch.randperm(len(d.seq_lens) + _FREE_ROWS, generator=torch.Generator().manual_seed(d.seed))
        shape = (len(rows), 2, d.num_kv_heads, problem.max_seqlen, d.head_size)
        cache = torch.full(shape, torch.nan, dtype=DTYPES[d.dtype])
        for side, sequences in enumerate(tokens):
            for row, sequence in zip(rows, sequences, strict=False):
                cache[row, side, :, : len(sequence)] = sequence.transpose(0, 1)
        return Tensors(
            query=t.query.to(device),
            kv_cache=cache.to(device),
            seq_lens=t.seq_lens.to(device),
            cache_rows=rows[: len(d.seq_lens)].int().to(device),
            scale=t.scale,
            out=t.out.to(device),
        )

    def reference(self) -> torch.Tensor:
        """The float64 answer on the CPU, ``[num_seqs, num_heads, head_size]``."""
        return self.decode.reference()

    def bound(self) -> torch.Tensor:
        """The largest error allowed in each sequence, ``[num_seqs] float64``."""
        return self.decode.bound()

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output; the verdict reports the sequence that comes closest to, or furthest past, its bound."""
        return self.decode.check(out)

    def to_dict(self) -> dict:
        """Plain values; `from_dict` makes the case again."""
        return asdict(self.decode) | {"seq_lens": list(self.seq_lens)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Case:
        """The case of a record made by `to_dict`."""
        return cls(Decode.from_dict(record))


CASES = {name: Case(PAGED[name]) for name in PAGED if not PAGED[name].problem().features}
