"""The block manager of a paged KV cache: block tables, sharing, copy-on-write and swapping, without any tensor.

Every sequence has a block table, which maps its logical blocks of ``block_size`` tokens to physical ones. Blocks are
taken when tokens arrive, shared by forks and by equal prefixes, copied when a sharer writes, and given back. Methods
return the slots to write and the blocks to copy or move; `PagedKVCache` writes, copies and moves them. Allocating,
appending and freeing take constant time for each block concerned, independent of the number of blocks.

Method: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, section
4; the prefix cache as in vLLM (chained hashes of full blocks, least recently used contents are evicted first).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from workbench.attention.kvcache.block_pool import BlockPool, CachingPool
from workbench.attention.kvcache.errors import OutOfBlocksError, SequenceStateError, UnknownSequenceError, check_count
from workbench.attention.kvcache.prefixes import Prefix, Prefixes
from workbench.attention.kvcache.sequence import FREED, BlockStatistics, Placement, SequenceRecord, Tokens, count_tokens
from workbench.errors import ArgumentError

_REMEMBERED_FREED = 1024
"""Number of freed sequences remembered, so that an error can tell a double free from an unknown name."""


class BlockManager:
    """Block tables, reference counts, prefix cache and swap space of a paged cache.

    Any hashable value names a sequence. A method that raises one of the errors below has changed nothing.

    Args:
        num_blocks: blocks on the device.
        block_size: tokens per block.
        num_host_blocks: blocks of swap space on the host.
        prefix_caching: keep the contents of full blocks after their last sequence is freed, and give them to a new
            sequence that starts with the same tokens under the same salt.
        sliding_window: tokens that attention reads, the newest included; blocks behind the window are freed. None: no
            window.

    Raises:
        ArgumentError: if a size is not a whole number, or too small.
        OutOfBlocksError: if too few blocks are free; it has their number and the sequences that could be preempted.
        UnknownSequenceError: if a sequence was never allocated or has been freed.
        SequenceStateError: if a new name is in use, or a sequence is on the host (or device) and must not be.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        num_host_blocks: int = 0,
        prefix_caching: bool = False,
        sliding_window: int | None = None,
    ):
        self.num_blocks = check_count("num_blocks", num_blocks, 1, "Blocks in the device cache.")
        self.block_size = check_count("block_size", block_size, 1, "Tokens per block; 16 is usual.")
        self.num_host_blocks = check_count("num_host_blocks", num_host_blocks, 0, "0 means no swapping.")
        if sliding_window is not None:
            sliding_window = check_count("sliding_window", sliding_window, 1, "None means unlimited.")
        self.sliding_window = sliding_window
        self.prefix_caching = prefix_caching
        self._device, self._host = CachingPool(self.num_blocks), BlockPool(self.num_host_blocks)
        self._sequences: dict[Hashable, SequenceRecord] = {}
        self._prefixes = Prefixes()
        self._host_contents: dict[int, Prefix] = {}
        self._queried_tokens = self._hit_tokens = 0
        self._freed: deque[Hashable] = deque(maxlen=_REMEMBERED_FREED)

    # -- the life of a sequence ---------------------------------------------------------------------------------

    def allocate(self, seq: Hashable, tokens: Tokens, *, salt: Hashable = None) -> Placement:
        """Begin a sequence with its prompt.

        With prefix caching and token ids, the sequence shares the leading full blocks that are in the cache. The block
        of the last token is never shared, because an engine has to compute that token to continue. New full blocks
        count as cached at once: write them before anything reads them.

        Args:
            seq: the name of the new sequence.
            tokens: the token ids, or only their number (then nothing of the sequence is cached).
            salt: a namespace for cached contents; only sequences with equal salt share them.

        Returns:
            The slots of the tokens after the first ``num_cached_tokens``, and no copies.
        """
        if seq in self._sequences:
            raise SequenceStateError("seq", repr(seq), "a name not in use", "Free it first, or choose another name.")
        num_tokens, ids = count_tokens(tokens, 0)
        record = SequenceRecord()
        if self.prefix_caching and ids is not None:
            record.prefix = self._prefixes.root(salt)
            record.table, record.prefix = self._prefixes.longest_cached(record.prefix, ids, self.block_size)
            record.num_tokens = len(record.table) * self.block_size
        num_cached = record.num_tokens
        idle = sum(self._device.counts[block] == 0 for block in record.table)
        self._require(self._blocks_of(num_tokens) - len(record.table), idle=idle, but=(seq,))

        for block in record.table:
            self._device.claim(block)
        if record.prefix is not None:
            self._queried_tokens += num_tokens
            self._hit_tokens += num_cached
        self._sequences[seq] = record
        slots = self._extend(record, num_tokens - num_cached, None if ids is None else ids[num_cached:])
        return Placement(slots, num_cached_tokens=num_cached)

    def append(self, seq: Hashable, tokens: Tokens = 1) -> Placement:
        """Make room for new tokens at the end of one sequence; see `append_batch`."""
        if type(tokens) is int and tokens == 1 and self._has_room(record := self._running(seq)):
            slot = record.table[-1] * self.block_size + record.num_tokens % self.block_size
            record.num_tokens += 1
            return Placement([slot])
        return self.append_batch({seq: tokens})

    def append_batch(self, batch: Mapping[Any, Tokens]) -> Placement:
        """Make room for new tokens of several sequences, as one step of an engine does: for all of them or none.

        Blocks that have left the sliding window are freed first. Sequences that share a partial last block each get a
        copy of it, except for the last one, which keeps the block: copy-on-write.

        Returns:
            The slots in the order of ``batch``, and the blocks to copy before writing.
        """
        records = {seq: self._running(seq) for seq in batch}
        counted = {seq: count_tokens(tokens, 1) for seq, tokens in batch.items()}
        needed = 0
        writers: dict[int, int] = defaultdict(int)
        leaving: dict[int, int] = defaultdict(int)
        for seq, record in records.items():
            needed += self._blocks_of(record.num_tokens + counted[seq][0]) - len(record.table)
            if self._must_copy(record):
                writers[record.table[-1]] += 1
            if self.sliding_window is not None:
                start = record.window_start(self.block_size, self.sliding_window)
                for block in record.table[record.first_live : start]:
                    leaving[block] += 1
        counts, gained = self._device.counts, 0
        if writers:
            needed += sum(sharers - (sharers == counts[block]) for block, sharers in writers.items())
        if leaving:
            gained = sum(sharers == counts[block] for block, sharers in leaving.items())
        self._require(needed, gained=gained, but=records)

        if leaving:
            for record in records.values():
                self._leave_window(record)
        slots, copies = [], []
        for seq, record in records.items():
            if self._must_copy(record):
                source, record.table[-1] = record.table[-1], self._device.take()
                copies.append((source, record.table[-1]))
                self._device.release(source)
            slots += self._extend(record, *counted[seq])
        return Placement(slots, copies)

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
            for block in record.live:
                self._release_host(block)
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
        blocks = dict.fromkeys(block for record in records.values() for block in record.live)
        if len(blocks) > self._host.num_free:
            raise OutOfBlocksError("host", len(blocks), self._host.num_free, 0)

        moved: dict[int, int] = {}
        for record in records.values():
            table = record.table[: record.first_live]
            for block in record.live:
                if block in moved:
                    self._host.share(moved[block])
                else:
                    moved[block] = self._host.take()
                    if block in self._device.contents:
                        self._host_contents[moved[block]] = self._device.contents[block]
                table.append(moved[block])
            self._release_all(record)
            record.table, record.on_host = table, True
        return list(moved.items())

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
        cached = {block: self._host_contents[block].block for block in blocks if block in self._host_contents}
        resident = {host: device for host, device in cached.items() if device is not None}
        idle = sum(self._device.counts[block] == 0 for block in set(resident.values()))
        self._require(len(blocks) - len(resident), idle=idle, but=records)

        for record in records.values():  # before a block is taken: taking one may evict a resident block
            for block in record.live:
                if block in resident:
                    self._device.claim(resident[block])
        moved: dict[int, int] = {}
        for record in records.values():
            table = record.table[: record.first_live]
            for block in record.live:
                if block in moved:
                    self._device.share(moved[block])
                elif block not in resident:
                    moved[block] = self._device.take()
                    if block in self._host_contents:
                        self._device.remember(moved[block], self._host_contents[block])
                table.append(resident[block] if block in resident else moved[block])
            for block in record.live:
                self._release_host(block)
            record.table, record.on_host = table, False
        return list(moved.items())

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

    def block_table(self, seq: Hashable) -> list[int]:
        """Return the physical block of each logical block; those of a swapped-out sequence are host blocks.

        Blocks that have left the sliding window are `FREED` (-1).
        """
        return self._known(seq).table.copy()

    def slots(self, seq: Hashable, start: int = 0, stop: int | None = None) -> list[int]:
        """Return the slots of tokens ``start`` to ``stop`` of a running sequence, -1 for those behind the window."""
        record = self._running(seq)
        positions = range(*slice(start, stop).indices(record.num_tokens))
        size = self.block_size
        blocks = ((record.table[position // size], position) for position in positions)
        return [FREED if block == FREED else block * size + position % size for block, position in blocks]

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
        """Return the current counts of blocks, slots, shared blocks and cache hits; takes one step per sequence."""
        size = self.block_size
        # Free slots of partial last blocks, each block once, because its sharers have filled it equally far.
        partial = {
            record.table[-1]: size - record.num_tokens % size
            for record in self._sequences.values()
            if record.num_tokens % size and not record.on_host
        }
        num_slots = self._device.num_used * size
        return BlockStatistics(
            num_blocks=self.num_blocks,
            used_blocks=self._device.num_used,
            evictable_blocks=self._device.num_evictable,
            free_blocks=self._device.num_free - self._device.num_evictable,
            shared_blocks=self._device.num_shared,
            saved_blocks=self._device.references - self._device.num_used,
            num_slots=num_slots,
            filled_slots=num_slots - sum(partial.values()),
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

    def _blocks_of(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

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

    def _extend(self, record: SequenceRecord, num_tokens: int, ids: list[Hashable] | None) -> list[int]:
        """Append tokens to a sequence and return their slots; blocks that become full are cached if ids are known."""
        size, start = self.block_size, record.num_tokens
        record.num_tokens = stop = start + num_tokens
        while len(record.table) * size < stop:
            record.table.append(self._device.take())
        slots: list[int] = []
        for logical in range(start // size, self._blocks_of(stop)):
            first = (record.table[logical] - logical) * size  # the slot of position p is first + p
            slots += range(first + max(start, logical * size), first + min(stop, (logical + 1) * size))
        if record.prefix is None or ids is None:
            record.prefix, record.tail = None, []
            return slots
        tokens = record.tail + ids
        full = len(tokens) // size * size
        for logical, offset in enumerate(range(0, full, size), start // size):
            record.prefix = self._prefixes.extend(record.prefix, tuple(tokens[offset : offset + size]))
            self._device.remember(record.table[logical], record.prefix)
        record.tail = tokens[full:]
        return slots

    def _must_copy(self, record: SequenceRecord) -> bool:
        return record.num_tokens % self.block_size != 0 and self._device.counts[record.table[-1]] > 1

    def _has_room(self, record: SequenceRecord) -> bool:
        """Return True if one token without an id fits into the last block: the fast path of most engine steps."""
        partial = record.num_tokens % self.block_size != 0
        return partial and record.prefix is None and self.sliding_window is None and not self._must_copy(record)

    def _leave_window(self, record: SequenceRecord) -> None:
        start = record.window_start(self.block_size, self.sliding_window)
        for logical in range(record.first_live, start):
            self._device.release(record.table[logical])
            record.table[logical] = FREED
        record.first_live = start

    def _release_all(self, record: SequenceRecord) -> None:
        # The last block is freed, and so evicted, first: a prefix is useful without its end, but not vice versa.
        for block in reversed(record.live):
            self._device.release(block)

    def _release_host(self, block: int) -> None:
        if self._host.drop(block):
            self._host_contents.pop(block, None)
