"""Swap space: blocks on the host, to which sequences move and from which they come back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workbench.attention.kvcache.block_pool import BlockPool, CachingPool
from workbench.attention.kvcache.errors import OutOfBlocksError
from workbench.attention.kvcache.prefixes import Prefix
from workbench.attention.kvcache.sequence import SequenceRecord


class SwapSpace(BlockPool):
    """A pool of host blocks that remembers which cached contents it holds."""

    def __init__(self, num_blocks: int):
        super().__init__(num_blocks)
        self._names: dict[int, Prefix] = {}

    def store(self, records: Sequence[SequenceRecord], device: CachingPool) -> dict[int, int]:
        """Take a host block for each distinct block of the sequences, and return pairs (device block, host block).

        Raises:
            OutOfBlocksError: if there are too few.
        """
        blocks = dict.fromkeys(block for record in records for block in record.live)
        if len(blocks) > self.num_free:
            raise OutOfBlocksError("host", len(blocks), self.num_free, 0)
        moved: dict[int, int] = {}
        for block in (block for record in records for block in record.live):
            if block in moved:
                self.share(moved[block])
            else:
                moved[block] = self.take()
                if block in device.contents:
                    self._names[moved[block]] = device.contents[block]
        return moved

    def still_cached(self, blocks: Iterable[int]) -> dict[int, int]:
        """Return pairs (host block, device block) of the contents that are still cached on the device."""
        cached = {block: self._names[block].block for block in blocks if block in self._names}
        return {host: device for host, device in cached.items() if device is not None}

    def restore(
        self, records: Sequence[SequenceRecord], resident: dict[int, int], device: CachingPool
    ) -> dict[int, int]:
        """Move sequences back to the device, and return the pairs (host block, device block) to copy.

        Args:
            records: the sequences.
            resident: result of `still_cached` for their blocks; these are shared instead of copied.
            device: the pool on the device, which has enough free blocks.
        """
        for record in records:  # before a block is taken: taking one may evict a resident block
            for block in record.live:
                if block in resident:
                    device.claim(resident[block])
        moved: dict[int, int] = {}
        for record in records:
            for block in record.live:
                if block in moved:
                    device.share(moved[block])
                elif block not in resident:
                    moved[block] = device.take()
                    if block in self._names:
                        device.remember(moved[block], self._names[block])
            self.release(record.live)
            record.move(resident | moved)
        return moved

    def release(self, blocks: Iterable[int]) -> None:
        """Remove a reference of each block."""
        for block in blocks:
            if self.drop(block):
                self._names.pop(block, None)
