"""Named inputs for new tokens over a paged cache, with a known answer.

Queries, keys and values are N(0, 1), and for the last new token of a sequence, and every sixteenth before it, a key of
each KV head is a *needle* as in the cases of `paged_attention`. Lengths lie on, before and after page boundaries, pages
are shuffled over the cache, every slot that no token owns holds NaN, and unused entries of the block table are -1. The
bound of an error is the one of `paged_attention`'s cases, for every run of 16 new tokens of a sequence: the outputs of
later tokens, averages over more, are smaller. Masks of drafts are those of random trees.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch

from workbench.attention.cache_formats.layouts import to_paged
from workbench.attention.ops.cache_case import shuffled_tables
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.named_case import AnsweredSequences, by_name
from workbench.attention.ops.paged_attention.cases import plant_needles
from workbench.attention.ops.paged_prefill.problem import MOST_DRAFTS, PagedPrefillProblem, PagedPrefillTensors
from workbench.attention.ops.paged_prefill.reference import attend, visible
from workbench.errors import ArgumentError
from workbench.ops import Config

FAMILIES = ("needles", "zero_query", "large_scores")
_LARGE = 32.0  # scores of several hundred: exp of them overflows fp32 unless the maximum is subtracted
_RUN = 16


@dataclass(frozen=True)
class PagedPrefillCase(AnsweredSequences):
    """One launch with all its inputs. Lengths are in tokens; each list of them has one entry per sequence.

    ``seq_lens`` count the context and the ``query_lens`` new tokens. ``family`` is "needles" (above), "zero_query" (the
    answer is the mean of V) or "large_scores" (exp would overflow). With ``tree`` the new tokens are drafts.
    """

    num_heads: int
    num_kv_heads: int
    head_size: int
    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    dtype: str = "float16"
    layout: str = "nhd"
    family: str = "needles"
    seed: int = 0
    sliding_window: int | None = None
    soft_cap: float | None = None
    sinks: bool = False
    tree: bool = False
    _problem = PagedPrefillProblem

    def __post_init__(self) -> None:
        for name in ("query_lens", "seq_lens"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        self._check_choices(dtype=DTYPES, family=FAMILIES)
        if self.num_heads % self.num_kv_heads:
            allowed = f"a multiple of num_kv_heads = {self.num_kv_heads}"
            raise ArgumentError("num_heads", self.num_heads, allowed, "Change either.")
        if len(self.query_lens) != len(self.seq_lens) or any(map(int.__gt__, self.query_lens, self.seq_lens)):
            allowed = f"one for each sequence, at most its seq_lens {self.seq_lens}"
            raise ArgumentError("query_lens", self.query_lens, allowed, "Change either.")

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``small 6x129 float16``."""
        return " ".join([self.name, f"{self.num_seqs}x{self.max_seq_len}", self.dtype, *self.features])

    @property
    def num_tokens(self) -> int:
        """Number of new tokens of all sequences."""
        return sum(self.query_lens)

    @property
    def max_query_len(self) -> int:
        """Number of new tokens of the sequence that has most."""
        return max(self.query_lens, default=0)

    @property
    def features(self) -> tuple[str, ...]:
        """Features that the case asks for beyond causal attention."""
        given = {
            "sliding_window": self.sliding_window is not None,
            "soft_cap": self.soft_cap is not None,
            "sinks": self.sinks,
            "tree": self.tree,
        }
        return tuple(name for name, wanted in given.items() if wanted)

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> PagedPrefillProblem:
        """Return the problem to solve; the page size is the configuration's BLOCK_SIZE."""
        return super().problem(config, arch)

    def override(self, **changes: Any) -> Self:
        """Return the case with fields changed; ``context`` and ``num_seqs`` keep the new tokens that fit."""
        if ("context" in changes or "num_seqs" in changes) and "query_lens" not in changes:
            context, num_seqs = changes.pop("context", self.max_seq_len), changes.pop("num_seqs", self.num_seqs)
            changes["seq_lens"] = (context,) * num_seqs
            had = self.query_lens or (1,)
            changes["query_lens"] = tuple(min(had[i % len(had)], context) for i in range(num_seqs))
        return super().override(**changes)

    def minimum_bytes(self, problem: PagedPrefillProblem) -> int:
        """Return the bytes that must cross memory once: K and V that are seen, query, output, and where they lie."""
        lengths = [seen for seen, new in zip(self.seq_lens, self.query_lens, strict=True) if new]
        entries = sum(math.ceil(length / problem.page) for length in lengths)
        cache = 2 * sum(lengths) * self.num_kv_heads * self.head_size
        vectors = 2 * self.num_tokens * self.num_heads * self.head_size
        masks = 8 * self.num_tokens if self.tree else 0
        return (cache + vectors) * problem.itemsize + masks + 4 * (entries + 2 * self.num_seqs + 1)

    def inputs(self, problem: PagedPrefillProblem, device: str | torch.device = "cpu") -> PagedPrefillTensors:
        """Return fresh tensors for the problem's page size and layout; ``out`` is NaN everywhere."""
        content = _content(self)
        generator = torch.Generator().manual_seed(self.seed + 1)
        tables, num_blocks = shuffled_tables(self.seq_lens, problem.page, generator)
        caches = to_paged(
            content.keys, content.values, tables,
            num_blocks=num_blocks, block_size=problem.page, layout=problem.layout,
        )  # fmt: skip
        key_cache, value_cache = (cache.to(device) for cache in caches)
        starts = torch.tensor((0, *self.query_lens)).cumsum(0)
        return PagedPrefillTensors(
            query=content.query.to(device, copy=True),
            key_cache=key_cache,
            value_cache=value_cache,
            block_tables=tables.to(device),
            seq_lens=torch.tensor(self.seq_lens, dtype=torch.int32, device=device),
            cu_seqlens_q=starts.to(device, torch.int32),
            scale=self.head_size**-0.5,
            out=torch.full_like(content.query, torch.nan, device=device),
            sliding_window=self.sliding_window,
            soft_cap=self.soft_cap,
            sinks=None if content.sinks is None else content.sinks.to(device, copy=True),
            tree_mask=torch.cat([content.query.new_empty(0).long(), *content.masks]).to(device) if self.tree else None,
        )

    def answers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the float64 answer, ``[num_tokens, num_heads, head_size]``, and the bound of each token."""
        return _answers(self)


@dataclass(frozen=True)
class _Content:
    """Content of a case, without pages and layout.

    For each sequence keys and values are ``[tokens, num_kv_heads, head_size]``, and masks ``[query_len] int64``.
    """

    query: torch.Tensor
    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]
    masks: tuple[torch.Tensor, ...]
    sinks: torch.Tensor | None

    def sees(self, case: PagedPrefillCase) -> Iterator[torch.Tensor]:
        """Yield what the new tokens of each sequence see, ``[query_len, tokens] bool``."""
        for mask, length in zip(self.masks, case.seq_lens, strict=True):
            tree = mask[None] if case.tree else None
            yield visible(len(mask), torch.tensor([length]), sliding_window=case.sliding_window, tree_mask=tree)[0]


@functools.lru_cache(maxsize=4)
def _content(case: PagedPrefillCase) -> _Content:
    generator = torch.Generator().manual_seed(case.seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    query = normal(case.num_tokens, case.num_heads, case.head_size)
    keys, values, masks = [], [], []
    for own, length in zip(query.split(case.query_lens), case.seq_lens, strict=True):
        key, value = normal(2, length, case.num_kv_heads, case.head_size)
        for token in range(len(own) - 1, -1, -_RUN):
            plant_needles(own[token], key[: length - len(own) + token + 1], generator)
        keys.append(key)
        values.append(value)
        masks.append(_random_tree(len(own), generator))
    if case.family == "zero_query":
        query = torch.zeros_like(query)
    elif case.family == "large_scores":
        query = query * _LARGE
    dtype = DTYPES[case.dtype]
    sinks = normal(case.num_heads) if case.sinks else None
    stored_keys, stored_values = (tuple(one.to(dtype) for one in side) for side in (keys, values))
    return _Content(query.to(dtype), stored_keys, stored_values, tuple(masks), sinks)


def _random_tree(drafts: int, generator: torch.Generator) -> torch.Tensor:
    """Return the masks ``[drafts] int64`` of a tree in which each draft follows an earlier one, or the context."""
    masks: list[int] = []
    for draft in range(min(drafts, MOST_DRAFTS)):
        parent = int(torch.randint(draft + 1, (1,), generator=generator)) - 1
        masks.append((masks[parent] if parent >= 0 else 0) | 1 << draft)
    signed = [mask - 2**64 if mask >= 2**63 else mask for mask in masks]
    return torch.tensor([*signed, *[0] * (drafts - len(masks))], dtype=torch.int64)


@functools.lru_cache(maxsize=64)
def _answers(case: PagedPrefillCase) -> tuple[torch.Tensor, torch.Tensor]:
    content = _content(case)

    def attend_all(dtype: torch.dtype) -> torch.Tensor:
        options = {"scale": case.head_size**-0.5, "soft_cap": case.soft_cap, "sinks": content.sinks, "dtype": dtype}
        sides = content.query.split(case.query_lens), content.keys, content.values, content.sees(case)
        rows = [attend(*one, **options) for one in zip(*sides, strict=True)]
        return torch.cat(rows).double() if rows else content.query.double()

    exact = attend_all(torch.float64)
    errors = (attend_all(DTYPES[case.dtype]) - exact).abs().flatten(1).amax(1)
    runs = [run for own in errors.split(case.query_lens) for run in own.split(_RUN) if len(run)]
    bounds = [run.amax().expand(len(run)) for run in runs]
    return exact, 2 * torch.cat([errors[:0], *bounds]) + 1e-5


_EDGES = (1, 15, 0, 16, 17, 1), (1, 15, 20, 40, 17, 129)

CASES = by_name(
    PagedPrefillCase("small", num_heads=8, num_kv_heads=2, head_size=64, query_lens=_EDGES[0], seq_lens=_EDGES[1]),
    PagedPrefillCase("llama-3-8b", 32, 8, 128, query_lens=(40, 1, 1, 24), seq_lens=(40, 97, 128, 75)),
    PagedPrefillCase(
        "gemma-2", 8, 4, 256, query_lens=(33, 1), seq_lens=(70, 49), dtype="bfloat16", sliding_window=32, soft_cap=50.0
    ),
    PagedPrefillCase(
        "gpt-oss", 16, 2, 64, query_lens=(20, 1, 65), seq_lens=(150, 140, 65), dtype="bfloat16", layout="hnd",
        sliding_window=128, sinks=True,
    ),
    PagedPrefillCase("drafts", 8, 2, 64, query_lens=(64, 7, 1, 70), seq_lens=(100, 7, 50, 80), tree=True),
    PagedPrefillCase(
        "drafts-in-a-window", 6, 2, 80, query_lens=(20, 33), seq_lens=(60, 33), layout="hnd", sliding_window=12,
        sinks=True, tree=True,
    ),
    PagedPrefillCase("zero-query", 4, 4, 32, query_lens=(5, 33), seq_lens=(20, 33), family="zero_query"),
    PagedPrefillCase("large-scores", 4, 1, 64, query_lens=(30, 2), seq_lens=(64, 33), family="large_scores"),
)  # fmt: skip
