"""The questions about kernels whose threads have roles: races between them, and that every wait ends."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.proof.access import ThreadAccess
from workbench.proof.execution import thread_index
from workbench.proof.obligations import Obligations
from workbench.proof.order import HappensBefore
from workbench.proof.queries import Failure, Queries, differ
from workbench.proof.roles import Roles
from workbench.proof.solver import Question
from workbench.proof.solver_texts import all_of


class RoleQueries(Queries):
    """The questions about the executions of all roles."""

    def __init__(self, roles: Roles):
        super().__init__(roles.whole)
        self.order = HappensBefore(roles)
        self.obligations = Obligations(roles, self.order)

    def failures(self) -> Iterator[Failure]:
        """Yield what could not be proved."""
        yield from self.obligations.failures(self.question)
        yield from super().failures()

    def may_meet(self, one: ThreadAccess, other: ThreadAccess) -> bool:
        """Return False for accesses that are never in one interval between barriers."""
        alike = one.clock.role == other.clock.role and not (one.proxy or other.proxy or one.copy or other.copy)
        return not alike or super().may_meet(one, other)

    def unordered(self, question: Question, one: ThreadAccess, other: ThreadAccess) -> list[str]:
        """Return hypotheses under which two accesses in a block happen in no order."""
        found = [f"(not {self.order.before(question, one, '1', other, '2')})",
                 f"(not {self.order.before(question, other, '2', one, '1')})"]  # fmt: skip
        apart = one.proxy or other.proxy or one.copy or other.copy  # not made by the thread itself
        if not apart:
            if one.clock.role == other.clock.role:
                return [*found, *super().unordered(question, one, other)]
            return [*found, differ(question, [thread_index(self.specification, axis) for axis in range(3)])]
        if one.statement is other.statement and one.writes == other.writes:
            same = [question.term(mine, "1") for mine in one.rounds], [question.term(its, "2") for its in other.rounds]
            equal = [f"(= {mine} {its})" for mine, its in zip(*same, strict=True)]
            found.append(f"(not {all_of([self.order.same_thread(question), *equal])})")
        return found
