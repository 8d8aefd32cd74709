"""The generic thread, as the rules for single instructions see it."""

from __future__ import annotations

from typing import Protocol

from workbench.proof.access import Hazard, Pending, ThreadAccess
from workbench.proof.clocks import BarrierUse, Role, ThreadCounts
from workbench.proof.conditions import Predicate
from workbench.proof.graph import Graph
from workbench.proof.specification import Specification
from workbench.proof.state import Landed, State, Value
from workbench.proof.terms import Term
from workbench.ptx.parse import PtxEntry, Statement


class Thread(Protocol):
    """Interface of `workbench.proof.execution.Execution` for the rules of instructions and loops.

    ``exact`` is False in a trial run of a loop, in which nothing is recorded and values are taken not to wrap.
    ``rounds`` are those of the loops around the statement, ``role`` the threads and barriers that the proof looks at.
    """

    entry: PtxEntry
    graph: Graph
    specification: Specification
    exact: bool
    rounds: tuple[Term, ...]
    role: Role

    def value(self, statement: Statement, operand: str, state: State) -> Value:
        """Return a register, a special register, a number or the address of a variable."""

    def assign(self, statement: Statement, state: State, register: str, value: Value, guard: Predicate) -> None:
        """Give a register a value, where the guard holds."""

    def integer(self, statement: Statement, value: Term, signed: bool, width: int, state: State) -> Term:
        """Return the integer that an instruction reads from the bits of a value."""

    def holds(self, path: Predicate, goal: Predicate) -> bool:
        """Return True if a condition can be proved for the threads of a path."""

    def fresh(self, statement: Statement, name: str, low: int, high: int) -> Term:
        """Return a value that may be anything."""

    def record(self, access: ThreadAccess, *, ended: bool = False) -> None:
        """Keep an access, in an exact run; of a copy in flight only if its thread has ``ended``, or never waits."""

    def endanger(self, hazard: Hazard) -> None:
        """Keep a hazard of a copy, in an exact run."""

    @property
    def inits(self) -> set[int]:
        """Return the statements that have initialised mbarriers."""

    def note(self, event: BarrierUse) -> None:
        """Keep what a thread does at a barrier, in an exact run."""

    def retire(self, state: State, groups: tuple[Pending, ...]) -> None:
        """Note that the thread has waited for groups of copies."""

    def clock(self, state: State) -> ThreadCounts:
        """Return the thread's counts at barriers."""

    def times(self, state: State, *, copy: bool) -> tuple[ThreadCounts, ThreadCounts | None]:
        """Return the counts when an access begins and when it is over; None for a copy."""

    def role_decides(self, condition: Predicate) -> Predicate:
        """Return a condition without what the numbers of the role's threads decide."""

    def span(self, span: tuple[ThreadAccess, ThreadAccess]) -> None:
        """Note two accesses between which no other thread may write the bytes of the first, in an exact run."""

    def release(self, state: State) -> None:
        """Note that what the thread has written without a fence may now be reached by others' copies and products."""

    def constant(self, access: ThreadAccess) -> bool:
        """Return True if the memory that an access reads does not change."""

    def keep(self, access: ThreadAccess, values: tuple[Value, ...]) -> None:
        """Keep the values of the elements that an access stores."""

    def shared_value(
        self, access: ThreadAccess, shift: int, size: int, limits: tuple[int, int], landed: Landed
    ) -> Value:  # fmt: skip
        """Return what a load finds in shared memory, within the limits of its type."""
