"""Pools of blocks: reference counts, the free queue and cached contents, in twelve bytes per block.

Free blocks form one queue, an intrusive doubly linked list in two arrays, so that every operation below takes constant
time. Blocks are taken from the front. A freed block goes to the front if its contents are not cached, and to the back
if they are. Cached blocks are therefore evicted last, the least recently used one first; one that is needed again
leaves from the middle. (As the free block queue of vLLM's V1 block pool.)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from workbench.attention.kvcache.prefixes import Prefix


class BlockPool:
    """Reference counts and the free queue of ``num_blocks`` blocks.

    Attributes:
        num_blocks: number of blocks.
        num_free: number of blocks in the queue.
        references: sum of all reference counts.
        num_shared: number of blocks with more than one reference.
        counts: reference count of each block.
    """

    def __init__(self, num_blocks: int):
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.references = 0
        self.num_shared = 0
        self.counts = array("i", bytes(4 * num_blocks))
        # The queue is a ring with one more entry as a sentinel: next[end] is the front, previous[end] the back.
        self._end = num_blocks
        self._next = array("i", range(1, num_blocks + 2))
        self._next[self._end] = 0
        self._previous = array("i", range(-1, num_blocks))
        self._previous[0] = self._end

    @property
    def num_used(self) -> int:
        """Number of blocks that a sequence refers to."""
        return self.num_blocks - self.num_free

    @property
    def front(self) -> int:
        """First block of the free queue, the one that `take` takes; ``num_blocks`` if the queue is empty."""
        return self._next[self._end]

    def take(self) -> int:
        """Take the block at the front of the queue, give it its first reference and return it."""
        block = self.front
        self.take_from_queue(block)
        return block

    def take_from_queue(self, block: int) -> None:
        """Remove a free block from the queue, wherever it stands, and give it its first reference."""
        before, after = self._previous[block], self._next[block]
        self._next[before], self._previous[after] = after, before
        self.num_free -= 1
        self.counts[block] = 1
        self.references += 1

    def share(self, block: int) -> None:
        """Add a reference to a block that is in use."""
        self.counts[block] += 1
        self.references += 1
        self.num_shared += self.counts[block] == 2

    def drop(self, block: int, *, keep: bool = False) -> bool:
        """Remove a reference and return True if it was the last one, so that the block is free.

        Args:
            block: a block in use.
            keep: put the free block at the back of the queue, because its contents are cached.
        """
        self.counts[block] -= 1
        self.references -= 1
        count = self.counts[block]
        self.num_shared -= count == 1
        if count:
            return False
        before, after = (self._previous[self._end], self._end) if keep else (self._end, self._next[self._end])
        self._previous[block], self._next[block] = before, after
        self._next[before] = self._previous[after] = block
        self.num_free += 1
        return True


class CachingPool(BlockPool):
    """A pool whose blocks may hold cached contents, also after the last sequence has freed them.

    Attributes:
        contents: the prefix that each cached block holds, by block, in use or not.
        num_evictable: number of free blocks with cached contents.
        num_evictions: number of cached blocks taken for other contents so far.
    """

    def __init__(self, num_blocks: int):
        super().__init__(num_blocks)
        self.contents: dict[int, Prefix] = {}
        self.num_evictable = 0
        self.num_evictions = 0

    def take(self) -> int:
        """Take the block at the front of the queue, evict its cached contents, and return it."""
        contents = self.contents.pop(self.front, None)
        if contents is not None:
            contents.block = None
            self.num_evictable -= 1
            self.num_evictions += 1
        return super().take()

    def claim(self, block: int) -> None:
        """Add a reference to a cached block, which may be free."""
        if self.counts[block]:
            self.share(block)
        else:
            self.take_from_queue(block)
            self.num_evictable -= 1

    def remember(self, block: int, contents: Prefix) -> None:
        """Cache the contents of a block in use, unless another block holds the same contents."""
        if contents.block is None:
            contents.block = block
            self.contents[block] = contents

    def forget(self, block: int) -> None:
        """Evict the cached contents of a block in use, because its only owner overwrites them."""
        self.contents.pop(block).block = None
        self.num_evictions += 1

    def release(self, block: int) -> None:
        """Remove a reference; cached contents stay when it was the last one."""
        keep = block in self.contents
        if self.drop(block, keep=keep):
            self.num_evictable += keep

    def release_all(self, blocks: Iterable[int]) -> None:
        """Remove a reference of each block, in this order."""
        for block in blocks:
            self.release(block)
