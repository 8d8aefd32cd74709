"""``wgmma``: products of a warp group, which read matrices in shared memory until their group has been waited for.

A product is one operation of four warps: it begins when all of them have issued it, and is over when one of them has
waited for it. So the groups of products are items of a ring of the warp group: a thread arrives with the first product
of a group, and knows by ``wait_group`` which items are over.
"""

from __future__ import annotations

import re

from workbench.proof.access import AccessMode
from workbench.proof.barriers import count
from workbench.proof.clocks import MADE, WAITED, BarrierUse, Ring
from workbench.proof.conditions import TRUE, Predicate
from workbench.proof.descriptors import layout_of, read_by_product
from workbench.proof.memory import accesses_at
from workbench.proof.state import State
from workbench.proof.terms import Term, term
from workbench.proof.thread import Thread
from workbench.proof.unknown import Unknown
from workbench.ptx.parse import Statement

_SHAPE = re.compile(r"m64n(\d+)k\d+")
_ROWS = 64
_READ = AccessMode(writes=False, copy=True, proxy=True, align=16)


def product_step(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    """Execute an instruction of ``wgmma``. Raises Unknown for what is not modelled."""
    parts = statement.opcode.split(".")
    if guard != TRUE:
        raise Unknown(statement, "wgmma under a guard")
    if parts[1] == "commit_group":
        state.multiplying = False
    elif parts[1] == "wait_group":
        _wait(thread, statement, int(operands[0], 0), state)
    elif parts[1] == "mma_async" and "sp" not in parts:
        _multiply(thread, statement, operands, state)
    elif parts[1] != "fence":
        raise Unknown(statement, f"{statement.opcode} is not modelled")


def _wait(thread: Thread, statement: Statement, left: int, state: State) -> None:
    if state.multiplying:
        raise Unknown(statement, "a wait for products before their group is committed")
    ring = thread.role.group
    if ring is None:
        return
    made = state.registers.get(ring.count(MADE))
    if not isinstance(made, Term):
        raise Unknown(statement, "products that match no sum of steps from round to round")
    if thread.exact:
        thread.note(BarrierUse("join", statement, state.path, thread.clock(state), ring, number=made - left - 1,
                               rounds=thread.rounds))  # fmt: skip
    thread.assign(statement, state, ring.count(WAITED), made - left, TRUE)


def _begin(thread: Thread, statement: Statement, state: State) -> tuple[Ring, Term] | None:
    """Begin a group with its first product; return its item of the ring."""
    thread.release(state)
    ring = thread.role.group
    if not state.multiplying:
        state.multiplying = True
        thread.note(BarrierUse("product", statement, state.path, thread.clock(state), ring, rounds=thread.rounds))
        if ring is not None:
            count(thread, statement, state, MADE, term(1), TRUE, ring)
    made = None if ring is None else state.registers.get(ring.count(MADE))
    return (ring, made - 1) if ring is not None and isinstance(made, Term) else None


def _multiply(thread: Thread, statement: Statement, operands: list[str], state: State) -> None:
    for register in thread.graph.registers(operands[0]):
        thread.assign(statement, state, register, None, TRUE)
    read = _READ._replace(landing=_begin(thread, statement, state))
    if not thread.role.known:
        return  # what it reads counts in the execution of each role
    shape = next(found for one in statement.opcode.split(".") if (found := _SHAPE.fullmatch(one)))
    in_registers = operands[1].lstrip().startswith("{")
    scales = operands[4:]  # of the factors; for those of 16 bits then which are transposed
    turned = [one.strip() not in ("0", "0x0") for one in scales[2:]]
    if len(turned) < 2:
        turned = [False, *(turned or [False])]
    for operand, rows, transposed in (
        (operands[1], _ROWS, turned[0]), (operands[2], int(shape[1]), turned[1]),
    )[1 if in_registers else 0 :]:  # fmt: skip
        layout = layout_of(thread, thread.value(statement, operand, state))
        if layout is None:
            if not thread.exact:
                continue
            raise Unknown(statement, "a matrix descriptor whose place in shared memory is not known")
        for offset, width in read_by_product(layout, rows, transposed):
            accesses_at(thread, statement, [(TRUE, layout.base, offset)], width, state, TRUE, read)
