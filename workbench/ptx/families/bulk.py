"""cp.async.bulk and its tensor forms, their groups, and tensormap."""

from __future__ import annotations

from workbench.ptx.families.memory import place
from workbench.ptx.families.refused import IM2COL, REDUCED_IN_SHARED
from workbench.ptx.instruction import Instruction, Plan, expect, opcode, source, vector
from workbench.ptx.machine import ADDRESS, ASYNC_PROXY, FLAGS, STRONG, core
from workbench.ptx.operands import Operand, Refused, Symbols
from workbench.ptx.tensor_map import ELEMENTS

_BULK, _FLAGS = core.Bulk, core.BulkFlags
_OPERATIONS = {one.name: one for one in core.Reduction if one != core.Reduction.none}
_TYPES = {name: number for number, name in enumerate(ELEMENTS)}
_TYPES |= {"b32": _TYPES["u32"], "b64": _TYPES["u64"]}
_REDUCED = {
    "add": {"u32", "s32", "u64", "f16", "bf16", "f32", "f64"},
    "min": {"u32", "s32", "u64", "s64", "f16", "bf16"},
    "max": {"u32", "s32", "u64", "s64", "f16", "bf16"},
    "inc": {"u32"}, "dec": {"u32"}, "and": {"b32", "b64"}, "or": {"b32", "b64"}, "xor": {"b32", "b64"},
}  # fmt: skip
_ROWS = {"tile::gather4": "shared", "tile::scatter4": "global"}  # where four rows of a coordinate each go


def bulk(parts: list[str]) -> Plan:
    """Plan ``cp{.reduce}.async.bulk{.tensor.Nd}.destination.source{...}``, prefetches and groups."""
    reduces = parts[1] == "reduce"
    rest = parts[4 if reduces else 3 :]
    if rest[0] in ("commit_group", "wait_group"):
        return _group(rest)
    dimensions = 0
    if rest[0] == "prefetch":
        return _nothing
    if rest[0] == "tensor":
        dimensions, rest = int(rest[1][0]), rest[2:]
        if any(part.startswith("im2col") for part in rest):
            raise Refused(IM2COL)
    rows = [part for part in rest if part in _ROWS]
    # Other words may stand before the state spaces.
    spaces = [part.split("::")[0] for part in rest if part.split("::")[0] in ("shared", "global")]
    if len(spaces) != 2:
        raise Refused("the machine does not support this copy")
    to, from_ = spaces
    if (to, from_) == ("shared", "shared") and reduces:
        raise Refused(REDUCED_IN_SHARED)
    if (to, from_) not in (("shared", "global"), ("global", "shared"), ("shared", "shared")):
        raise Refused("the machine does not support this copy")
    if rows and (dimensions != 2 or reduces or rows != [mode for mode, end in _ROWS.items() if end == to]):
        allowed = "for tensors of 2 dimensions: .tile::gather4 to load, .tile::scatter4 to store"
        raise Refused(f".{rows[0]}, which PTX only has {allowed}")
    is_load, hinted, multicast = to == "shared", "L2::cache_hint" in rest, "multicast::cluster" in rest
    masked = "cp_mask" in rest
    if masked and (dimensions or reduces or is_load):
        raise Refused(".cp_mask, which PTX only has for bulk copies to global memory")
    operation, type_name = 0, 0
    if reduces:
        name = next((part for part in rest if part in _OPERATIONS), None)
        if name is None:
            raise Refused("the machine does not support this reduction")
        operation = _OPERATIONS[name]
        if not dimensions:  # a tensor map has the type of its elements
            if rest[-1] not in _REDUCED[name]:
                allowed = ", ".join(sorted(_REDUCED[name]))
                raise Refused(f"a bulk reduction .{name} of .{rest[-1]}, which takes {allowed}")
            type_name = _TYPES[rest[-1]]
    row = opcode(f"cp.async.bulk.{'tensor.' if dimensions else ''}{to}.{from_}")
    pair = _FLAGS.pair if "cta_group::2" in rest else 0
    by_rows = _FLAGS.rows if rows else 0
    needed = 5 if rows else dimensions  # coordinates

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        operands = list(operands)
        slots: dict[int, Operand] = {}
        if masked:
            slots[_BULK.bytes] = source(symbols, operands.pop(), "b16", 2)
        if hinted:
            operands.pop()
        raw = {_BULK.reduction: operation, _BULK.type: type_name, _BULK.dimensions: dimensions}
        if multicast:
            slots[_BULK.multicast] = source(symbols, operands.pop(), "b16", 2)
        size = "" if dimensions else operands.pop(2)
        expect(operands, 3 if is_load else 2)
        here, there = (operands[0], operands[1]) if is_load else (operands[1], operands[0])
        if dimensions:
            there, coordinates = _map_and_coordinates(there)
            if len(coordinates) != needed:
                raise Refused(f"{len(coordinates)} coordinates, where {needed} belong")
            for i, token in enumerate(coordinates):
                slots[_BULK.coordinate + i] = source(symbols, token, "s32", 4)
        else:
            slots[_BULK.size] = source(symbols, size, "u32", 4)
        shared, elsewhere = symbols.address(here), symbols.address(there)
        place(symbols, shared, slots, _BULK.shared, "shared")
        between = to == from_
        width = place(symbols, elsewhere, slots, ADDRESS, "shared" if between else "global")
        flags = (
            ASYNC_PROXY
            | (width if between else 0)
            | pair
            | by_rows
            | (STRONG if reduces else 0)
            | (_FLAGS.shared_wide if slots[_BULK.shared].width == 8 else 0)
        )
        raw |= {_BULK.shared_offset: shared.offset, _BULK.global_offset: elsewhere.offset, _BULK.mbarrier_offset: 0}
        if is_load:
            barrier = symbols.address(operands[2])
            place(symbols, barrier, slots, _BULK.mbarrier, "shared")
            flags |= _FLAGS.barrier_wide if slots[_BULK.mbarrier].width == 8 else 0
            raw[_BULK.mbarrier_offset] = barrier.offset
        raw[FLAGS] = flags
        return Instruction(row, slots, (), raw, 0, 1, 16)

    return bind


