"""Caches of a model behind one interface: none, contiguous rows, or paged blocks.

A sequence begins with its prompt and then grows by one token per step. Each call makes room for the new tokens and
returns a `ForwardStep`: the tokens that the model has to compute, and the function that computes their attention::

    step = cache.begin("a", prompt)                      # or cache.extend({"a": [token], "b": [token]})
    hidden = model(step.tokens, step.positions, step.attend)
    logits = model.logits(hidden[step.last])             # of the newest token of each sequence

Over rows and without a cache prompts use `workbench.attention.ops.causal_attention`, and new tokens
`contiguous_attention`. Over pages `paged_prefill` computes prompts, and new tokens beside them, in one launch, and
`paged_attention` new tokens alone. A method that raises an error has changed nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import torch

from workbench.attention import contiguous_attention
from workbench.attention.cache_formats.quantization import EIGHT_BITS
from workbench.attention.kvcache import ContiguousKVCache, MemoryUse, PagedKVCache
from workbench.attention.kvcache.errors import SequenceStateError, UnknownSequenceError
from workbench.attention.models.gpt import GPT, Attend
from workbench.attention.models.paged_steps import PagedAttend, PagedPart, causal
from workbench.errors import ArgumentError, UnknownNameError

Batch = Mapping[Any, Sequence[int]]
"""New tokens of each sequence, by its name."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class ForwardStep:
    """The tokens that a model computes in one forward pass.

    Attributes:
        tokens: token ids ``[num_tokens] int64``, sequence after sequence.
        positions: position of each token in its sequence, ``[num_tokens] int64``.
        last: index of each sequence's newest token in ``tokens``, ``[num_seqs] int64``.
        attend: attention function for exactly these tokens, for `GPT.forward`.
        parts: new tokens of each sequence of a paged cache.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    last: torch.Tensor
    attend: Attend
    parts: tuple[PagedPart, ...] = ()


class ModelCache(Protocol):
    """Interface of a cache for `workbench.attention.models.generation`."""

    def begin(self, seq: Hashable, tokens: Sequence[int]) -> ForwardStep:
        """Begin a sequence with its prompt."""

    def extend(self, batch: Batch) -> ForwardStep:
        """Append one new token to each sequence of a batch."""

    def reorder(self, parents: Mapping[Any, Hashable]) -> None:
        """Replace the histories of sequences by those of their ``parents``; a new name begins a sequence."""

    def free(self, seq: Hashable) -> None:
        """End a sequence."""

    def length(self, seq: Hashable) -> int:
        """Return the number of tokens of a sequence."""

    def memory(self) -> MemoryUse:
        """Return the bytes of keys and values."""


class NoCache(ModelCache):
    """A cache that keeps token ids only, so that every step computes the keys and values of all tokens again."""

    def __init__(self, device: torch.device | str = "cpu"):
        self.device = torch.device(device)
        self._tokens: dict[Hashable, list[int]] = {}

    def begin(self, seq: Hashable, tokens: Sequence[int]) -> ForwardStep:
        """Begin a sequence with its prompt."""
        _check_new(seq, self._tokens)
        self._tokens[seq] = list(tokens)
        return self._step([seq])

    def extend(self, batch: Batch) -> ForwardStep:
        """Append new tokens, one or more, to each sequence of a batch."""
        for seq in batch:
            self.length(seq)
        for seq, tokens in batch.items():
            self._tokens[seq] += tokens
        return self._step(batch)

    def reorder(self, parents: Mapping[Any, Hashable]) -> None:
        """Replace the tokens of sequences by those of their ``parents``; a new name begins a sequence."""
        self._tokens |= {child: _held(parent, self._tokens).copy() for child, parent in parents.items()}

    def free(self, seq: Hashable) -> None:
        """End a sequence."""
        self.length(seq)
        del self._tokens[seq]

    def length(self, seq: Hashable) -> int:
        """Return the number of tokens of a sequence."""
        return len(_held(seq, self._tokens))

    def memory(self) -> MemoryUse:
        """Return zero bytes, because no keys or values are kept."""
        return MemoryUse(0, 0, 0)

    def _step(self, seqs: Collection[Hashable]) -> ForwardStep:
        lengths = [len(self._tokens[seq]) for seq in seqs]

        def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            parts = zip(query.split(lengths), key.split(lengths), value.split(lengths), strict=True)
            return torch.cat([causal(*part) for part in parts])

        return step_of([(self._tokens[seq], 0) for seq in seqs], attend, self.device)


class ContiguousCache(ModelCache):
    """A cache that takes a row of a `ContiguousKVCache` for each sequence when it begins."""

    def __init__(self, cache: ContiguousKVCache):
        self.kv = cache
        self._rows: dict[Hashable, int] = {}

    def begin(self, seq: Hashable, tokens: Sequence[int]) -> ForwardStep:
        """Begin a sequence with its prompt; ArgumentError if no row is free, or rows are too short."""
        _check_new(seq, self._rows)
        row = self._free_rows(1)[0]
        placed = self.kv.allocate(row, len(tokens))
        self._rows[seq] = row

        def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            self.kv.write(layer, key, value, placed)
            return causal(query, key, value)

        return step_of([(tokens, 0)], attend, self.kv.device)

    def extend(self, batch: Batch) -> ForwardStep:
        """Append one new token to each sequence of a batch."""
        _check_single(batch)
        rows = [_held(seq, self._rows) for seq in batch]
        starts = [self.kv.length(row) for row in rows]
        placed = self.kv.append(rows)
        seq_lens = self.kv.seq_lens(rows)
        cache_rows = torch.tensor(rows, dtype=torch.int32, device=self.kv.device)

        def attend(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            self.kv.write(layer, key, value, placed)
            return contiguous_attention(query, self.kv.layers[layer], seq_lens, cache_rows=cache_rows)

        return step_of(list(zip(batch.values(), starts, strict=True)), attend, self.kv.device)

    def reorder(self, parents: Mapping[Any, Hashable]) -> None:
        """Replace the histories of sequences by those of their ``parents``, by copying rows."""
        sources = {child: _held(parent, self._rows) for child, parent in parents.items()}
        new = [child for child in parents if child not in self._rows]
        rows = self._rows | dict(zip(new, self._free_rows(len(new)), strict=True))
        self.kv.reorder({rows[child]: source for child, source in sources.items()})
        self._rows = rows

    def free(self, seq: Hashable) -> None:
        """End a sequence and free its row."""
        self.kv.free(_held(seq, self._rows))
        del self._rows[seq]

    def length(self, seq: Hashable) -> int:
        """Return the number of tokens of a sequence."""
        return self.kv.length(_held(seq, self._rows))

    def memory(self) -> MemoryUse:
        """Return the bytes of the cache, of the rows in use and of the tokens in them."""
        return self.kv.memory()

    def _free_rows(self, number: int) -> list[int]:
        taken = set(self.kv.rows)
        free = [row for row in range(self.kv.num_rows) if row not in taken]
        if len(free) < number:
            raise ArgumentError(
                "seq", f"{number} new and {len(taken)} running sequences", f"{self.kv.num_rows} in all",
                "Free a sequence, or make the cache with a larger max_batch_size.",
            )  # fmt: skip
        return free[:number]


class PagedCache(ModelCache):
    """A cache that keeps sequences in the blocks of a `PagedKVCache`, quantized or not.

    Prompts and new tokens read everything from the cache, but for a prompt that it does not keep exactly, quantized or
    only in part (a sliding window), and of which it holds nothing yet: that attends to what was computed.

    Args:
        cache: the `PagedKVCache`.
        read_back: True lets a prompt, too, read its keys and values from a quantized cache. One pass over a text then
            sees what the cache would return if the text came token by token.
        variant: variant of `workbench.attention.ops.paged_attention` for new tokens: "auto", "tuned", or a kernel by
            name, which on a CPU runs in the simulator.
    """

    def __init__(self, cache: PagedKVCache, *, read_back: bool = False, variant: str = "auto"):
        self.kv = cache
        self.read_back = read_back
        self.variant = variant

    def begin(self, seq: Hashable, tokens: Sequence[int]) -> ForwardStep:
        """Begin a sequence with its prompt; the step computes the tokens that the prefix cache does not hold."""
        placed = self.kv.allocate(seq, list(tokens))
        cached, kv = placed.num_cached_tokens, self.kv
        kept = kv.manager.sliding_window is None and (kv.kv_cache_dtype == "auto" or self.read_back)
        return self._step([PagedPart(seq, tokens[cached:], cached, placed.slot_mapping, fresh=not (cached or kept))])

    def extend(self, batch: Batch) -> ForwardStep:
        """Append one new token to each sequence of a batch; OutOfBlocksError if the pool has no room for them."""
        _check_single(batch)
        starts = [self.kv.manager.num_tokens(seq) for seq in batch]
        slots = self.kv.append_batch(batch).slot_mapping.split(1)
        parts = zip(batch.items(), starts, slots, strict=True)
        return self._step([PagedPart(seq, tokens, start, slot) for (seq, tokens), start, slot in parts])

    def joined(self, steps: Sequence[ForwardStep]) -> ForwardStep:
        """Join steps of this cache, each of other sequences, into one, whose attention is one launch."""
        return steps[0] if len(steps) == 1 else self._step([part for step in steps for part in step.parts])

    def _step(self, parts: Sequence[PagedPart]) -> ForwardStep:
        made = step_of(
            [(part.tokens, part.start) for part in parts], PagedAttend(self.kv, parts, self.variant), self.kv.device
        )
        return replace(made, parts=tuple(parts))

    def reorder(self, parents: Mapping[Any, Hashable]) -> None:
        """Replace the histories of sequences by those of their ``parents``, sharing blocks instead of copying."""
        self.kv.reorder(parents)

    def free(self, seq: Hashable) -> None:
        """End a sequence."""
        self.kv.free(seq)

    def length(self, seq: Hashable) -> int:
        """Return the number of tokens of a sequence."""
        return self.kv.manager.num_tokens(seq)

    def memory(self) -> MemoryUse:
        """Return the bytes of the cache, of the blocks in use and of the tokens in them."""
        return self.kv.memory()


CACHES = ("none", "contiguous", "paged", "paged int8", "paged fp8_e4m3", "paged fp8_e5m2", "paged nvfp4")
"""Kinds of cache that `make_cache` makes."""

TOKEN_SCALES = {"k_scale": "token", "v_scale": "token"}
"""Scale arguments with which a quantized `PagedKVCache` computes one scale for every token and head."""


def make_cache(
    kind: str,
    model: GPT,
    *,
    num_tokens: int,
    num_seqs: int = 1,
    block_size: int = 16,
    scales: Mapping[str, Any] | None = None,
    read_back: bool = False,
) -> ModelCache:
    """Make a cache for ``num_seqs`` sequences of at most ``num_tokens`` tokens each.

    Args:
        kind: one of `CACHES`.
        model: the model whose sizes, dtype and device the cache has.
        num_tokens: capacity of a contiguous row; a paged pool has the blocks for ``num_seqs`` sequences of this length.
        num_seqs: number of sequences.
        block_size: tokens per block.
        scales: k_scale and v_scale of a quantized `PagedKVCache`, for example from `calibrated_scales`; default one for
            every token and head, or for nvfp4, which has one for every 16 elements, none.
        read_back: True lets prompts read from a paged cache too; see `PagedCache`.
    """
    if kind not in CACHES:
        raise UnknownNameError("kind", repr(kind), ", ".join(CACHES), "See workbench.attention.models.caches.")
    c = model.config
    sizes: dict[str, Any] = {"num_layers": c.num_layers, "num_kv_heads": c.num_kv_heads, "head_size": c.head_size}
    sizes |= {"dtype": model.dtype, "device": model.device}
    if kind == "none":
        return NoCache(model.device)
    if kind == "contiguous":
        return ContiguousCache(ContiguousKVCache(max_batch_size=num_seqs, max_seqlen=num_tokens, **sizes))
    num_blocks = num_seqs * -(-num_tokens // block_size)
    _, _, quantized = kind.partition(" ")
    if scales is None:
        scales = TOKEN_SCALES if quantized in EIGHT_BITS else {}
    options = {"kv_cache_dtype": quantized, **scales} if quantized else {}
    return PagedCache(
        PagedKVCache(num_blocks=num_blocks, block_size=block_size, **sizes, **options), read_back=read_back
    )


def _check_new(seq: Hashable, held: Collection[Hashable]) -> None:
    if seq in held:
        raise SequenceStateError("seq", repr(seq), "a name not in use", "Free it first, or choose another name.")


def _held(seq: Hashable, held: Mapping[Hashable, _T]) -> _T:
    """Return the entry of a sequence; UnknownSequenceError if it was not begun."""
    if seq not in held:
        raise UnknownSequenceError("seq", repr(seq), f"one of {list(held)}", "Call begin first.")
    return held[seq]


def _check_single(batch: Batch) -> None:
    for seq, tokens in batch.items():
        if len(tokens) != 1:
            raise ArgumentError(
                "batch",
                f"{len(tokens)} tokens for {seq!r}",
                "one for each sequence",
                "A decode step has one query per sequence.",
            )


def step_of(parts: Sequence[tuple[Sequence[int], int]], attend: Attend, device: torch.device) -> ForwardStep:
    """Make a step from parts (tokens, position of the first token), one for each sequence."""
    tokens = [token for part, _ in parts for token in part]
    positions = [start + index for part, start in parts for index in range(len(part))]
    last, end = [], 0
    for part, _ in parts:
        end += len(part)
        last.append(end - 1)
    whole = functools.partial(torch.tensor, dtype=torch.int64, device=device)
    return ForwardStep(whole(tokens), whole(positions), whole(last), attend)
