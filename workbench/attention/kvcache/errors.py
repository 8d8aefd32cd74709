"""Errors of the KV caches; each is raised before anything has changed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from workbench.errors import ArgumentError, WorkbenchError

_MOST_NAMED = 8
"""Number of sequences that a message names; `OutOfBlocksError.preemptible` has all of them."""


class UnknownSequenceError(ArgumentError):
    """A sequence that was never allocated, or has been freed."""


class SequenceStateError(ArgumentError):
    """A sequence in another state than the call needs: its name is in use already, or it is swapped out."""


class OutOfBlocksError(WorkbenchError):
    """A call that needs more blocks than are available; nothing has changed.

    Attributes:
        pool: "device" or "host".
        needed: blocks that the call needs.
        free: blocks that hold nothing.
        evictable: blocks with cached contents that no sequence refers to; these are available too.
        preemptible: running sequences outside the call, the newest first; freeing them or swapping them out gives
            blocks back. Empty for the host pool.
    """

    def __init__(self, pool: str, needed: int, free: int, evictable: int, preemptible: Sequence[Hashable] = ()):
        self.pool, self.needed, self.free, self.evictable = pool, needed, free, evictable
        self.preemptible = tuple(preemptible)
        named = ", ".join(repr(seq) for seq in self.preemptible[:_MOST_NAMED])
        more = len(self.preemptible) - _MOST_NAMED
        if pool == "host":
            remedy = "Free a swapped-out sequence, or preempt by freeing and recomputing."
        elif named:
            remedy = f"Free or swap out one of: {named}{f' and {more} more' if more > 0 else ''} (newest first)."
        else:
            remedy = "No other sequence is running: the call alone needs more blocks than there are."
        wanted = f"{needed} {pool} block{'s' if needed != 1 else ''} needed"
        super().__init__(f"{wanted}; available: {free} free + {evictable} evictable. Nothing has changed. {remedy}")


_MOST = 2**31 - 1  # block tables and lengths are 32-bit integers


def check_count(argument: str, value: object, least: int, remedy: str) -> int:
    """Return ``value`` as a whole number from ``least`` to 2^31 - 1; ArgumentError otherwise, also for True and 2.0."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= value.__index__() <= _MOST:
        raise ArgumentError(argument, repr(value), f"a whole number of at least {least}, of 32 bits", remedy)
    return value.__index__()
