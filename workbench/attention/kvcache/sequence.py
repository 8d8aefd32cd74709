"""What the block manager knows of one sequence, and what its calls return."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from numbers import Integral

from workbench.attention.kvcache.errors import check_count
from workbench.attention.kvcache.prefixes import Prefix
from workbench.errors import ArgumentError

FREED = -1
"""In a block table: a block that fell out of the sliding window and belongs to the sequence no more."""

Tokens = int | Sequence[Hashable]
"""How many tokens, or which ones: contents can be cached only where the tokens are known."""


@dataclass(slots=True)
class SequenceRecord:
    """One sequence. ``table`` holds device blocks, or host blocks while ``on_host``."""

    table: list[int] = field(default_factory=list)
    num_tokens: int = 0
    first_live: int = 0
    """Blocks at the front of the table that are `FREED`."""
    prefix: Prefix | None = None
    """The contents of its full blocks; None where they are not known, so that nothing more of it is cached."""
    tail: list[Hashable] = field(default_factory=list)
    """The tokens of the last, partial block, where they are known."""
    on_host: bool = False

    def copy(self) -> SequenceRecord:
        """The same history over the same blocks."""
        return SequenceRecord(self.table.copy(), self.num_tokens, self.first_live, self.prefix, self.tail.copy())

    def window_start(self, block_size: int, sliding_window: int | None) -> int:
        """The first logical block that the next token may look at."""
        if sliding_window is None:
            return self.first_live
        return max(self.first_live, (self.num_tokens + 1 - sliding_window) // block_size)

    @property
    def live(self) -> list[int]:
        """The blocks that it refers to, in order."""
        return self.table[self.first_live :]


@dataclass(frozen=True)
class Placement:
    """Where new tokens go.

    Attributes:
        slots: ``block * block_size + offset`` of every new token, sequence after sequence.
        copies: (source, destination) blocks to copy, in all layers, before any of the tokens is written. No
            destination is another pair's source, so that they can all be copied at once.
        num_cached_tokens: tokens at the front of the sequence that are in the cache already and need no slot.
    """

    slots: list[int]
    copies: list[tuple[int, int]] = field(default_factory=list)
    num_cached_tokens: int = 0


@dataclass(frozen=True)
class BlockStatistics:
    """A snapshot of a `BlockManager`; counts of blocks unless it says otherwise.

    Attributes:
        num_blocks: on the device; used_blocks: that a running sequence refers to; evictable_blocks: free ones with
            cached contents; free_blocks: free ones without.
        shared_blocks: used ones with several references; saved_blocks: references beyond the first of each, that is,
            the blocks that sharing saves.
        num_slots: tokens that the used blocks have room for; filled_slots: how many they hold.
        num_host_blocks, used_host_blocks: the same for swapped-out sequences.
        queried_tokens, hit_tokens: tokens allocated so far with known ids, and those of them found in the cache.
        evictions: cached blocks overwritten so far.
    """

    num_blocks: int
    used_blocks: int
    evictable_blocks: int
    free_blocks: int
    shared_blocks: int
    saved_blocks: int
    num_slots: int
    filled_slots: int
    num_host_blocks: int
    used_host_blocks: int
    queried_tokens: int
    hit_tokens: int
    evictions: int

    @property
    def wasted_slots(self) -> int:
        """Slots of used blocks that hold no token: at most block_size - 1 for each distinct last block."""
        return self.num_slots - self.filled_slots

    @property
    def sharing_saved(self) -> float:
        """Blocks saved by sharing over blocks without sharing (the measure of PagedAttention's Figure 15)."""
        without = self.used_blocks + self.saved_blocks
        return self.saved_blocks / without if without else 0.0

    @property
    def prefix_hit_rate(self) -> float:
        """Tokens found in the cache over tokens looked for."""
        return self.hit_tokens / self.queried_tokens if self.queried_tokens else 0.0


def count_tokens(tokens: Tokens, least: int) -> tuple[int, list[Hashable] | None]:
    """How many tokens, and which (None: not known); ArgumentError for fewer than ``least``, or for what has no hash."""
    remedy = "Pass a number of tokens, or the token ids as a sequence."
    if type(tokens) is int:  # the usual step of an engine
        return check_count("tokens", tokens, least, remedy), None
    if hasattr(tokens, "tolist"):  # arrays and tensors: their elements are no usable keys
        tokens = tokens.tolist()
    ids = None if isinstance(tokens, Integral) or not hasattr(tokens, "__iter__") else list(tokens)
    try:
        hash(tuple(ids or ()))
    except TypeError as error:
        raise ArgumentError("tokens", str(error), "ids with a hash, such as whole numbers", remedy) from error
    return check_count("tokens", tokens if ids is None else len(ids), least, remedy), ids
