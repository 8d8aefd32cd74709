"""A buddy allocator: what a contiguous cache of rows of different lengths gets its memory from.

Every chunk is a power of two; a larger one is split in halves, and two free halves ("buddies") are joined again. It is
the allocator that the PagedAttention paper assumes behind its Orca baselines (section 6.1).
"""

from __future__ import annotations


class BuddyAllocator:
    """Chunks out of ``capacity`` slots; a capacity that is no power of two starts as several chunks."""

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
        """The start of a chunk of at least ``size`` slots, or None if no chunk is large enough."""
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
        """Give a chunk back."""
        size = self._sizes.pop(start)
        while start ^ size in self._free.get(size, ()):
            self._free[size].remove(start ^ size)
            start &= ~size
            size *= 2
        self._free.setdefault(size, set()).add(start)
