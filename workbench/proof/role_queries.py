"""The questions about kernels whose threads have roles: races between them, and that every wait ends."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.proof.access import ThreadAccess
from workbench.proof.indices import thread_index
from workbench.proof.obligations import Obligations
from workbench.proof.order import HappensBefore
from workbench.proof.queries import Failure, Queries, differ, does, never_overlap
from workbench.proof.roles import Roles, is_product
from workbench.proof.solver import Question
from workbench.proof.solver_texts import all_of
from workbench.proof.unknown import line_of
from workbench.ptx.program import Program


class RoleQueries(Queries):
    """The questions about the executions of all roles."""

    def __init__(self, roles: Roles, ptx: str):
        super().__init__(roles.whole)
        self.roles, self.ptx = roles, ptx
        self.order = HappensBefore(roles)
        self.obligations = Obligations(roles, self.order)

    def failures(self) -> Iterator[Failure]:
        """Yield what could not be proved."""
        yield from self._registers()
        yield from self.obligations.failures(self.question)
        yield from self._spans()
        yield from super().failures()

    def _spans(self) -> Iterator[Failure]:
        """Yield tensor maps that another thread may change between their making and a use."""
        spans = [(begun, ended) for run in self.roles.executions for begun, ended in run.spans]
        for begun, ended in dict.fromkeys(spans):
            for one in self.roles.whole.accesses:
                mine = one.clock.role == begun.clock.role
                if mine or one.base != begun.base or not one.writes or never_overlap(one, begun):
                    continue
                question = self.question()
                for path, tag in ((begun.path, "1"), (ended.path, "1"), (one.path, "2")):
                    question.suppose(path, tag)
                distance = question.value(question.linear(begun.offset, "1", one.offset, "2"))
                answer = question.ask([
                    f"(< {distance} {one.width})", f"(> (+ {distance} {begun.width}) 0)",
                    f"(not {self.order.before(question, one, '2', begun, '1')})",
                    f"(not {self.order.before(question, ended, '1', one, '2')})",
                ])  # fmt: skip
                if not answer.contradiction:
                    text = f"{does(one)}, where {line_of(begun.statement)} makes a tensor map"
                    yield Failure("races", text, (one.statement, begun.statement), dict(answer.values))
                    return

    def _registers(self) -> Iterator[Failure]:
        """Yield registers of products that are touched too early, on any way through the code: the machine's check."""
        if not any(map(is_product, self.roles.whole.accesses)):
            return
        decoded = Program.from_text(self.ptx)[self.roles.whole.entry.name].decoded
        for kind, pc, _ in decoded.misused:
            statement = decoded.code[decoded.written_at(pc)].statement
            assert statement is not None  # a check of what is written
            answer = self.question().ask([])
            yield Failure("races", f"{line_of(statement)}: {kind}", (statement,), dict(answer.values))

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
