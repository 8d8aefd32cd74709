"""Block tables of groups of layers over the pool that all groups share: what to take, copy, name and give back.

`TokenBlocks` serves groups that keep tokens, `StateBlocks` those that keep a state; `GroupBlocks` holds one of them for
each group. `BlockManager` calls it after it has counted that the pool has enough blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from workbench.attention.kvcache.block_pool import CachingPool
from workbench.attention.kvcache.layer_groups import LayerGroup
from workbench.attention.kvcache.prefixes import Prefix, Prefixes
from workbench.attention.kvcache.sequence import FREED, BlockTable, SequenceRecord
from workbench.errors import UnknownNameError


@dataclass(slots=True)
class Changes:
    """Changes of one call: the blocks to copy, and what may still be taken.

    Attributes:
        spare: blocks that the call can take beyond those that it must; saved states come out of them.
        copies: pairs (source, destination) of blocks.
    """

    spare: int = 0
    copies: list[tuple[int, int]] = field(default_factory=list)


class TokenBlocks:
    """Blocks of a group that keeps tokens: all of them, a window, a chunk, or latents.

    Args:
        group: the group.
        pool: the pool that all groups share.
    """

    def __init__(self, group: LayerGroup, pool: CachingPool):
        self.group, self.pool = group, pool
        self.size = group.block_size
        self.keeps_all = group.kind in ("full", "latent")
        self.prefixes = Prefixes()

    # -- prefix hits --------------------------------------------------------------------------------------------

    def longest_hit(self, chain: list[Prefix], length: int) -> int:
        """Return the longest prefix of at most ``length`` tokens that this group can continue from the cache.

        Args:
            chain: known contents of the sequence's blocks, the first block first.
            length: tokens, the longest prefix that other groups allow.
        """
        end = min(length // self.size, len(chain))
        while end:
            first = self.group.first_read(end * self.size) // self.size
            missing = next((block for block in reversed(range(first, end)) if chain[block].block is None), None)
            if missing is None:
                break
            end = missing  # every longer prefix reads the missing block too, because first_read never falls
        return end * self.size

    def hit_table(self, chain: list[Prefix], root: Prefix, length: int) -> BlockTable:
        """Return the table of a sequence that continues a hit of ``length`` tokens; no block is claimed yet."""
        end = length // self.size
        first = self.group.first_read(length) // self.size
        blocks = [block for prefix in chain[first:end] if (block := prefix.block) is not None]
        return BlockTable([FREED] * first + blocks, first, chain[end - 1] if end else root)

    # -- counting -----------------------------------------------------------------------------------------------

    def needed_to_start(self, table: BlockTable, num_tokens: int) -> int:
        """Return the blocks that a new sequence of ``num_tokens`` tokens takes beside those of its hit."""
        return -(-num_tokens // self.size) - len(table.blocks)

    def count(self, grown: Iterable[tuple[BlockTable, int, int]]) -> tuple[int, int]:
        """Return the blocks that a step must take, and those that it frees first.

        Args:
            grown: table, number of tokens and number of new tokens of each sequence of the step.
        """
        counts, needed = self.pool.counts, 0
        writers: dict[int, int] = defaultdict(int)
        leaving: dict[int, int] = defaultdict(int)
        for table, num_tokens, new in grown:
            needed += self._new_blocks(table, num_tokens + new)
            if self._writes_shared(table, num_tokens):
                writers[table.blocks[-1]] += 1
            if not self.keeps_all:
                for block in table.blocks[table.first_live : self._first_needed(table, num_tokens)]:
                    leaving[block] += 1
        if not (writers or leaving):
            return needed, 0
        # The last sharer of a block keeps it, unless somebody outside the step refers to it.
        needed += sum(sharers - (sharers == counts[block] - leaving[block]) for block, sharers in writers.items())
        return needed, sum(sharers == counts[block] for block, sharers in leaving.items())

    def _new_blocks(self, table: BlockTable, num_tokens: int) -> int:
        return -(-num_tokens // self.size) - len(table.blocks)

    def _writes_shared(self, table: BlockTable, num_tokens: int) -> bool:
        return num_tokens % self.size != 0 and self.pool.counts[table.blocks[-1]] > 1

    def _first_needed(self, table: BlockTable, num_tokens: int) -> int:
        return max(table.first_live, self.group.first_read(num_tokens) // self.size)

    # -- changes ------------------------------------------------------------------------------------------------

    def leave(self, table: BlockTable, num_tokens: int) -> None:
        """Release the blocks that no later token reads."""
        first = self._first_needed(table, num_tokens)
        for logical in range(table.first_live, first):
            self.pool.release(table.blocks[logical])
            table.blocks[logical] = FREED
        table.first_live = first

    def extend(
        self, table: BlockTable, start: int, stop: int, ids: list[Hashable] | None, changes: Changes
    ) -> list[int]:
        """Make room for tokens ``start`` to ``stop`` and return their slots; full blocks of known ids are cached."""
        size, pool = self.size, self.pool
        if self._writes_shared(table, start):
            source, table.blocks[-1] = table.blocks[-1], pool.take()
            changes.copies.append((source, table.blocks[-1]))
            pool.release(source)
        while len(table.blocks) * size < stop:
            table.blocks.append(pool.take())
        one = stop - start == 1  # most steps of an engine
        slots = [table.blocks[-1] * size + start % size] if one else self._slots_of(table, start, stop)
        for logical, prefix in self._named(table, start, ids):
            pool.remember(table.blocks[logical], prefix)
        return slots

    def _slots_of(self, table: BlockTable, start: int, stop: int) -> list[int]:
        size = self.size
        slots: list[int] = []
        for logical in range(start // size, -(-stop // size)):
            first = (table.blocks[logical] - logical) * size  # the slot of position p is first + p
            slots += range(first + max(start, logical * size), first + min(stop, (logical + 1) * size))
        return slots

    def _named(self, table: BlockTable, start: int, ids: list[Hashable] | None) -> list[tuple[int, Prefix]]:
        """Return the blocks that new tokens fill, each with the name of its contents, and remember the last name."""
        if table.prefix is None:
            return []
        if ids is None:
            table.prefix, table.tail = None, []
            return []
        tokens, named = table.tail + ids, []
        full = len(tokens) // self.size * self.size
        for logical, offset in enumerate(range(0, full, self.size), start // self.size):
            table.prefix = self.prefixes.extend(table.prefix, tuple(tokens[offset : offset + self.size]))
            named.append((logical, table.prefix))
        table.tail = tokens[full:]
        return named


class StateBlocks(TokenBlocks):
    """Blocks of a group that keeps a state: the running one, and those that the prefix cache has saved.

    The running state of a sequence moves from block to block of its table with its last token. Its page moves along,
    unless others refer to it, or it is a saved state; then the state is copied to a new page. Saving takes only pages
    that no sequence needs in that call: when there are none, the running state overwrites the saved one.
    """

    def needed_to_start(self, table: BlockTable, num_tokens: int) -> int:
        """Return 1 if a new sequence needs a page: it has no saved state to go on with, or others use that too."""
        return int(num_tokens > 0 and (not table.blocks or self.pool.counts[table.blocks[-1]] > 0))

    def _new_blocks(self, table: BlockTable, num_tokens: int) -> int:
        return int(not table.blocks)

    def _writes_shared(self, table: BlockTable, num_tokens: int) -> bool:
        return bool(table.blocks)

    def extend(
        self, table: BlockTable, start: int, stop: int, ids: list[Hashable] | None, changes: Changes
    ) -> list[int]:
        """Move the running state to the block of the last token, and return a slot for each token: -1 but for states.

        The state before the first token lies, after the copies of the call, in the page of the last token. A state is
        saved at the last multiple of the block size.
        """
        if start == stop:
            return []
        slots, last = [FREED] * (stop - start), (stop - 1) // self.size
        page = slots[-1] = self._running_page(table, changes)
        named = self._named(table, start, ids)
        table.blocks[table.first_live :] = [FREED] * (last - table.first_live)
        table.blocks.append(page)
        table.first_live = last
        if named:
            logical, prefix = named[-1]
            if logical < last and prefix.block is None and changes.spare:
                changes.spare -= 1
                table.blocks[logical] = slots[(logical + 1) * self.size - 1 - start] = self.pool.take()
                table.first_live = logical
            if table.blocks[logical] != FREED:
                self.pool.remember(table.blocks[logical], prefix)
        return slots

    def _running_page(self, table: BlockTable, changes: Changes) -> int:
        if not table.blocks:
            return self.pool.take()
        source = table.blocks[-1]
        shared, saved = self.pool.counts[source] > 1, source in self.pool.contents
        if not shared and not (saved and changes.spare):
            if saved:
                self.pool.forget(source)
            return source
        page = self.pool.take()
        changes.copies.append((source, page))
        changes.spare -= not shared
        # A saved state goes to the end of the queue, behind all that the call still takes: no copy overwrites it.
        self.pool.release(source)
        return page


class GroupBlocks:
    """The groups of a manager, each with its own tables in the record of a sequence.

    Args:
        groups: the groups, in the order of their tables.
        pool: the pool that they share.
    """

    def __init__(self, groups: Sequence[LayerGroup], pool: CachingPool):
        self.parts = [(StateBlocks if group.kind == "state" else TokenBlocks)(group, pool) for group in groups]
        self._leaving = [(index, part) for index, part in enumerate(self.parts) if not part.keeps_all]

    def index(self, name: str | None) -> int:
        """Return the place of a group, the first one's if no name is given; UnknownNameError if there is no such."""
        names = [part.group.name for part in self.parts]
        if name is not None and name not in names:
            raise UnknownNameError("group", repr(name), ", ".join(names), "See BlockManager.groups.")
        return 0 if name is None else names.index(name)

    def new_record(self) -> SequenceRecord:
        """Return the record of a sequence without tokens and without known contents."""
        return SequenceRecord([BlockTable() for _ in self.parts])

    def longest_hit(self, ids: list[Hashable], salt: Hashable) -> SequenceRecord:
        """Return the record of a sequence that continues the longest cached prefix of ``ids``.

        Every group shortens the prefix to one that it can continue, until none does: the longest one for all of them.
        """
        roots = [part.prefixes.root(salt) for part in self.parts]
        chains = [part.prefixes.known(root, ids, part.size) for part, root in zip(self.parts, roots, strict=True)]
        length, before = len(ids), -1
        while length != before:
            before = length
            for part, chain in zip(self.parts, chains, strict=True):
                length = part.longest_hit(chain, length)
        hits = zip(self.parts, chains, roots, strict=True)
        return SequenceRecord([part.hit_table(chain, root, length) for part, chain, root in hits], length)

    def needed_to_start(self, record: SequenceRecord, num_tokens: int) -> int:
        """Return the blocks that a new sequence of ``num_tokens`` tokens takes beside those of its hit."""
        return sum(part.needed_to_start(table, num_tokens) for part, table in self._pairs(record))

    def count(self, grown: Sequence[tuple[SequenceRecord, int]]) -> tuple[int, int]:
        """Return the blocks that new tokens of these sequences must take, and those that they free first."""
        found = [
            part.count((record.tables[index], record.num_tokens, new) for record, new in grown)
            for index, part in enumerate(self.parts)
        ]
        return sum(needed for needed, _ in found), sum(gained for _, gained in found)

    def leave(self, record: SequenceRecord) -> None:
        """Release the blocks that no later token of a sequence reads."""
        for index, part in self._leaving:
            part.leave(record.tables[index], record.num_tokens)

    def extend(
        self, record: SequenceRecord, num_tokens: int, ids: list[Hashable] | None, changes: Changes
    ) -> tuple[list[int], ...]:
        """Append tokens to a sequence and return their slots in each group."""
        start = record.num_tokens
        record.num_tokens = stop = start + num_tokens
        if len(self.parts) == 1:
            return (self.parts[0].extend(record.tables[0], start, stop, ids, changes),)
        return tuple([part.extend(table, start, stop, ids, changes) for part, table in self._pairs(record)])

    def ends_first(self, record: SequenceRecord) -> list[int]:
        """Return the blocks of a sequence, the last tokens first.

        In this order they are freed, and so evicted: a prefix is useless without its beginning, not without its end.
        """
        if len(self.parts) == 1:
            return record.live[::-1]
        ends = [
            ((logical + 1) * part.size, block)
            for part, table in self._pairs(record)
            for logical, block in enumerate(table.live, table.first_live)
        ]
        return [block for _, block in sorted(ends, key=lambda end: end[0], reverse=True)]

    def slots(self, record: SequenceRecord, index: int, tokens: slice) -> list[int]:
        """Return the slots of tokens of a sequence in one group; see `BlockManager.slots`."""
        length, size, blocks = record.num_tokens, self.parts[index].size, record.tables[index].blocks
        positions = range(*tokens.indices(length))
        if self.parts[index].group.kind == "state":
            kept = {min((logical + 1) * size, length) - 1: block for logical, block in enumerate(blocks)}
            return [kept.get(position, FREED) for position in positions]
        pairs = ((blocks[position // size], position) for position in positions)
        return [FREED if block == FREED else block * size + position % size for block, position in pairs]

    def count_slots(self, records: Sequence[SequenceRecord]) -> tuple[int, int]:
        """Return the number of slots in the blocks of running sequences, and the number of those that are empty."""
        num_slots = empty = 0
        for index, part in enumerate(self.parts):
            tables = [(record.tables[index], record.num_tokens) for record in records]
            alone = len(self.parts) == 1
            used = part.pool.num_used if alone else len({block for table, _ in tables for block in table.live})
            num_slots += used * part.group.slots_per_block
            if part.group.kind != "state":
                # Of partial last blocks, each block once, because its sharers have filled it equally far.
                ends = {table.blocks[-1]: -length % part.size for table, length in tables if length % part.size}
                empty += sum(ends.values())
        return num_slots, empty

    def _pairs(self, record: SequenceRecord) -> Iterator[tuple[TokenBlocks, BlockTable]]:
        return zip(self.parts, record.tables, strict=True)
