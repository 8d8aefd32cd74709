"""Bulk copies, of bytes and of boxes of tensors: loads that an mbarrier counts, and stores in groups."""

from __future__ import annotations

import re
from dataclasses import replace

from workbench.proof.access import AccessMode
from workbench.proof.barriers import count, event, use_mbarrier
from workbench.proof.clocks import COPIED, MADE, Ring
from workbench.proof.conditions import TRUE, Predicate, at_most, below, both
from workbench.proof.made_maps import BoxOfMap, made_box
from workbench.proof.maps import TensorMapArgument
from workbench.proof.memory import accesses, accesses_at, is_pointer
from workbench.proof.state import STORES, State
from workbench.proof.terms import Term, term
from workbench.proof.thread import Thread
from workbench.proof.unknown import Unknown
from workbench.ptx.instruction import split_operands
from workbench.ptx.parse import Statement

_NOT_MODELLED = {
    "multicast::cluster", "cta_group::2", "prefetch", "im2col", "im2col::w",
    "im2col::w::128", "tile::gather4", "tile::scatter4", "im2col_no_offs",
}  # fmt: skip
_BOX = re.compile(r"\[\s*([%\w$]+)\s*,\s*\{(.*)\}\s*\]")
_TILE_UNIT = 128
"""Bytes of which the address of a box in shared memory has to be a multiple."""


def bulk_step(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    """Execute a bulk copy, or what commits or waits for bulk stores. Raises Unknown for what is not modelled."""
    parts = statement.opcode.split(".")
    if {"commit_group", "wait_group"} & set(parts):
        return _group(thread, statement, operands, state, guard)
    spaces = [one.partition("::")[0] for one in parts if one.partition("::")[0] in ("shared", "global")]
    loads = spaces == ["shared", "global"]
    if "reduce" in parts or _NOT_MODELLED & set(parts) or (not loads and spaces != ["global", "shared"]):
        raise Unknown(statement, f"{statement.opcode} is not modelled")
    if not loads and "bulk_group" not in parts:
        raise Unknown(statement, f"{statement.opcode} is not modelled")
    to, source, *others = operands
    outside, inside = (source, to) if loads else (to, source)
    width = align = 0
    if "tensor" not in parts:
        given = thread.value(statement, others.pop(0), state)
        if not isinstance(given, Term) or not given.constant or given.constant % 16:
            raise Unknown(statement, "a bulk copy whose size is not a number, a multiple of 16")
        width = given.constant
    thread.release(state)
    landing = landing_of(thread, statement, state) if loads else None
    copied = AccessMode(writes=not loads, copy=True, proxy=True, landing=landing)
    if "tensor" in parts:
        box = _box(thread, statement, outside, state, guard, copied)
        if box is None:
            if loads:
                event(thread, "copy", statement, others[0], state, guard, None)
            return None
        width, align = box.box_bytes, _TILE_UNIT
        mode = copied._replace(clipped=box.clipped, align=box.element)
        found = accesses_at(thread, statement, box.places, box.element, state, guard, mode)
    else:
        found = accesses(thread, statement, outside, width, state, guard, copied._replace(space="global"))
    read = copied._replace(writes=loads, align=align, space="shared")
    found += accesses(thread, statement, inside, width, state, guard, read)
    if not loads:
        state.queues[STORES] = state.queues[STORES].with_open(tuple((TRUE, one) for one in found))
        return None
    barrier = others[0]
    use_mbarrier(thread, statement, barrier, state, guard, copied=copied)
    event(thread, "copy", statement, barrier, state, guard, term(width))
    count(thread, statement, state, COPIED, term(width), guard)
    return None


def _group(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    """Commit or wait for bulk stores. ``wait_group.read`` waits for what they read; their writes then last for ever."""
    queue = state.queues[STORES]
    if guard != TRUE:
        if thread.role.known:
            raise Unknown(statement, "a group of bulk stores under a guard")
        return
    if "commit_group" in statement.opcode:
        state.queues[STORES] = queue.committed()
        return
    state.queues[STORES], waited = queue.waited(int(operands[0], 0))
    if ".read" in statement.opcode:
        for when, one in (one for group in waited for one in group if one[1].writes):
            thread.record(replace(one, path=both(state.path, one.path, when)), ended=True)
        waited = tuple(tuple(one for one in group if not one[1].writes) for group in waited)
    thread.retire(state, waited)


def _box(
    thread: Thread, statement: Statement, operand: str, state: State, guard: Predicate, mode: AccessMode
) -> BoxOfMap | None:  # fmt: skip
    """Return the box of a copy: that of an argument, or of a map that the kernel makes. None before roles are known."""
    found = _BOX.fullmatch(operand.strip())
    address = thread.value(statement, found[1], state) if found is not None else None
    atom = address.atom if isinstance(address, Term) else None
    mapped = None if atom is None else thread.specification.maps.get(atom.name)
    coordinates = [] if found is None else split_operands(found[2])  # the innermost dimension comes first
    begins = []
    for axis, place in enumerate(coordinates):
        value = thread.value(statement, place, state)
        begin = thread.integer(statement, value, True, 32, state) if isinstance(value, Term) else None
        begins.append(thread.fresh(statement, f"place{axis}", -(1 << 31), (1 << 31) - 1) if begin is None else begin)
    if mapped is not None:
        if len(begins) != len(mapped.box):
            raise Unknown(statement, f"a map of {len(mapped.box)} dimensions, and {len(begins)} coordinates")
        return _argument_box(thread, statement, mapped, begins[::-1])
    if isinstance(address, Term) and is_pointer(address):
        made = made_box(thread, statement, address, begins, state, guard, mode) if thread.role.known else None
        if made is not None or not thread.role.known:
            return made
    raise Unknown(
        statement, 'a tensor map that is no argument: give it in args, as "TensorMap(float16[m, k], [64, 64])"'
    )


def _argument_box(
    thread: Thread, statement: Statement, mapped: TensorMapArgument, begins: list[Term]
) -> BoxOfMap:  # fmt: skip
    """Return any one element of a box that is in the tensor of an argument."""
    inside, offset = TRUE, term(0)
    for axis, (begin, extent, size) in enumerate(zip(begins, mapped.box, mapped.tensor.shape, strict=True)):
        at = begin + thread.fresh(statement, f"box{axis}", 0, extent - 1)
        inside = both(inside, at_most(0, at), below(at, size))
        offset = offset * size + at
    element = mapped.tensor.element
    return BoxOfMap([(inside, mapped.tensor.name, offset * element)], element, mapped.box_bytes, True)


def landing_of(thread: Thread, statement: Statement, state: State) -> tuple[Ring, Term] | None:
    """Return the item of a ring with which a copy lands: that of the thread's latest arrival."""
    ring = thread.role.rings.get(statement.start)
    made = None if ring is None else state.registers.get(ring.count(MADE))
    return (ring, made - 1) if ring is not None and isinstance(made, Term) else None
