"""Accesses to memory, and the intervals between barriers in which they happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from workbench.proof.conditions import Predicate, both, substituted
from workbench.proof.terms import Atom, Term
from workbench.ptx.parse import Statement


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
ANY = "any"
"""Place of an epoch that may be every other."""


class AccessMode(NamedTuple):
    """The way in which an instruction accesses memory; see `ThreadAccess`."""

    writes: bool
    strong: bool = False
    copy: bool = False


@dataclass(frozen=True, eq=False)
class ThreadAccess:
    """An access of the generic thread.

    ``base`` is the name of the array's address, ``offset`` the byte in it, ``width`` the bytes. ``strong`` accesses do
    not race with each other; those ``in_block`` only within a block. ``copy`` marks what a ``cp.async`` reads and
    writes later. ``rounds`` are those of the loops around it.
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

    @property
    def key(self) -> tuple:
        """Everything that decides whether it is in bounds, and with which others it races."""
        return (
            self.base, self.offset, self.width, self.path, self.writes, self.strong, self.in_block, self.copy,
            self.epochs, self.lane_epochs, self.rounds if self.writes else (),
        )  # fmt: skip

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
            rounds=tuple(substituted(one, mapping) for one in self.rounds),
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
