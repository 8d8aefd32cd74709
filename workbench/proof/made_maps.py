"""Tensor maps that a kernel makes: ``tensormap.replace`` in shared memory, then a copy of 128 bytes to global memory.

One thread fills in all fields, its warp copies the map out, and the thread uses it. So the fields are followed in the
state of that thread alone; that no other thread writes the bytes meanwhile is asked in the end: see `MapLifetime`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from workbench.base.element_types import PTX_BYTES
from workbench.proof.access import AccessMode, ThreadAccess
from workbench.proof.clocks import BarrierUse
from workbench.proof.conditions import FALSE, TRUE, Predicate, at_most, below, between, both, zero
from workbench.proof.indices import flat_index
from workbench.proof.maps import MAP_BYTES
from workbench.proof.memory import Place, accesses, accesses_at, address_of, arrays_of, space_in
from workbench.proof.state import State
from workbench.proof.terms import Term, remainder, term
from workbench.proof.thread import Thread
from workbench.proof.unknown import Unknown
from workbench.ptx.parse import Statement, parse_number
from workbench.ptx.tensor_map import ELEMENTS, MOST_BOX

_MODE = AccessMode(writes=True, align=MAP_BYTES)
_ROW_UNIT = 16
_SINGLE = "a tensor map that is made by several threads is not modelled"


@dataclass(frozen=True)
class MadeMap:
    """A map in memory: the values of its fields, by name and dimension. ``begun`` is the access that wrote the first.

    ``ready`` marks one in global memory that its thread has acquired.
    """

    begun: ThreadAccess
    fields: Mapping[tuple[str, int], Term] = field(default_factory=dict)
    ready: bool = False


class MapLifetime(NamedTuple):
    """Two accesses of a thread between which nobody else may write the bytes of the first."""

    begun: ThreadAccess
    ended: ThreadAccess


class BoxOfMap(NamedTuple):
    """The part of a tensor that a copy moves: any one element of it, its bytes and those of the box."""

    places: list[Place]
    element: int
    box_bytes: int
    clipped: bool


def map_step(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    """Execute an instruction of ``tensormap``, or the fence that acquires a map. Raises Unknown."""
    if not thread.role.known:
        thread.note(BarrierUse("map", statement, both(state.path, guard)))
        return
    parts = statement.opcode.split(".")
    if parts[0] == "fence":
        _acquire(thread, statement, operands, state, guard)
    elif parts[1] == "replace":
        _replace(thread, statement, operands, state, guard)
    elif parts[1] == "cp_fenceproxy":
        _copy_out(thread, statement, operands, state, guard)
    else:
        raise Unknown(statement, f"{statement.opcode} is not modelled")


def _key(thread: Thread, statement: Statement, operand: str, state: State) -> tuple[str, Term]:
    several = list(arrays_of(statement, address_of(thread, statement, operand, state)))
    if len(several) != 1:
        raise Unknown(statement, "a tensor map in one of several arrays")
    return several[0][1:]


def _replace(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    if guard != TRUE or len(thread.role.members or ()) != 1 or ".tile." not in statement.opcode:
        raise Unknown(statement, _SINGLE)
    name = statement.opcode.split(".")[3]
    key = _key(thread, statement, operands[0], state)
    if not key[0].startswith("%"):
        raise Unknown(statement, "a tensor map that is changed in global memory is not modelled")
    held = state.maps.get(key)
    mode = _MODE._replace(space=space_in(statement))
    (found,) = accesses(thread, statement, operands[0], MAP_BYTES, state, guard, mode)
    value, axis = thread.value(statement, operands[-1], state), parse_number(operands[1]) if len(operands) > 2 else 0
    if not isinstance(value, Term) or not isinstance(axis, int):
        raise Unknown(statement, "a field of a tensor map that is not known")
    if name == "global_dim":
        value = thread.integer(statement, value, False, 32, state)
    known = MadeMap(found) if held is None else held
    state.maps[key] = replace(known, fields={**known.fields, (name, axis): value})


def _copy_out(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    """Copy a map to global memory: the first lane stands for its warp, as where one is elected."""
    first = thread.role_decides(both(guard, zero(remainder(flat_index(thread.specification), 32))))
    if first == FALSE:
        return
    target, source = (_key(thread, statement, one, state) for one in operands[:2])
    if parse_number(operands[2]) != MAP_BYTES:
        raise Unknown(statement, "a copy of other than 128 bytes of a tensor map")
    held = state.maps.get(source)
    reading, writing = _MODE._replace(writes=False, space="shared"), _MODE._replace(space="global")
    read = accesses(thread, statement, operands[1], MAP_BYTES, state, first, reading)
    written = accesses(thread, statement, operands[0], MAP_BYTES, state, first, writing)
    if held is not None and first == TRUE and len(thread.role.members or ()) == 1:
        thread.span(MapLifetime(held.begun, read[0]))
        state.maps[target] = MadeMap(written[0], held.fields)


def _acquire(thread: Thread, statement: Statement, operands: list[str], state: State, guard: Predicate) -> None:
    key = _key(thread, statement, operands[0], state)
    held = state.maps.get(key)
    if guard == TRUE and "acquire" in statement.opcode and held is not None:
        state.maps[key] = replace(held, ready=True)


def made_box(
    thread: Thread, statement: Statement, address: Term, coordinates: list[Term], state: State, guard: Predicate,
    mode: AccessMode,
) -> BoxOfMap | None:  # fmt: skip
    """Return the box of a copy by a map that the thread has made; None for an address where there is none.

    ``coordinates`` are the first element's, the innermost first. Raises Unknown for a map that is not valid.
    """
    several = list(arrays_of(statement, address))
    held = state.maps.get(several[0][1:]) if len(several) == 1 else None
    if held is None:
        return None
    if not held.ready:
        raise Unknown(statement, "a tensor map that its thread has not acquired: fence.proxy.tensormap")
    (read, *_) = accesses_at(
        thread, statement, several, MAP_BYTES, state, guard, mode._replace(writes=False, align=MAP_BYTES)
    )
    thread.span(MapLifetime(held.begun, read))
    return _box_of(thread, statement, held.fields, coordinates, state)


def _box_of(
    thread: Thread, statement: Statement, fields: Mapping[tuple[str, int], Term], coordinates: list[Term], state: State
) -> BoxOfMap:
    def number(name: str, axis: int = 0) -> int:
        found = fields.get((name, axis), term(-1)).constant
        if found is None or found < 0:
            raise Unknown(statement, f"a tensor map whose {name} is not a number")
        return found

    rank = number("rank") + 1
    kind = number("elemtype")
    element = PTX_BYTES.get(ELEMENTS[kind].partition(".")[0].replace("tf32", "f32"), 0) if kind < len(ELEMENTS) else 0
    extents = [number("box_dim", axis) for axis in range(rank)]
    steps = {number("element_stride", axis) for axis in range(rank)}
    if rank != len(coordinates) or steps != {1} or number("interleave_layout") or not element:
        raise Unknown(statement, "a tensor map of another rank, with steps or interleaved, is not modelled")
    if any(not 1 <= one <= MOST_BOX for one in extents) or extents[0] * element % _ROW_UNIT:
        raise Unknown(statement, "a tensor map whose box is not valid")
    sizes = [fields.get(("global_dim", axis)) for axis in range(rank)]
    strides = [term(element), *(fields.get(("global_stride", axis)) for axis in range(rank - 1))]
    start = fields.get(("global_address", 0))
    if start is None or None in sizes or None in strides:
        raise Unknown(statement, "a tensor map of which fields are missing")
    ((_, base, offset), *others) = arrays_of(statement, start)
    inside, valid, within = TRUE, zero(remainder(offset, _ROW_UNIT)), offset
    for axis, (begin, extent, size, stride) in enumerate(zip(coordinates, extents, sizes, strides, strict=True)):
        assert size is not None
        assert stride is not None
        at = begin + thread.fresh(statement, f"box{axis}", 0, extent - 1)
        inside = both(inside, at_most(0, at), below(at, size))
        within = within + at * stride
        valid = both(valid, at_most(1, size), between(0, stride, (1 << 40) - 1))
        if axis:
            valid = both(valid, zero(remainder(stride, _ROW_UNIT)))
    if others or (thread.exact and not thread.holds(state.path, valid)):
        raise Unknown(
            statement, "a tensor map whose sizes are below 1, or whose rows may be no multiples of 16 bytes: give facts"
        )
    tensor = thread.specification.tensors.get(base)
    clipped = False
    if tensor is not None and tensor.element == element and not offset.parts:
        whole, rows = tensor.shape[::-1], term(element)
        expected = []
        for size in whole:
            expected.append(rows)
            rows = rows * size
        clipped = list(whole) == sizes and expected == strides
    places = [(inside, base, within)]
    box_bytes = element
    for extent in extents:
        box_bytes *= extent
    return BoxOfMap(places, element, box_bytes, clipped)
