"""Counts that a proof keeps beside the registers: what a thread has done at barriers. And the barriers themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from workbench.proof.conditions import TRUE, Predicate, substituted
from workbench.proof.terms import Atom, Number, Term, quotient, remainder, term
from workbench.ptx.parse import Statement

MADE, WAITED, EXPECTED, COPIED = "made", "waited", "expected", "copied"
"""Counts of a thread for each ring: its arrivals, its waits, the bytes that it announced and that it asked for."""
BARRIER_BYTES = 8
PRODUCTS, GROUP = "products", 128
"""Name of the rings of products; threads of a warp group."""


@dataclass(frozen=True)
class Ring:
    """Barriers that are used one after the other: mbarriers in an array, or one barrier of threads.

    Arrival number g of each thread is for *item* g: phase ``g / slots`` of the barrier in slot ``g % slots``. ``base``
    is the array, ``first`` the offset of the first slot and ``stride`` the bytes from one to the next. ``arrivals``
    end a phase. A barrier of threads (``bar``) has no array, and each item of it is used once, as are
    the groups of products of a warp group.
    """

    name: str
    base: str = ""
    first: int = 0
    stride: int = BARRIER_BYTES
    slots: int = 1
    arrivals: int = 0

    @property
    def is_group(self) -> bool:
        """True for the groups of products of a warp group."""
        return self.name.startswith(PRODUCTS) and not self.base

    @property
    def is_bar(self) -> bool:
        """True for a barrier of threads."""
        return not self.base and not self.is_group

    def offset(self, item: Term) -> Term:
        """Return the offset of the mbarrier of an item."""
        return term(self.first) + remainder(item, self.slots) * self.stride

    def phase(self, item: Term) -> Term:
        """Return the number of the phase of an item."""
        return quotient(item, self.slots)

    def count(self, kind: str) -> str:
        """Return the name of a thread's count."""
        return f"#{kind}:{self.name}"

    def counts(self) -> list[str]:
        """Return the names of all counts."""
        kinds = (MADE,) if self.is_bar else (MADE, WAITED) if self.is_group else (MADE, WAITED, EXPECTED, COPIED)
        return [self.count(one) for one in kinds]


@dataclass(frozen=True)
class ThreadCounts:
    """The counts of a thread of a role at one place, by name."""

    counts: tuple[tuple[str, Term], ...] = ()
    role: int = -1

    def of(self, ring: Ring, kind: str = MADE) -> Term:
        """Return one of them."""
        return dict(self.counts)[ring.count(kind)]

    def substituted(self, mapping: Mapping[Atom, Term]) -> ThreadCounts:
        """Return the counts with atoms replaced."""
        return ThreadCounts(tuple((name, substituted(one, mapping)) for name, one in self.counts), self.role)


NO_COUNTS = ThreadCounts()


@dataclass(frozen=True, eq=False)
class BarrierUse:
    """A use of a barrier by a thread: ``init``, ``arrive``, ``wait``, ``copy``, ``bar``, ``inval`` or ``exit``.

    Or a ``product`` that begins a group, a ``join`` that waits for groups up to ``number``, and an ``unread`` bulk
    store with which a thread ends.

    ``clock`` has the counts before it. ``number`` is the count of arrivals of an ``init`` and of a ``bar``, the parity
    of a ``wait``, the bytes of a ``copy``, the arrivals of an ``arrive``, the bytes, more than 0, that one is
    to ``announce``.
    """

    kind: str
    statement: Statement
    path: Predicate
    clock: ThreadCounts = NO_COUNTS
    ring: Ring | None = None
    base: str = ""
    offset: Term = field(default_factory=lambda: term(0))
    number: Number | None = None
    rounds: tuple[Term, ...] = ()

    @property
    def at(self) -> Ring:
        """The ring, of an event that has one."""
        assert self.ring is not None
        return self.ring


@dataclass(frozen=True)
class Role:
    """Threads of a block that do the same, by their numbers, and the barriers of the kernel.

    ``rings`` has the ring of each statement that uses an mbarrier; ``bars`` those of barriers of threads, by their
    number, ``groups`` those of products by the number of the warp group, ``warps`` those of ``bar.warp.sync`` by the
    number of a warp whose lanes have several roles. ``condition`` holds for the threads. Without
    ``members`` the barriers are yet to be found.
    """

    rings: Mapping[int, Ring] = field(default_factory=dict)
    bars: Mapping[int, Ring] = field(default_factory=dict)
    bar_statements: frozenset[int] = frozenset()
    groups: Mapping[int, Ring] = field(default_factory=dict)
    product_statements: frozenset[int] = frozenset()
    warps: Mapping[int, Ring] = field(default_factory=dict)
    warp_statements: frozenset[int] = frozenset()
    members: frozenset[int] | None = None
    condition: Predicate = TRUE
    number: int = -1

    @property
    def known(self) -> bool:
        """True if the barriers are known."""
        return self.members is not None

    @property
    def group(self) -> Ring | None:
        """The ring of products of the threads' warp group."""
        return self.groups.get(min(self.members) // GROUP) if self.members else None

    @property
    def warp(self) -> Ring | None:
        """The ring of the threads' warp, if they are of one, and others of it have another role."""
        warps = {one // 32 for one in self.members or ()}
        return self.warps.get(warps.pop()) if len(warps) == 1 else None

    def all_rings(self) -> list[Ring]:
        """Return each ring once."""
        several = (self.rings, self.bars, self.groups, self.warps)
        return list(dict.fromkeys(one for rings in several for one in rings.values()))

    def watched(self) -> Iterator[tuple[str, frozenset[int]]]:
        """Yield the counts, and the statements that change each."""
        for ring in self.all_rings():
            own = frozenset(start for start, one in self.rings.items() if one == ring)
            for name in ring.counts():
                if ring.is_bar:
                    yield name, self.bar_statements | self.warp_statements
                else:
                    yield name, self.product_statements if ring.is_group else own

    def of(self, members: frozenset[int], condition: Predicate, number: int) -> Role:
        """Return the role of some of the threads."""
        return replace(self, members=members, condition=condition, number=number)
