"""Records of the block manager: the state of one sequence, and the values that its methods return."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral

from workbench.attention.kvcache.errors import check_count
from workbench.attention.kvcache.prefixes import Prefix
from workbench.errors import ArgumentError

FREED = -1
"""Entry of a block table for a block that no later token reads and that no longer belongs to the sequence."""

Tokens = int | Sequence[Hashable]
"""Tokens as their number or as their ids; only with ids can their contents be cached."""


@dataclass(slots=True)
class BlockTable:
    """Blocks of one sequence in one group of layers; host blocks while the sequence is on the host."""

    blocks: list[int] = field(default_factory=list)
    first_live: int = 0
    """Number of leading blocks that are `FREED`."""
    prefix: Prefix | None = None
    """Contents of the full blocks; None if they are unknown, so that no further block is cached."""
    tail: list[Hashable] = field(default_factory=list)
    """Token ids of the partial last block, if they are known."""

    @property
    def live(self) -> list[int]:
        """Blocks that the sequence refers to, in order."""
        return self.blocks[self.first_live :]


@dataclass(slots=True)
class SequenceRecord:
    """State of one sequence, with a table for each group of layers."""

    tables: list[BlockTable]
    num_tokens: int = 0
    on_host: bool = False

    def copy(self) -> SequenceRecord:
        """Return a record of the same history over the same blocks."""
        tables = [BlockTable(one.blocks.copy(), one.first_live, one.prefix, one.tail.copy()) for one in self.tables]
        return SequenceRecord(tables, self.num_tokens)

    def move(self, moved: Mapping[int, int]) -> None:
        """Replace each block by the one that it has moved to, on the other side."""
        for table in self.tables:
            table.blocks[table.first_live :] = [moved[block] for block in table.live]
        self.on_host = not self.on_host

    @property
    def live(self) -> list[int]:
        """Blocks that the sequence refers to, group after group."""
        return [block for table in self.tables for block in table.live]


@dataclass(frozen=True)
class Placement:
    """Slots of new tokens, and the blocks to copy before they are written.

    Attributes:
        group_slots: for each group of layers, slot ``block * block_size + offset`` of every new token, sequence after
            sequence. In a state group the slot is the block that receives the state after that token, -1 for tokens
            whose state is not kept; the state before the first of them is, after the copies, in the last one's block.
        copies: pairs (source, destination) of blocks to copy, in all layers, before any of the tokens is written. No
            destination is another pair's source, so all pairs can be copied at once.
        num_cached_tokens: number of leading tokens that are in the cache already and need no slot.
    """

    group_slots: tuple[list[int], ...]
    copies: list[tuple[int, int]] = field(default_factory=list)
    num_cached_tokens: int = 0

    @property
    def slots(self) -> list[int]:
        """Slots of the first group, of the only one where there are no others."""
        return self.group_slots[0]


@dataclass(frozen=True)
class BlockStatistics:
    """Snapshot of the counts of a `BlockManager`.

    Attributes:
        num_blocks: blocks on the device.
        used_blocks: device blocks that a running sequence refers to.
        evictable_blocks: free device blocks with cached contents.
        free_blocks: free device blocks without contents.
        shared_blocks: used blocks with several references.
        saved_blocks: references beyond the first one of each block: the blocks that sharing saves.
        num_slots: capacity of the used blocks in tokens; a state counts as one.
        filled_slots: tokens and states in the used blocks.
        num_host_blocks: blocks of swap space.
        used_host_blocks: host blocks that a swapped-out sequence refers to.
        queried_tokens: tokens allocated so far with known ids, while prefix caching was on.
        hit_tokens: those of them that were found in the cache.
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
        """Number of slots of used blocks that hold no token: at most block_size - 1 for each distinct last block."""
        return self.num_slots - self.filled_slots

    @property
    def sharing_saved(self) -> float:
        """Blocks that sharing saves, as a fraction of the blocks without sharing (PagedAttention's Figure 15)."""
        without = self.used_blocks + self.saved_blocks
        return self.saved_blocks / without if without else 0.0

    @property
    def prefix_hit_rate(self) -> float:
        """Tokens found in the cache, as a fraction of the tokens looked up."""
        return self.hit_tokens / self.queried_tokens if self.queried_tokens else 0.0


def count_tokens(tokens: Tokens, least: int) -> tuple[int, list[Hashable] | None]:
    """Return the number of tokens and their ids, or None if only the number is known.

    Raises:
        ArgumentError: if there are fewer than ``least``, or an id has no hash.
    """
    remedy = "Pass a number of tokens, or the token ids as a sequence."
    if type(tokens) is int:  # a fast path: most steps of an engine
        return check_count("tokens", tokens, least, remedy), None
    if hasattr(tokens, "tolist"):  # arrays and tensors: their elements are not usable keys
        tokens = tokens.tolist()
    ids = None if isinstance(tokens, Integral) or not hasattr(tokens, "__iter__") else list(tokens)
    try:
        hash(tuple(ids or ()))
    except TypeError as error:
        raise ArgumentError("tokens", str(error), "ids with a hash, such as whole numbers", remedy) from error
    return check_count("tokens", tokens if ids is None else len(ids), least, remedy), ids
