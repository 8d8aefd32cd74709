"""A buddy allocator, which gives memory to a contiguous cache whose rows differ in length.

The size of every chunk is a power of two. A chunk is split in halves when a smaller one is needed, and two free halves
("buddies") are joined again. The PagedAttention paper assumes this allocator for its Orca baselines (section 6.1).
"""

from __future__ import annotations


class BuddyAllocator:
    """Chunks of ``capacity`` slots; a capacity that is not a power of two starts as several chunks."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._free: dict[int, set[int]] = {}
        self._sizes: dict[int, int] = {}
        start = 0
        while start < capacity:
            size = 1 << ((capacity - start).bit_length() - 1)
            self._free.setdefault(size, set()).add(start)
            start += size

    def allocate(self, size: int) -> int | None:
        """Take a chunk of at least ``size`` slots and return its first slot, or None if no chunk is large enough."""
        wanted = 1 << max(size - 1, 0).bit_length()
        found = min((chunk for chunk, starts in self._free.items() if starts and chunk >= wanted), default=None)
        if found is None:
            return None
        start = min(self._free[found])
        self._free[found].remove(start)
        while found > wanted:
            found //= 2
            self._free.setdefault(found, set()).add(start + found)
        self._sizes[start] = wanted
        return start

    def release(self, start: int) -> None:
        """Free the chunk that starts at a slot, and join it with its free buddies."""
        size = self._sizes.pop(start)
        while start ^ size in self._free.get(size, ()):
            self._free[size].remove(start ^ size)
            start &= ~size
            size *= 2
        self._free.setdefault(size, set()).add(start)
