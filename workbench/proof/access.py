"""Accesses to memory, and the intervals between barriers in which they happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from workbench.base.element_types import PTX_BYTES
from workbench.proof.clocks import NO_COUNTS, Ring, ThreadCounts
from workbench.proof.conditions import FALSE, Predicate, both, substituted
from workbench.proof.terms import Atom, Term
from workbench.ptx.parse import Statement

_PACKED = {"f16x2": 2, "bf16x2": 2}
"""Bytes of an element of each packed type that atomic operations have."""


class Epoch(NamedTuple):
    """An interval between barriers: it begins at a barrier (a place, in these rounds of its loops)."""

    when: Predicate
    place: Any
    rounds: tuple[Term, ...] = ()

    def substituted(self, mapping: Mapping[Atom, Term]) -> Epoch:
        """Return the epoch with atoms replaced."""
        rounds = tuple(substituted(one, mapping) for one in self.rounds)
        return Epoch(substituted(self.when, mapping), self.place, rounds)


Epochs = tuple[Epoch, ...]


def following(before: Epochs, barrier: Epoch, others: Predicate) -> Epochs:
    """Return the intervals behind a barrier; the ``others``, which do not take it, stay in the ones before."""
    if others == FALSE:
        return (barrier,)
    return (barrier, *(one._replace(when=both(others, one.when)) for one in before))


ANY = "any"
"""Place of an epoch that may be every other."""


class AccessMode(NamedTuple):
    """The way in which an instruction accesses memory; see `ThreadAccess`.

    ``space`` is the state space, "" for any.
    """

    writes: bool
    strong: bool = False
    copy: bool = False
    proxy: bool = False
    landing: tuple[Ring, Term] | None = None
    clipped: bool = False
    align: int = 0
    space: str = ""
    values: tuple[Any, ...] = ()


class Brought(NamedTuple):
    """The bytes that a copy writes: those of a read, of which ``size`` are read and the others zeros."""

    read: ThreadAccess
    size: Term

    def substituted(self, mapping: Mapping[Atom, Term]) -> Brought:
        """Return it with atoms replaced."""
        return Brought(self.read.substituted(mapping), substituted(self.size, mapping))

    @property
    def key(self) -> tuple:
        """Everything that decides the bytes, if the memory that is read does not change."""
        return self.read.base, self.read.offset, self.size


@dataclass(frozen=True, eq=False)
class ThreadAccess:
    """An access of the generic thread.

    ``base`` is the name of the array's address, ``offset`` the byte in it, ``width`` the bytes. ``strong`` accesses do
    not race with each other; those ``in_block`` only within a block. ``copy`` marks what a ``cp.async`` reads and
    writes later. ``rounds`` are those of the loops around it.

    Where threads count at barriers, ``clock`` has the counts when the access begins, and ``over`` when its thread has
    waited for it: None for one that it does not wait for. A bulk load is over with an item of a ring, its ``landing``.
    ``proxy`` marks accesses of bulk copies and of products, which do not see ordinary stores without a fence.
    ``clipped`` ones stay in their tensor, whatever their box is; ``align`` is the multiple that an address has to be,
    where it is not the access's width. ``values`` are what a store writes, by element, and of a ``cp.async`` the place
    that it reads; ``brought`` is what a ``cp.async`` writes, where that may matter.
    """

    statement: Statement
    base: str
    offset: Term
    width: int
    path: Predicate
    writes: bool
    strong: bool
    in_block: bool
    copy: bool
    epochs: Epochs
    lane_epochs: Epochs
    rounds: tuple[Term, ...] = ()
    clock: ThreadCounts = NO_COUNTS
    over: ThreadCounts | None = None
    landing: tuple[Ring, Term] | None = None
    proxy: bool = False
    clipped: bool = False
    align: int = 0
    values: tuple[Any, ...] = ()
    brought: Brought | None = None

    @property
    def key(self) -> tuple:
        """Everything that decides whether it is in bounds, and with which others it races."""
        return self.base, self.offset, (self.statement.start, *self.rounds) if self.writes else (), *self.manner

    @property
    def manner(self) -> tuple:
        """The part of the key besides its place and its statement."""
        return (
            self.width, self.path, self.writes, self.strong, self.in_block, self.copy, self.epochs, self.lane_epochs,
            self.clock, self.over, self.landing, self.proxy, self.element if self.strong else 0, self.fixed,
            self.values,
        )  # fmt: skip

    @property
    def element(self) -> int:
        """Bytes that are read or written as one: of a vector and of a packed type those of an element."""
        kind = self.statement.opcode.rpartition(".")[2]
        return _PACKED.get(kind) or PTX_BYTES.get(kind, self.width)

    @property
    def fixed(self) -> bool:
        """True for a load of memory that nobody may write in the whole launch."""
        parts = self.statement.opcode.split(".")
        return parts[0] == "ldu" or (parts[0] == "ld" and "nc" in parts)

    @property
    def unit(self) -> int:
        """Bytes of which its address has to be a multiple."""
        return self.align or (min(self.width, 16) if self.proxy else self.width)

    @property
    def verb(self) -> str:
        """Verb for messages."""
        return ("copies to" if self.copy else "writes") if self.writes else "reads"

    def substituted(self, mapping: Mapping[Atom, Term]) -> ThreadAccess:
        """Return the access with atoms replaced."""
        return replace(
            self, offset=substituted(self.offset, mapping), path=substituted(self.path, mapping),
            epochs=tuple(one.substituted(mapping) for one in self.epochs),
            lane_epochs=tuple(one.substituted(mapping) for one in self.lane_epochs),
            rounds=tuple(substituted(one, mapping) for one in self.rounds), clock=self.clock.substituted(mapping),
            over=None if self.over is None else self.over.substituted(mapping),
            landing=None if self.landing is None else (self.landing[0], substituted(self.landing[1], mapping)),
            brought=None if self.brought is None else self.brought.substituted(mapping),
            values=tuple(substituted(one, mapping) for one in self.values),
        )  # fmt: skip

    def lasting(self, when: Predicate, path: Predicate, epochs: Epochs, lane_epochs: Epochs) -> ThreadAccess:
        """Return the access of a copy as it lasts into a later interval."""
        return replace(self, path=both(path, self.path, when), epochs=epochs, lane_epochs=lane_epochs)


Pending = tuple[tuple[Predicate, ThreadAccess], ...]
"""Accesses of copies of a group of ``cp.async``, each with the condition that it was issued."""


@dataclass(frozen=True)
class Meeting:
    """A place that all threads of a block (of a warp if ``lanes``) have to reach together, or none.

    Of the threads for which ``path`` holds at the head of the innermost loop, in the same rounds, those with ``reach``
    come here: a barrier, or another round of a loop that has one.
    """

    statement: Statement
    path: Predicate
    reach: Predicate
    lanes: bool
    rounds: tuple[Term, ...]


@dataclass(frozen=True)
class Hazard:
    """An access of a thread to what its own copy may still be reading or writing."""

    access: ThreadAccess
    copy: ThreadAccess
    when: Predicate
