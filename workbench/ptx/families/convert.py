"""cvt: conversions between integer widths, between floating point formats, and from one kind to the other."""

from __future__ import annotations

from workbench.base.element_types import PTX_BYTES
from workbench.ptx.families import moves, small_floats
from workbench.ptx.instruction import Instruction, Plan, SinglePlan, destination, elementwise, expect, opcode, source
from workbench.ptx.machine import OPCODES, core
from workbench.ptx.operands import Constant, Refused, Symbols

_ROUNDS = {mode: core.Rounding[mode] for mode in ("rni", "rzi", "rmi", "rpi")}
_INTEGERS = core.IntegerType.__members__
_PACKED = {"s16": 80, "u16": 16, "s8": 72, "u8": 8, "s4": 68, "u4": 4, "s2": 66, "u2": 2}  # bits, 64 for signed


def plan(parts: list[str]) -> Plan:
    """Plan one conversion, with the steps before and after it."""
    if parts[1:3] == ["pack", "sat"]:
        return _pack(parts[3:])
    modifiers = parts[1:-2]
    if "rs" in modifiers or small_floats.TYPES & set(parts[-2:]):
        return small_floats.plan(parts)
    if parts[-1] == parts[-2] and parts[-1] in ("f16", "bf16", "f64") and not modifiers:
        return moves.mov(["mov", f"b{8 * PTX_BYTES[parts[-1]]}"])
    try:
        return _plan(parts)
    except Refused:
        if not {"sat", "ftz"} & set(modifiers):
            raise
    return _in_steps(parts)


def _in_steps(parts: list[str]) -> Plan:
    """Plan a conversion with .ftz or .sat as several steps.

    .ftz of an f32 operand comes before the conversion itself, .ftz of an f32 result and .sat after it.
    """
    to, from_, modifiers = parts[-2], parts[-1], parts[1:-2]
    inner = _plan(["cvt", *(part for part in modifiers if part not in ("sat", "ftz")), to, from_])
    first = opcode("cvt.ftz.f32.f32") if "ftz" in modifiers and from_ == "f32" else None
    if "ftz" in modifiers and "f32" not in (to, from_):
        raise Refused(".ftz in a conversion without f32")
    last = [opcode("cvt.ftz.f32.f32")] if "ftz" in modifiers and to == "f32" else []
    last += [opcode(f"cvt.sat.{to}.{to}")] if "sat" in modifiers else []

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        expect(operands, 2)
        made: list[Instruction] = []
        if first is not None:
            flushed = symbols.temporary(4)
            made.append(elementwise(first, flushed, source(symbols, operands[1], "f32", 4)))
            with symbols.named("flushed", flushed):
                made.append(inner(symbols, [operands[0], "flushed"]))
        else:
            made.append(inner(symbols, operands))
        (target,) = made[-1].destinations
        return made + [elementwise(row, target, target) for row in last]

    return bind


def _pack(types: list[str]) -> Plan:
    wide = types[0] in ("s16", "u16")
    if types[0] not in _PACKED or types[1:] != (["s32"] if wide else ["s32", "b32"]):
        raise Refused("the machine does not support this conversion")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3 if wide else 4)
        target = destination(symbols, operands[0], 4)
        values = [source(symbols, token, "b32", 4) for token in operands[1:]]
        if wide:
            values.append(Constant(4, 0))
        return elementwise(opcode("cvt.pack.sat.b32"), target, *values, imm=_PACKED[types[0]])

    return bind


def _plan(parts: list[str]) -> SinglePlan:
    if len(parts) < 3 or parts[-1] not in PTX_BYTES or parts[-2] not in PTX_BYTES:
        raise Refused("the machine does not support this conversion")
    to, from_, modifiers = parts[-2], parts[-1], parts[1:-2]
    if to in _INTEGERS and from_ in _INTEGERS:
        return _integer(to, from_, modifiers)
    if to in _INTEGERS:
        return _to_integer(to, from_, modifiers)
    if from_ in _INTEGERS:
        # Small integers are exact in f32 and f64, however the result is rounded.
        exact = ("rn", "rz", "rm", "rp") if to in ("f32", "f64") and PTX_BYTES[from_] <= 2 else ("rn",)
        kept = [part for part in modifiers if part not in exact]
        return _lanewise(".".join(["cvt", *kept, to, from_]), to, from_)
    return _floating(to, from_, modifiers)


def _integer(to: str, from_: str, modifiers: list[str]) -> SinglePlan:
    to_size, from_size = PTX_BYTES[to], PTX_BYTES[from_]
    saturating = modifiers == ["sat"]
    if modifiers and not saturating:
        raise Refused("the machine does not support this conversion")
    narrow = to if to_size <= from_size else from_

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        target = destination(symbols, operands[0])
        value = symbols.operand(operands[1], from_)
        if target.width < to_size or value.width < from_size:
            raise Refused("a conversion between registers that are too narrow")
        if isinstance(value, Constant) and value.width == 1:
            value = Constant(2, value.value)
        if saturating:
            if value.width != max(from_size, 2):
                raise Refused("a saturating conversion from a wider register")
            row = opcode(f"cvt.sat.{from_}.b{8 * target.width}")
            return elementwise(row, target, value, imm=_INTEGERS[to])
        if to_size > from_size and target.width > to_size and from_[0] == "s" and to[0] == "u":
            raise Refused("a conversion into a wider register than its type")
        low = "u64" if narrow == "s64" else narrow
        row = opcode(f"extend.{low}.b{8 * target.width}.b{8 * value.width}")
        return elementwise(row, target, value)

    return bind


def _to_integer(to: str, from_: str, modifiers: list[str]) -> SinglePlan:
    rounds = [part for part in modifiers if part in _ROUNDS]
    if len(rounds) != 1 or any(part not in (*_ROUNDS, "ftz", "sat") for part in modifiers):
        raise Refused("the machine does not support this conversion")
    mode = _ROUNDS[rounds[0]] | (
        core.Rounding.ftz if "ftz" in modifiers else 0
    )  # integer results are clamped with or without .sat
    row = opcode(f"cvt.{to}.{from_}")
    size, width = PTX_BYTES[from_], max(PTX_BYTES[to], 2)

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        target = destination(symbols, operands[0], width)
        return elementwise(row, target, source(symbols, operands[1], from_, size), imm=mode)

    return bind


def _lanewise(name: str, to: str, from_: str) -> SinglePlan:
    row = opcode(name)
    to_width, from_width = max(PTX_BYTES[to], 2), max(PTX_BYTES[from_], 2)

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 1 + len(row.sources))
        target = destination(symbols, operands[0], to_width)
        return elementwise(row, target, *(source(symbols, token, from_, from_width) for token in operands[1:]))

    return bind


def _floating(to: str, from_: str, modifiers: list[str]) -> SinglePlan:
    kept = [part for part in modifiers if part != "satfinite" or to != "tf32"]
    widening = PTX_BYTES[to] > PTX_BYTES[from_]
    names = [".".join(["cvt", *kept, to, from_])]
    if widening:  # exact, so a rounding modifier has no effect
        names.append(".".join(["cvt", *(part for part in kept if part != "rn"), to, from_]))
    if "rn" not in kept and not widening:
        names.append(".".join(["cvt", "rn", *kept, to, from_]))
    for name in names:
        if name in OPCODES:
            return _lanewise(name, to, from_)
    raise Refused("the machine does not support this conversion")


FAMILY = {"cvt": plan}
