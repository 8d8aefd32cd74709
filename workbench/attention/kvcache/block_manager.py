"""The block manager of a paged KV cache: block tables, sharing, copy-on-write and swapping, without any tensor.

Every sequence has a block table, which maps its logical blocks of ``block_size`` tokens to physical ones. Blocks are
taken when tokens arrive, shared by forks and by equal prefixes, copied when a sharer writes, and given back. Methods
return the slots to write and the blocks to copy or move; `PagedKVCache` writes, copies and moves them. Allocating,
appending and freeing take constant time for each block concerned, independent of the number of blocks.

A model whose layers keep different things of a sequence has several `LayerGroup`, each with tables and a block size of
its own, over one pool: blocks are pages of equal bytes, which any group can take. A prefix is found as far as every
group can go on from there.

Method: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, section
4; the prefix cache as in vLLM (chained hashes of full blocks, least recently used contents are evicted first), groups
as in vLLM's hybrid KV cache manager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from workbench.attention.kvcache.block_pool import CachingPool
from workbench.attention.kvcache.errors import OutOfBlocksError, SequenceStateError, UnknownSequenceError, check_count
from workbench.attention.kvcache.group_blocks import Changes, GroupBlocks
from workbench.attention.kvcache.layer_groups import LayerGroup, check_groups
from workbench.attention.kvcache.sequence import BlockStatistics, Placement, SequenceRecord, Tokens, count_tokens
from workbench.attention.kvcache.swap_space import SwapSpace
from workbench.errors import ArgumentError

_REMEMBERED_FREED = 1024
"""Number of freed sequences remembered, so that an error can tell a double free from an unknown name."""


class BlockManager:
    """Block tables, reference counts, prefix cache and swap space of a paged cache.

    Any hashable value names a sequence. A method that raises one of the errors below has changed nothing.

    Args:
        num_blocks: blocks on the device.
        block_size: tokens per block, of a model whose layers all keep the same.
        groups: in place of ``block_size``, the groups of layers that share the blocks.
        num_host_blocks: blocks of swap space on the host.
        prefix_caching: keep the contents of full blocks after their last sequence is freed, and give them to a new
            sequence that starts with the same tokens under the same salt.
        sliding_window: tokens that attention reads, the newest included; blocks behind the window are freed. None: no
            window. Given with ``block_size`` only; groups have windows of their own.

    Raises:
        ArgumentError: if a size is not a whole number, or too small, or ``groups`` come with a size.
        OutOfBlocksError: if too few blocks are free; it has their number and the sequences that could be preempted.
        UnknownSequenceError: if a sequence was never allocated or has been freed.
        SequenceStateError: if a new name is in use, or a sequence is on the host (or device) and must not be.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int | None = None,
        *,
        groups: Sequence[LayerGroup] | None = None,
        num_host_blocks: int = 0,
        prefix_caching: bool = False,
        sliding_window: int | None = None,
    ):
        self.num_blocks = check_count("num_blocks", num_blocks, 1, "Blocks in the device cache.")
        self.num_host_blocks = check_count("num_host_blocks", num_host_blocks, 0, "0 means no swapping.")
        if groups is None:
            size = check_count("block_size", block_size, 1, "Tokens per block; 16 is usual.")
            if sliding_window is not None:
                check_count("sliding_window", sliding_window, 1, "None means unlimited.")
            kind = "full" if sliding_window is None else "window"
            groups = (LayerGroup(kind, size, kind, sliding_window),)
        elif (block_size, sliding_window) != (None, None):
            raise ArgumentError(
                "groups", f"groups and block_size={block_size}, sliding_window={sliding_window}", "one or the other",
                "Give each LayerGroup its block_size and its reach.",
            )  # fmt: skip
        self.groups = check_groups(groups)
        self.block_size = self.groups[0].block_size
        """Tokens per block of the first group."""
        self.sliding_window = self.groups[0].reach if self.groups[0].kind == "window" else None
        """Window of the first group."""
        self.prefix_caching = prefix_caching
        self._device, self._host = CachingPool(self.num_blocks), SwapSpace(self.num_host_blocks)
        self._groups = GroupBlocks(self.groups, self._device)
        self._keeps_all = len(self.groups) == 1 and self.groups[0].kind in ("full", "latent")
        self._sequences: dict[Hashable, SequenceRecord] = {}
        self._queried_tokens = self._hit_tokens = 0
        self._freed: deque[Hashable] = deque(maxlen=_REMEMBERED_FREED)

    # -- the life of a sequence ---------------------------------------------------------------------------------

    def allocate(self, seq: Hashable, tokens: Tokens, *, salt: Hashable = None) -> Placement:
        """Begin a sequence with its prompt.

        With prefix caching and token ids, the sequence shares the longest cached prefix that ends where a block of
        every group ends and that every group can continue: it holds what the next token reads of that prefix. The block
        of the last token is never shared, because an engine has to compute that token to continue. New full blocks
        count as cached at once: write them before anything reads them.

        Args:
            seq: the name of the new sequence.
            tokens: the token ids, or only their number (then nothing of the sequence is cached).
            salt: a namespace for cached contents; only sequences with equal salt share them.

        Returns:
            The slots of the tokens after the first ``num_cached_tokens``, and a copy of each saved state to go on with.
        """
        if seq in self._sequences:
            raise SequenceStateError("seq", repr(seq), "a name not in use", "Free it first, or choose another name.")
        num_tokens, ids = count_tokens(tokens, 0)
        known = self.prefix_caching and ids is not None
        record = self._groups.longest_hit(ids or [], salt) if known else self._groups.new_record()
        num_cached, counts = record.num_tokens, self._device.counts
        idle = sum(counts[block] == 0 for block in record.live)
        needed = self._groups.needed_to_start(record, num_tokens)
        self._require(needed, idle=idle, but=(seq,))

        for block in record.live:
            self._device.claim(block)
        if known:
            self._queried_tokens += num_tokens
            self._hit_tokens += num_cached
        self._sequences[seq] = record
        changes = Changes(self._device.num_free - needed)
        rest = None if ids is None else ids[num_cached:]
        slots = self._groups.extend(record, num_tokens - num_cached, rest, changes)
        return Placement(slots, changes.copies, num_cached)

    def append(self, seq: Hashable, tokens: Tokens = 1) -> Placement:
        """Make room for new tokens at the end of one sequence; see `append_batch`."""
        if self._keeps_all and type(tokens) is int and tokens == 1:  # the fast path of most engine steps
            record = self._running(seq)
            table, offset = record.tables[0], record.num_tokens % self.block_size
            if offset and table.prefix is None and self._device.counts[block := table.blocks[-1]] == 1:
                record.num_tokens += 1
                return Placement(([block * self.block_size + offset],))
        return self.append_batch({seq: tokens})

    def append_batch(self, batch: Mapping[Any, Tokens]) -> Placement:
        """Make room for new tokens of several sequences, as one step of an engine does: for all of them or none.

        Blocks that no later token reads are freed first. Sequences that share a block which they will write, a partial
        last block or a running state, each get a copy of it, except for the last one, which keeps the block:
        copy-on-write.

        Returns:
            The slots in the order of ``batch``, and the blocks to copy before writing.
        """
        records = {seq: self._running(seq) for seq in batch}
        counted = {seq: count_tokens(tokens, 1) for seq, tokens in batch.items()}
        needed, gained = self._groups.count([(record, counted[seq][0]) for seq, record in records.items()])
        self._require(needed, gained=gained, but=records)

        for record in records.values():
            self._groups.leave(record)
        changes = Changes(self._device.num_free - needed)
        slots: tuple[list[int], ...] = tuple([] for _ in self.groups)
        for seq, record in records.items():
            for whole, part in zip(slots, self._groups.extend(record, *counted[seq], changes), strict=True):
                whole += part
        return Placement(slots, changes.copies)

    def fork(self, parent: Hashable, child: Hashable) -> None:
        """Begin ``child`` with the history of ``parent``, sharing its blocks (parallel sampling, beam search)."""
        record = self._running(parent).copy()
        if child in self._sequences:
            raise SequenceStateError("child", repr(child), "a name not in use", "Free it first, or use reorder.")
        for block in record.live:
            self._device.share(block)
        self._sequences[child] = record

    def reorder(self, parents: Mapping[Any, Hashable]) -> None:
        """Replace the histories of sequences by those of their ``parents``, all at once: one step of beam search.

        ``{"a": "b", "b": "b"}`` drops a's history and lets both continue from b's. A new name begins a sequence.
        """
        records = {child: self._running(parent).copy() for child, parent in parents.items()}
        dropped = [self._running(child) for child in parents if child in self._sequences]
        for record in records.values():
            for block in record.live:
                self._device.share(block)
        for record in dropped:
            self._release_all(record)
        self._sequences.update(records)

    def free(self, seq: Hashable) -> None:
        """End a sequence, running or swapped out; each of its blocks loses a reference, the last block first."""
        record = self._known(seq)
        if record.on_host:
            self._host.release(record.live)
        else:
            self._release_all(record)
        del self._sequences[seq]
        self._freed.append(seq)

    # -- swapping -----------------------------------------------------------------------------------------------

    def swap_out(self, *seqs: Hashable) -> list[tuple[int, int]]:
        """Move sequences to the host; blocks that they share stay shared, so swap the beams of a request together.

        Returns:
            Pairs (device block, host block) to copy before anything is written to the device cache.
        """
        records = {seq: self._running(seq) for seq in seqs}
        pairs = self._host.store(list(records.values()), self._device)
        for record in records.values():
            self._release_all(record)
            record.move(pairs)
        return list(pairs.items())

    def swap_in(self, *seqs: Hashable) -> list[tuple[int, int]]:
        """Move sequences back to the device, sharing the contents that are still cached there.

        Returns:
            Pairs (host block, device block) to copy before anything is written to the host's blocks.
        """
        records = {seq: self._known(seq) for seq in seqs}
        for seq, record in records.items():
            if not record.on_host:
                raise SequenceStateError(
                    "seq", repr(seq), "a swapped-out sequence", "This one is on the device already."
                )
        blocks = dict.fromkeys(block for record in records.values() for block in record.live)
        resident = self._host.still_cached(blocks)
        idle = sum(self._device.counts[block] == 0 for block in set(resident.values()))
        self._require(len(blocks) - len(resident), idle=idle, but=records)
        return list(self._host.restore(list(records.values()), resident, self._device).items())

    # -- queries ------------------------------------------------------------------------------------------------

    @property
    def sequences(self) -> tuple[Hashable, ...]:
        """Names of all sequences, the oldest first."""
        return tuple(self._sequences)

    @property
    def num_free_blocks(self) -> int:
        """Number of device blocks that can be taken: empty ones, and those whose cached contents can be evicted."""
        return self._device.num_free

    def __contains__(self, seq: Hashable) -> bool:
        return seq in self._sequences

    def num_tokens(self, seq: Hashable) -> int:
        """Return the length of a sequence in tokens."""
        return self._known(seq).num_tokens

    def is_swapped(self, seq: Hashable) -> bool:
        """Return True if a sequence is on the host."""
        return self._known(seq).on_host

    def check_running(self, seqs: Iterable[Hashable]) -> None:
        """Check that all sequences are on the device.

        Raises:
            UnknownSequenceError: if one was never allocated or has been freed.
            SequenceStateError: if one is on the host.
        """
        for seq in seqs:
            self._running(seq)

    def block_table(self, seq: Hashable, group: str | None = None) -> list[int]:
        """Return the physical block of each logical block; those of a swapped-out sequence are host blocks.

        Blocks that no later token reads are `FREED` (-1).

        Args:
            seq: name of the sequence.
            group: name of a group; None: the first one.
        """
        return self._known(seq).tables[self._groups.index(group)].blocks.copy()

    def slots(self, seq: Hashable, start: int = 0, stop: int | None = None, *, group: str | None = None) -> list[int]:
        """Return the slots of tokens ``start`` to ``stop`` of a running sequence, -1 for those that are freed.

        In a state group that is the block that holds the state after a token, -1 for states that are not kept.
        """
        return self._groups.slots(self._running(seq), self._groups.index(group), slice(start, stop))

    def reference_count(self, block: int) -> int:
        """Return the number of sequences that refer to a device block.

        Raises:
            ArgumentError: if there is no such block.
        """
        if not 0 <= block < self.num_blocks:
            raise ArgumentError("block", block, f"0 to {self.num_blocks - 1}", "Take a block from a block table.")
        return self._device.counts[block]

    def is_cached(self, block: int) -> bool:
        """Return True if a new sequence can find the contents of a device block."""
        return block in self._device.contents

    def statistics(self) -> BlockStatistics:
        """Return the current counts of blocks, slots, shared blocks and cache hits; takes one step per sequence.

        With several groups it takes one step per block that a sequence refers to.
        """
        running = [record for record in self._sequences.values() if not record.on_host]
        num_slots, empty = self._groups.count_slots(running)
        return BlockStatistics(
            num_blocks=self.num_blocks,
            used_blocks=self._device.num_used,
            evictable_blocks=self._device.num_evictable,
            free_blocks=self._device.num_free - self._device.num_evictable,
            shared_blocks=self._device.num_shared,
            saved_blocks=self._device.references - self._device.num_used,
            num_slots=num_slots,
            filled_slots=num_slots - empty,
            num_host_blocks=self.num_host_blocks,
            used_host_blocks=self._host.num_used,
            queried_tokens=self._queried_tokens,
            hit_tokens=self._hit_tokens,
            evictions=self._device.num_evictions,
        )

    # -- internal steps -----------------------------------------------------------------------------------------

    def _known(self, seq: Hashable) -> SequenceRecord:
        record = self._sequences.get(seq)
        if record is None:
            what = "already freed" if seq in self._freed else "never allocated"
            raise UnknownSequenceError(
                "seq", f"{seq!r}, {what}", f"one of {len(self._sequences)} sequences", "See .sequences."
            )
        return record

    def _running(self, seq: Hashable) -> SequenceRecord:
        record = self._known(seq)
        if record.on_host:
            raise SequenceStateError("seq", f"{seq!r}, swapped out", "a running sequence", "Call swap_in first.")
        return record

    def _require(self, needed: int, *, idle: int = 0, gained: int = 0, but: Iterable[Hashable]) -> None:
        """Raise OutOfBlocksError unless ``needed`` blocks can be taken.

        Args:
            needed: blocks that the call takes.
            idle: evictable blocks that the call uses as they are, so that they cannot be taken.
            gained: blocks that the call frees first.
            but: sequences of the call, which the error does not offer for preemption.
        """
        if needed <= self._device.num_free - idle + gained:
            return
        but = set(but)
        newest = [seq for seq, record in reversed(self._sequences.items()) if not (record.on_host or seq in but)]
        free = self._device.num_free - self._device.num_evictable + gained
        raise OutOfBlocksError("device", needed, free, self._device.num_evictable - idle, newest)

    def _release_all(self, record: SequenceRecord) -> None:
        self._device.release_all(self._groups.ends_first(record))
