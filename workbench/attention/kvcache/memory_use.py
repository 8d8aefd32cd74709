"""Memory use of a KV cache, in one class for both kinds of cache, so that they can be compared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of device memory of a KV cache, over all layers, keys and values together.

    Attributes:
        pool_bytes: size of the whole cache.
        reserved_bytes: memory that the live sequences hold: whole rows (contiguous) or whole blocks (paged).
        used_bytes: memory that holds tokens; a token that several sequences share counts once.
    """

    pool_bytes: int
    reserved_bytes: int
    used_bytes: int

    @property
    def wasted_bytes(self) -> int:
        """Bytes that a sequence holds and that hold no token."""
        return self.reserved_bytes - self.used_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes that no sequence holds."""
        return self.pool_bytes - self.reserved_bytes

    def __str__(self) -> str:
        share = self.used_bytes / self.reserved_bytes if self.reserved_bytes else 1.0
        return (
            f"{self.used_bytes} of {self.reserved_bytes} reserved bytes hold tokens ({share:.1%}); "
            f"{self.wasted_bytes} wasted, {self.free_bytes} of {self.pool_bytes} free"
        )
