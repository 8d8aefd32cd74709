"""A decode step of the running model as a case: its own queries, keys and values for `compare` and `trace`.

case = decode_case(model, [tokens_a, tokens_b], layer=2)
wb.compare("paged_attention", case)                                # every variant on them, checked
wb.trace("paged_attention", case, variant="cuda_thread_group")     # what one does to memory
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import torch

from workbench.attention.cache_formats.layouts import to_paged
from workbench.attention.kvcache.checks import check_layer
from workbench.attention.models.caches import PagedCache, make_cache
from workbench.attention.models.generation import advance, check_prompt
from workbench.attention.models.gpt import GPT
from workbench.attention.ops.paged_attention.cases import Case
from workbench.attention.ops.paged_attention.problem import Problem, Tensors
from workbench.attention.ops.paged_attention.reference import attend_all
from workbench.errors import ArgumentError
from workbench.ops.element_types import DTYPES
from workbench.ops.named_case import check_sequences
from workbench.ops.variant import Check


@dataclass(frozen=True, eq=False)
class DecodeCase:
    """The tensors of one decode step in one layer; see `workbench.attention.ops.paged_attention.cases` for what a case
    is.

    Attributes:
        sizes: heads, lengths, dtype and layout.
        query: ``[num_seqs, num_heads, head_size]``.
        keys, values: one ``[tokens, num_kv_heads, head_size]`` per sequence.
    """

    sizes: Case
    query: torch.Tensor = field(repr=False)
    keys: tuple[torch.Tensor, ...] = field(repr=False)
    values: tuple[torch.Tensor, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """Which layer of the model."""
        return self.sizes.name

    @property
    def label(self) -> str:
        """The name with lengths and dtype."""
        return self.sizes.label

    def problem(self, config: Mapping[str, Any] | None = None, arch: str = "sm_80") -> Problem:
        """The problem that a configuration is to solve: its BLOCK_SIZE becomes the page size."""
        return self.sizes.problem(config, arch)

    def minimum_bytes(self, problem: Problem) -> int:
        """Bytes that must cross memory once."""
        return self.sizes.minimum_bytes(problem)

    def inputs(self, problem: Problem, device: str | torch.device = "cpu") -> Tensors:
        """The step's tensors in the problem's page size and layout, in shuffled pages; ``out`` is NaN everywhere."""
        counts = [math.ceil(len(key) / problem.page) for key in self.keys]
        pages = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0)).int()
        tables = torch.full((len(counts), max(counts)), -1, dtype=torch.int32)
        for row, table in zip(tables, pages.split(counts), strict=True):
            row[: len(table)] = table
        caches = to_paged(
            self.keys, self.values, tables, num_blocks=sum(counts), block_size=problem.page, layout=problem.layout
        )
        key_cache, value_cache = (cache.to(device) for cache in caches)
        return Tensors(
            query=self.query.to(device, copy=True),
            key_cache=key_cache,
            value_cache=value_cache,
            block_tables=tables.to(device),
            seq_lens=torch.tensor(self.sizes.seq_lens, dtype=torch.int32, device=device),
            scale=self.sizes.head_size**-0.5,
            out=torch.full_like(self.query, float("nan"), device=device),
        )

    def reference(self) -> torch.Tensor:
        """The float64 answer on the CPU, ``[num_seqs, num_heads, head_size]``."""
        return self._answers[0]

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output by the bound of `workbench.attention.ops.paged_attention.cases`."""
        return check_sequences(out, *self._answers)

    @cached_property
    def _answers(self) -> tuple[torch.Tensor, torch.Tensor]:
        scale = self.sizes.head_size**-0.5
        exact = attend_all(self.query, self.keys, self.values, scale=scale)
        same = attend_all(self.query, self.keys, self.values, dtype=self.query.dtype, scale=scale)
        return exact, 2 * (same.double() - exact).abs().flatten(1).amax(1) + 1e-5

    def override(self, **changes: object) -> Self:
        """Not possible: a recorded step has the sizes that it has."""
        raise ArgumentError("override", sorted(changes), "nothing", "Make another with decode_case().")

    def to_dict(self) -> dict[str, Any]:
        """Not possible: what a model computed is not kept in a store."""
        raise ArgumentError(
            "case", self.name, "a case of the op, made of its seed", "Tune for a case with these sizes."
        )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Not possible, see `to_dict`."""
        raise ArgumentError("record", sorted(record), "none", "Make one with decode_case().")


def decode_case(
    model: GPT, sequences: Sequence[Sequence[int]], layer: int = 0, *, dtype: str = "float16", layout: str = "x"
) -> DecodeCase:
    """Let the model take one decode step over a paged cache, and keep what the attention of one layer was given.

    Args:
        sequences: token ids, two at least of each: the last one is the new token, the others are cached.
        layer: of the model.
        dtype: "float32", "float16" or "bfloat16", what the tensors are rounded to; layout: of the cache.

    Raises:
        ArgumentError: no sequences, a sequence or a layer that the model cannot take, an unknown dtype.
    """
    check_layer(layer, model.config.num_layers)
    if dtype not in DTYPES:
        raise ArgumentError("dtype", repr(dtype), ", ".join(DTYPES), "Kernels are written for these.")
    sequences = [check_prompt(model, tokens, 0) for tokens in sequences]
    if not sequences or min(map(len, sequences)) < 2:
        raise ArgumentError(
            "sequences", "one of fewer than 2 tokens, or none", "2 or more", "Cached tokens and a new one."
        )
    longest = max(map(len, sequences))
    cache = make_cache("paged", model, num_tokens=longest, num_seqs=len(sequences))
    assert isinstance(cache, PagedCache)
    for seq, tokens in enumerate(sequences):
        advance(model, cache.begin(seq, tokens[:-1]))
    step = cache.extend({seq: tokens[-1:] for seq, tokens in enumerate(sequences)})
    queries = {}

    def attend(at: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        queries[at] = query.clone()
        return step.attend(at, query, key, value)

    with torch.inference_mode():
        model(step.tokens, step.positions, attend)
    pairs = [cache.kv.gather(layer, seq) for seq in range(len(sequences))]
    rounded = DTYPES[dtype]
    c = model.config
    lengths = tuple(map(len, sequences))
    sizes = Case(f"layer {layer}", c.num_heads, c.num_kv_heads, c.head_size, lengths, dtype=dtype, layout=layout)
    return DecodeCase(
        sizes,
        queries[layer].to("cpu", rounded),
        tuple(key.to("cpu", rounded) for key, _ in pairs),
        tuple(value.to("cpu", rounded) for _, value in pairs),
    )
