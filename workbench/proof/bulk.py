"""Bulk copies: loads that an mbarrier counts."""

from __future__ import annotations

from workbench.proof.access import AccessMode
from workbench.proof.barriers import count, event, use_mbarrier
from workbench.proof.clocks import COPIED, MADE, Ring
from workbench.proof.conditions import Predicate
from workbench.proof.memory import accesses
from workbench.proof.state import State
from workbench.proof.terms import Term
from workbench.proof.thread import Thread
from workbench.proof.unknown import Unknown
from workbench.ptx.parse import Statement

_NOT_MODELLED = {"multicast::cluster", "cta_group::2", "tensor", "prefetch", "commit_group", "wait_group"}


def bulk_step(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    """Execute a bulk copy. Raises Unknown for those that are not modelled."""
    parts = statement.opcode.split(".")
    spaces = [one.partition("::")[0] for one in parts if one.partition("::")[0] in ("shared", "global")]
    if "reduce" in parts or _NOT_MODELLED & set(parts) or spaces != ["shared", "global"]:
        raise Unknown(statement, f"{statement.opcode} is not modelled")
    to, source, size, barrier = operands[:4]
    width = thread.value(statement, size, state)
    if not isinstance(width, Term) or not width.constant or width.constant % 16:
        raise Unknown(statement, "a bulk copy whose size is not a number, a multiple of 16")
    _load(thread, statement, (to, source, barrier), width, state, guard)


def _load(
    thread: Thread, statement: Statement, operands: tuple[str, str, str], width: Term, state: State, guard: Predicate
) -> None:  # fmt: skip
    to, source, barrier = operands
    bytes_copied = width.constant
    assert bytes_copied is not None
    thread.release(state)
    landing = landing_of(thread, statement, state)
    copied = AccessMode(writes=False, copy=True, proxy=True, landing=landing)
    accesses(thread, statement, source, bytes_copied, state, guard, copied)
    accesses(thread, statement, to, bytes_copied, state, guard, copied._replace(writes=True))
    use_mbarrier(thread, statement, barrier, state, guard, copied=copied)
    event(thread, "copy", statement, barrier, state, guard, width)
    count(thread, statement, state, COPIED, width, guard)


def landing_of(thread: Thread, statement: Statement, state: State) -> tuple[Ring, Term] | None:
    """Return the item of a ring with which a copy lands: that of the thread's latest arrival."""
    ring = thread.role.rings.get(statement.start)
    made = None if ring is None else state.registers.get(ring.count(MADE))
    return (ring, made - 1) if ring is not None and isinstance(made, Term) else None
