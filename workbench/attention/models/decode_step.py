"""A decode step of a model as a case for `compare` and `trace`, with the model's own queries, keys and values.

::

    case = decode_case(model, [tokens_a, tokens_b], layer=2)
    wb.compare("paged_attention", case)                                # every variant, checked
    wb.trace("paged_attention", case, variant="cuda_thread_group")     # memory accesses of one variant
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
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.named_case import check_sequences
from workbench.attention.ops.paged_attention.cases import PagedAttentionCase
from workbench.attention.ops.paged_attention.problem import PagedAttentionProblem, PagedAttentionTensors
from workbench.attention.ops.paged_attention.reference import attend_all
from workbench.errors import ArgumentError
from workbench.ops import Check


@dataclass(frozen=True, eq=False)
class DecodeCase:
    """Tensors of one decode step in one layer, as a case of `workbench.attention.ops.paged_attention.cases`.

    Attributes:
        sizes: heads, lengths, dtype and layout.
        query: queries ``[num_seqs, num_heads, head_size]``.
        keys: keys ``[tokens, num_kv_heads, head_size]`` of each sequence.
        values: values of each sequence, of the same shapes.
    """

    sizes: PagedAttentionCase
    query: torch.Tensor = field(repr=False)
    keys: tuple[torch.Tensor, ...] = field(repr=False)
    values: tuple[torch.Tensor, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """Name of the case: the layer of the model."""
        return self.sizes.name

    @property
    def label(self) -> str:
        """Name of the case with its lengths and dtype."""
        return self.sizes.label

    def problem(self, config: Mapping[str, Any] | None = None, arch: str = "sm_80") -> PagedAttentionProblem:
        """Return the problem for a configuration, whose BLOCK_SIZE becomes the page size."""
        return self.sizes.problem(config, arch)

    def minimum_bytes(self, problem: PagedAttentionProblem) -> int:
        """Return the bytes that any kernel must read or write at least once."""
        return self.sizes.minimum_bytes(problem)

    def inputs(self, problem: PagedAttentionProblem, device: str | torch.device = "cpu") -> PagedAttentionTensors:
        """Return the step's tensors in shuffled pages of the problem's size and layout; ``out`` is filled with NaN."""
        counts = [math.ceil(len(key) / problem.page) for key in self.keys]
        pages = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0)).int()
        tables = torch.full((len(counts), max(counts)), -1, dtype=torch.int32)
        for row, table in zip(tables, pages.split(counts), strict=True):
            row[: len(table)] = table
        caches = to_paged(
            self.keys, self.values, tables, num_blocks=sum(counts), block_size=problem.page, layout=problem.layout
        )
        key_cache, value_cache = (cache.to(device) for cache in caches)
        return PagedAttentionTensors(
            query=self.query.to(device, copy=True),
            key_cache=key_cache,
            value_cache=value_cache,
            block_tables=tables.to(device),
            seq_lens=torch.tensor(self.sizes.seq_lens, dtype=torch.int32, device=device),
            scale=self.sizes.head_size**-0.5,
            out=torch.full_like(self.query, float("nan"), device=device),
        )

    def reference(self) -> torch.Tensor:
        """Return the float64 result, computed on the CPU: ``[num_seqs, num_heads, head_size]``."""
        return self._answers[0]

    def check(self, out: torch.Tensor) -> Check:
        """Check an output against the error bound of `workbench.attention.ops.paged_attention.cases`."""
        return check_sequences(out, *self._answers)

    @cached_property
    def _answers(self) -> tuple[torch.Tensor, torch.Tensor]:
        scale = self.sizes.head_size**-0.5
        exact = attend_all(self.query, self.keys, self.values, scale=scale)
        same = attend_all(self.query, self.keys, self.values, dtype=self.query.dtype, scale=scale)
        return exact, 2 * (same.double() - exact).abs().flatten(1).amax(1) + 1e-5

    def override(self, **changes: object) -> Self:
        """Refuse every change, because the sizes of a recorded step are fixed."""
        raise ArgumentError("override", sorted(changes), "no change", "Make another case with decode_case().")

    def to_dict(self) -> dict[str, Any]:
        """Refuse, because a store keeps no tensors that a model computed."""
        raise ArgumentError(
            "case", self.name, "a case of the op, drawn from a seed", "Tune for a case with these sizes."
        )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Refuse, because `to_dict` writes no record."""
        raise ArgumentError("record", sorted(record), "no record", "Make the case with decode_case().")


def decode_case(
    model: GPT, sequences: Sequence[Sequence[int]], layer: int = 0, *, dtype: str = "float16", layout: str = "x"
) -> DecodeCase:
    """Run one decode step of a model over a paged cache and record the inputs of attention in one layer.

    Args:
        model: the model to run.
        sequences: token ids of each sequence, at least two: the last one is the new token, the others are cached.
        layer: index of the layer, from 0.
        dtype: "float32", "float16" or "bfloat16", to which the tensors are rounded.
        layout: layout of the case's caches: "x", "nhd" or "hnd".

    Raises:
        ArgumentError: if there are no sequences, a sequence or layer does not fit the model, or the dtype is unknown.
    """
    check_layer(layer, model.config.num_layers)
    if dtype not in DTYPES:
        raise ArgumentError("dtype", repr(dtype), ", ".join(DTYPES), "The kernels support these.")
    sequences = [check_prompt(model, tokens, 0) for tokens in sequences]
    if not sequences or min(map(len, sequences)) < 2:
        raise ArgumentError(
            "sequences",
            "no sequence, or one of fewer than 2 tokens",
            "2 or more tokens",
            "One token is new, the others are cached.",
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
    sizes = PagedAttentionCase(
        f"layer {layer}", c.num_heads, c.num_kv_heads, c.head_size, lengths, dtype=dtype, layout=layout
    )
    return DecodeCase(
        sizes,
        queries[layer].to("cpu", rounded),
        tuple(key.to("cpu", rounded) for key, _ in pairs),
        tuple(value.to("cpu", rounded) for _, value in pairs),
    )
