"""The blocks of one memory: how often each is referred to, which are free, what they hold. Twelve bytes a block.

Free blocks form one queue, an intrusive doubly linked list in two arrays, so that every operation below touches a
constant number of entries however many blocks there are. Blocks are taken from its front. A freed block whose
contents nobody may want goes to the front; one whose contents are cached goes to the back. The cached ones are
therefore evicted last and least recently used first, and one that is wanted again leaves from the middle.
(The same idea as the free block queue of vLLM's V1 block pool.)
"""

from __future__ import annotations

from array import array

from workbench.attention.kvcache.prefixes import Prefix


class BlockPool:
    """Reference counts and the free queue of ``num_blocks`` blocks.

    Attributes:
        num_blocks: blocks in all; num_free: those in the queue.
        references: the sum of all reference counts; num_shared: blocks with more than one reference.
    """

    def __init__(self, num_blocks: int):
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.references = 0
        self.num_shared = 0
        self.counts = array("i", bytes(4 * num_blocks))
        # The queue is a ring through one more entry, the end: next[end] is its front and previous[end] its back.
        self._end = num_blocks
        self._next = array("i", range(1, num_blocks + 2))
        self._next[self._end] = 0
        self._previous = array("i", range(-1, num_blocks))
        self._previous[0] = self._end

    @property
    def num_used(self) -> int:
        """Blocks that some sequence refers to."""
        return self.num_blocks - self.num_free

    @property
    def front(self) -> int:
        """The free block that `take` would give; ``num_blocks`` if there is none."""
        return self._next[self._end]

    def take(self) -> int:
        """Give the block at the front its first reference."""
        block = self.front
        self.take_from_queue(block)
        return block

    def take_from_queue(self, block: int) -> None:
        """Give a free block its first reference; it leaves the queue from wherever it stands."""
        before, after = self._previous[block], self._next[block]
        self._next[before], self._previous[after] = after, before
        self.num_free -= 1
        self.counts[block] = 1
        self.references += 1

    def share(self, block: int) -> None:
        """One more reference to a block that has some."""
        self.counts[block] += 1
        self.references += 1
        self.num_shared += self.counts[block] == 2

    def drop(self, block: int, *, keep: bool = False) -> bool:
        """One reference less; True if that was the last, so that the block is free.

        Args:
            keep: a free block goes to the back of the queue, because its contents may be wanted again.
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
    """A pool whose blocks may hold contents that can be found again, also while no sequence refers to them.

    Attributes:
        contents: of the cached blocks, in use or not; each knows its block.
        num_evictable: free blocks with contents; num_evictions: contents overwritten so far.
    """

    def __init__(self, num_blocks: int):
        super().__init__(num_blocks)
        self.contents: dict[int, Prefix] = {}
        self.num_evictable = 0
        self.num_evictions = 0

    def take(self) -> int:
        """Give the block at the front its first reference, evicting what it holds."""
        contents = self.contents.pop(self.front, None)
        if contents is not None:
            contents.block = None
            self.num_evictable -= 1
            self.num_evictions += 1
        return super().take()

    def claim(self, block: int) -> None:
        """One more reference to a cached block, which may be idle."""
        if self.counts[block]:
            self.share(block)
        else:
            self.take_from_queue(block)
            self.num_evictable -= 1

    def remember(self, block: int, contents: Prefix) -> None:
        """Let contents be found in a block that is in use, unless another block has them already."""
        if contents.block is None:
            contents.block = block
            self.contents[block] = contents

    def release(self, block: int) -> None:
        """One reference less; contents outlive the last one."""
        keep = block in self.contents
        if self.drop(block, keep=keep):
            self.num_evictable += keep
