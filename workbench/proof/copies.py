"""``cp.async``: copies that last from their issue until their thread waits for their group."""

from __future__ import annotations

from dataclasses import replace

from workbench.proof.access import AccessMode, Brought
from workbench.proof.bulk import bulk_step
from workbench.proof.conditions import FALSE, TRUE, Predicate, both, choice, negation, zero
from workbench.proof.memory import accesses
from workbench.proof.state import COPIES, State
from workbench.proof.terms import Term, term
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
        state.landed = state.landed.more(waited)
        thread.retire(state, waited)
        return
    width = parse_number(operands[2])
    if not isinstance(width, int):
        raise Unknown(statement, "a copy whose size is not a number")
    count: Term | None = term(width)
    if len(operands) - ("cache_hint" in statement.opcode) > 3:  # the bytes to read, or a predicate that says none
        given = thread.value(statement, operands[3].lstrip("! "), state)
        if isinstance(given, Predicate):
            given = choice(given if operands[3].startswith("!") else negation(given), width, 0)
        count = given
    reads = guard if count is None else both(guard, negation(zero(count)))
    read = accesses(thread, statement, operands[1], width, state, reads, _READ) if reads != FALSE else []
    source = (choice(reads, read[0].offset + 1 if read else 0, 0),) if len(read) < 2 else ()  # 0 is for zeros
    found = accesses(thread, statement, operands[0], width, state, guard, _WRITE._replace(values=source))
    if len(read) == 1 and thread.constant(read[0]):
        if thread.specification.tensors[read[0].base].is_whole and count is not None and _all_or_none(count, width):
            found = [replace(one, brought=Brought(read[0], count)) for one in found]
    else:
        found += read
    state.queues[COPIES] = state.queues[COPIES].with_open(tuple((TRUE, one) for one in found))


def _all_or_none(count: Term, width: int) -> bool:
    """Return True if a copy reads all of its bytes or none of them."""
    return count.within(0, width) and all(factor % width == 0 for factor in count.parts.values())