def _map_and_coordinates(token: str) -> tuple[str, list[str]]:
    """Split ``[map, {c0, c1}]`` into ``[map]`` and the coordinates."""
    where, brace, coordinates = token[1:-1].partition("{")
    if not brace:
        raise Refused("a tensor copy without coordinates")
    return f"[{where.strip().rstrip(',').strip()}]", vector("{" + coordinates.strip())


def _group(rest: list[str]) -> Plan:
    row, waits = opcode("cp.async.bulk." + ".".join(rest)), rest[0] == "wait_group"

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        return Instruction(row, {}, imm=int(operands[0], 0) if waits else 0)

    return bind


def _nothing(symbols: Symbols, operands: list[str]) -> Instruction:
    """Bind a prefetch, which changes no value."""
    return Instruction(opcode("nop"), {})


_MAP = {name: (number, ordinals) for number, (name, ordinals) in enumerate(core.TENSOR_MAP_FIELDS)}


def tensormap(parts: list[str]) -> Plan:
    """Plan ``tensormap.replace.tile.field.space.b1024.type`` and ``tensormap.cp_fenceproxy``."""
    if parts[1] == "cp_fenceproxy":
        return _copy_map
    if parts[1:3] != ["replace", "tile"] or parts[3] not in _MAP:
        raise Refused("the machine does not support this tensormap")
    field, space, type_name = parts[3], parts[4].split("::")[0], parts[-1]
    row, size = opcode(f"tensormap.replace.{space}.{type_name}"), 8 if type_name == "b64" else 4
    number, ordinals = _MAP[field]

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3 if ordinals > 1 else 2)
        ordinal = int(operands[1], 0) if ordinals > 1 else 0
        if not 0 <= ordinal < ordinals:
            raise Refused(f"dimension {ordinal} of a tensor map, which has {ordinals}")
        slots: dict[int, Operand] = {core.MapChange.value: source(symbols, operands[-1], type_name, size)}
        address = symbols.address(operands[0])
        flags = place(symbols, address, slots, ADDRESS, space)
        raw = {core.MapChange.field: number, core.MapChange.ordinal: ordinal, FLAGS: flags}
        return Instruction(row, slots, (), raw, address.offset, 1, 64)

    return bind


def _copy_map(symbols: Symbols, operands: list[str]) -> Instruction:
    expect(operands, 3)
    if int(operands[2], 0) != 128:
        raise Refused(f"a tensor map of {operands[2]} bytes, which has 128")
    to, from_ = symbols.address(operands[0]), symbols.address(operands[1])
    slots: dict[int, Operand] = {}
    raw = {core.MapCopy.offset: from_.offset}
    raw[FLAGS] = place(symbols, to, slots, ADDRESS, "global")
    place(symbols, from_, slots, core.MapCopy.source, "shared")
    raw[core.MapCopy.wide] = int(slots[core.MapCopy.source].width == 8)
    return Instruction(opcode("tensormap.cp_fenceproxy"), slots, (), raw, to.offset, 1, 64)


FAMILY = {"tensormap": tensormap}
