"""What a cache refuses. Every one of these is raised before anything has changed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from workbench.errors import ArgumentError, WorkbenchError

_MOST_NAMED = 8
"""Sequences that a message names; `OutOfBlocksError.preemptible` has them all."""


class UnknownSequenceError(ArgumentError):
    """A sequence that was never allocated, or has been freed."""


class SequenceStateError(ArgumentError):
    """A sequence that exists, but not in the state that the call needs: it is already there, or swapped out."""


class OutOfBlocksError(WorkbenchError):
    """Not enough free blocks; nothing has changed.

    Attributes:
        pool: "device" or "host".
        needed: blocks that the call has to take.
        free: blocks that hold nothing.
        evictable: blocks that hold cached contents which no sequence refers to; they count as available too.
        preemptible: running sequences outside the call, the newest first: freeing them or swapping them out gives
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


_MOST = 2**31 - 1  # what tables of 32-bit integers can name


def check_count(argument: str, value: object, least: int, remedy: str) -> int:
    """A whole number of at least ``least``, of 32 bits; ArgumentError otherwise (True and 2.0 are no counts)."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= value.__index__() <= _MOST:
        raise ArgumentError(argument, repr(value), f"a whole number of at least {least}, of 32 bits", remedy)
    return value.__index__()
