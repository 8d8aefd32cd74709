"""``cp.async``: copies that last from their issue until their thread waits for their group."""

from __future__ import annotations

from workbench.proof.access import AccessMode
from workbench.proof.bulk import bulk_step
from workbench.proof.conditions import FALSE, TRUE, Predicate, both, choice, negation, zero
from workbench.proof.memory import accesses
from workbench.proof.state import COPIES, State
from workbench.proof.terms import Term
from workbench.proof.thread import Thread
from workbench.proof.unknown import Unknown
from workbench.ptx.parse import Statement, parse_number

_READ = AccessMode(writes=False, copy=True, space="global")
_WRITE = AccessMode(writes=True, copy=True, space="shared")


def copy_step(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    """Execute a ``cp.async``, a commit or a wait. Raises Unknown for what is not modelled."""
    parts = statement.opcode.split(".")
    if "bulk" in parts:
        return bulk_step(thread, statement, operands, state, guard)
    if parts[1] != "async" or {"mbarrier", "reduce"} & set(parts):
        raise Unknown(statement, f"{statement.opcode} is not modelled")
    if {"commit_group", "wait_group", "wait_all"} & set(parts):
        if guard != TRUE:
            raise Unknown(statement, "a group of copies under a guard")
        if "commit_group" in parts:
            state.queues[COPIES] = state.queues[COPIES].committed()
            return
        queue = state.queues[COPIES].committed() if "wait_all" in parts else state.queues[COPIES]
        state.queues[COPIES], waited = queue.waited(0 if "wait_all" in parts else int(operands[0], 0))
        thread.retire(state, waited)
        return
    width = parse_number(operands[2])
    if not isinstance(width, int):
        raise Unknown(statement, "a copy whose size is not a number")
    reads = guard
    if len(operands) - ("cache_hint" in statement.opcode) > 3:  # the bytes to read, or a predicate that says none
        given = thread.value(statement, operands[3].lstrip("! "), state)
        if isinstance(given, Predicate):
            reads = both(guard, given if operands[3].startswith("!") else negation(given))
        elif isinstance(given, Term):
            reads = both(guard, negation(zero(given)))
    found = []
    if reads != FALSE:
        found += accesses(thread, statement, operands[1], width, state, reads, _READ)
    source = (choice(reads, found[0].offset + 1 if found else 0, 0),) if len(found) < 2 else ()  # 0 is for zeros
    found += accesses(thread, statement, operands[0], width, state, guard, _WRITE._replace(values=source))
    state.queues[COPIES] = state.queues[COPIES].with_open(tuple((TRUE, one) for one in found))
