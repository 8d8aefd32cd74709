"""Named inputs for the scores of an indexer, with a known answer.

Queries and keys are N(0, 1), weights too, so that both signs occur. Lengths lie on, before and after page boundaries,
pages are shuffled over the cache, every slot that no token owns holds NaN, and unused entries of the block table are
-1. A product of n terms in fp32 is off by at most n 2^-24 times the sum of their magnitudes; relu adds nothing, and the
sum over heads as many terms again. Reference and bound take quantized values as given.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from workbench.attention.cache_formats import fp8_index_keys
from workbench.attention.cache_formats.layouts import slots_of
from workbench.attention.cache_formats.quantization import e4m3_with_scales
from workbench.attention.ops.cache_case import UNWRITTEN, shuffled_tables
from workbench.attention.ops.indexer_scores.problem import DTYPES, IndexerProblem, IndexerTensors
from workbench.attention.ops.indexer_scores.reference import scores
from workbench.attention.ops.named_case import AnsweredSequences, by_name, check_sequences
from workbench.ops import Check

_EPS = 2.0**-24


@dataclass(frozen=True)
class IndexerCase(AnsweredSequences):
    """One decode step's scores with all inputs. Lengths are in tokens, one of each sequence."""

    num_heads: int
    head_size: int
    seq_lens: tuple[int, ...]
    dtype: str = "bfloat16"
    seed: int = 0
    _problem = IndexerProblem

    def __post_init__(self) -> None:
        object.__setattr__(self, "seq_lens", tuple(self.seq_lens))
        self._check_choices(dtype=DTYPES)

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``deepseek-v3.2 3x300 float8_e4m3fn``."""
        return f"{self.name} {self.num_seqs}x{self.max_seq_len} {self.dtype}"

    @property
    def max_seq_len(self) -> int:
        """Number of scores in a row: those of the longest sequence, and at least one."""
        return max([1, *self.seq_lens])

    def minimum_bytes(self, problem: IndexerProblem) -> int:
        """Return the bytes that must cross memory once: keys, queries, weights, scores, lengths, table entries."""
        of_query = self.num_heads * (self.head_size * DTYPES[self.dtype].itemsize + 4)
        entries = sum(-(-length // problem.page) for length in self.seq_lens)
        once = self.num_seqs * (of_query + 4 * self.max_seq_len + 4) + 4 * entries
        return self.total_tokens * problem.row_bytes + once

    def inputs(self, problem: IndexerProblem, device: str | torch.device = "cpu") -> IndexerTensors:
        """Return fresh tensors for the problem's page size; ``out`` is NaN everywhere."""
        query, weights, keys, scales = _content(self)
        generator = torch.Generator().manual_seed(self.seed + 1)
        tables, num_blocks = shuffled_tables(self.seq_lens, problem.page, generator)
        slots = slots_of(tables, self.seq_lens, problem.page)
        cache = torch.full((num_blocks * problem.page, keys.shape[1] * keys.element_size()), UNWRITTEN).byte()
        cache = cache.view(keys.dtype)
        cache[slots] = keys
        cache = cache.unflatten(0, (num_blocks, problem.page))
        if problem.quantized:
            of_slots = torch.full((num_blocks * problem.page,), torch.nan)
            of_slots[slots] = scales
            cache = fp8_index_keys.pack(cache, of_slots.unflatten(0, (num_blocks, problem.page)))
        return IndexerTensors(
            query=query.to(device, copy=True),
            weights=weights.to(device, copy=True),
            index_cache=cache.to(device),
            block_tables=tables.to(device),
            seq_lens=torch.tensor(self.seq_lens, dtype=torch.int32, device=device),
            out=torch.full((self.num_seqs, self.max_seq_len), torch.nan, device=device),
        )

    def answers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the float64 answer, ``[num_seqs, max_seq_len]``, and the bound of each sequence."""
        return _answers(self)

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output; minus infinity past the end of a sequence is exact."""
        answer, bound = self.answers()
        if out.shape == answer.shape:
            past = answer.isinf() & (out.cpu() == answer)
            out, answer = out.cpu().masked_fill(past, 0.0), answer.masked_fill(past, 0.0)
        return check_sequences(out, answer, bound)


@functools.lru_cache(maxsize=4)
def _content(case: IndexerCase) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return queries, weights, the keys of all tokens ``[total_tokens, head_size]`` and their scales."""
    generator = torch.Generator().manual_seed(case.seed)
    query = torch.randn(case.num_seqs, case.num_heads, case.head_size, generator=generator)
    weights = torch.randn(case.num_seqs, case.num_heads, generator=generator)
    keys = torch.randn(case.total_tokens, case.head_size, generator=generator)
    if DTYPES[case.dtype].itemsize > 1:
        return query.to(DTYPES[case.dtype]), weights, keys.to(DTYPES[case.dtype]), keys[:, 0]
    codes, factors = e4m3_with_scales(query)
    return codes, weights * factors, *e4m3_with_scales(keys)


@functools.lru_cache(maxsize=64)
def _answers(case: IndexerCase) -> tuple[torch.Tensor, torch.Tensor]:
    query, weights, keys, scales = _content(case)
    values = keys.double() * scales.double()[:, None] if keys.element_size() == 1 else keys.double()
    answer = torch.full((case.num_seqs, case.max_seq_len), -torch.inf, dtype=torch.float64)
    bound = torch.full((case.num_seqs,), torch.finfo(torch.float32).tiny, dtype=torch.float64)
    for seq, own in enumerate(values.split(case.seq_lens)):
        if len(own):
            answer[seq, : len(own)] = scores(query[seq], weights[seq], own)
            largest = scores(query[seq].double().abs(), weights[seq].abs(), own.abs()).max()
            bound[seq] = (case.head_size + case.num_heads + 4) * _EPS * largest
    return answer, bound


_PAGE_EDGES = (1, 63, 64, 65, 0, 129)

CASES = by_name(
    IndexerCase("small", num_heads=8, head_size=64, seq_lens=_PAGE_EDGES),
    IndexerCase("deepseek-v3.2", num_heads=64, head_size=128, seq_lens=(300, 1, 65), dtype="float8_e4m3fn"),
    IndexerCase("glm-5", num_heads=32, head_size=128, seq_lens=(130,)),
    IndexerCase("few-heads", num_heads=5, head_size=32, seq_lens=(31, 0, 200), dtype="float16"),
)
