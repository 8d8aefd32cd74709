"""cvt: between integer widths, floating point formats, and from one to the other."""

from __future__ import annotations

from workbench.ptx.instruction import Instruction, Plan, destination, expect, opcode, source
from workbench.ptx.machine import OPCODES
from workbench.ptx.operands import Constant, Operand, Refused, Symbols
from workbench.ptx.parse import TYPE_SIZES

_ROUNDS = {"rni": 0, "rzi": 1, "rmi": 2, "rpi": 3}
_INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")


def plan(parts: list[str]) -> Plan:
    # Byte pairs come as e4m3x2 and so on; the last two parts are always the types.
    if len(parts) < 3 or parts[-1] not in TYPE_SIZES or parts[-2] not in TYPE_SIZES:
        raise Refused("the machine does not know this conversion")
    to, from_, modifiers = parts[-2], parts[-1], parts[1:-2]
    if to in _INTEGERS and from_ in _INTEGERS:
        return _integer(to, from_, modifiers)
    if to in _INTEGERS:
        return _to_integer(to, from_, modifiers)
    if from_ in _INTEGERS:
        kept = [part for part in modifiers if part != "rn"]
        return _lanewise(".".join(["cvt", *kept, to, from_]), to, from_)
    return _floating(to, from_, modifiers)


def _integer(to: str, from_: str, modifiers: list[str]) -> Plan:
    to_size, from_size = TYPE_SIZES[to], TYPE_SIZES[from_]
    saturating = modifiers == ["sat"]
    if modifiers and not saturating:
        raise Refused("the machine does not know this conversion")
    narrow = to if to_size <= from_size else from_

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        target = destination(symbols, operands[0])
        value = symbols.operand(operands[1], from_)
        if target is None or target.width < to_size or value.width < from_size:
            raise Refused("a conversion between registers that are too narrow")
        if isinstance(value, Constant) and value.width == 1:
            value = Constant(2, value.value)
        if saturating:
            if value.width != max(from_size, 2):
                raise Refused("a saturating conversion from a wider register")
            row = opcode(f"cvt.sat.{from_}.b{8 * target.width}")
            return Instruction(row, {0: target, 1: value}, (target,), imm=_INTEGERS.index(to))
        if to_size > from_size and target.width > to_size and from_[0] == "s" and to[0] == "u":
            raise Refused("a conversion into a wider register than its type")
        low = "u64" if narrow == "s64" else narrow
        row = opcode(f"extend.{low}.b{8 * target.width}.b{8 * value.width}")
        return Instruction(row, {0: target, 1: value}, (target,))

    return bind


def _to_integer(to: str, from_: str, modifiers: list[str]) -> Plan:
    rounds = [part for part in modifiers if part in _ROUNDS]
    if len(rounds) != 1 or any(part not in (*_ROUNDS, "ftz", "sat") for part in modifiers):
        raise Refused("the machine does not know this conversion")
    mode = _ROUNDS[rounds[0]] + (4 if "ftz" in modifiers else 0)  # integer results are clamped with or without .sat
    row = opcode(f"cvt.{to}.{from_}")
    size, width = TYPE_SIZES[from_], max(TYPE_SIZES[to], 2)

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        target = destination(symbols, operands[0], width)
        return Instruction(row, {0: target, 1: source(symbols, operands[1], from_, size)}, (target,), imm=mode)

    return bind


def _lanewise(name: str, to: str, from_: str) -> Plan:
    row = opcode(name)
    to_width, from_width = max(TYPE_SIZES[to], 2), max(TYPE_SIZES[from_], 2)

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 1 + len(row.sources))
        target = destination(symbols, operands[0], to_width)
        slots: dict[int, Operand] = {0: target}
        for i, token in enumerate(operands[1:], 1):
            slots[i] = source(symbols, token, from_, from_width)
        return Instruction(row, slots, (target,))

    return bind


def _floating(to: str, from_: str, modifiers: list[str]) -> Plan:
    dropped = {"satfinite"} if to in ("e4m3x2", "e5m2x2", "tf32") else set()
    if to in ("e4m3x2", "e5m2x2") or from_ in ("e4m3x2", "e5m2x2"):
        dropped |= {"rn"}
    kept = [part for part in modifiers if part not in dropped]
    widening = TYPE_SIZES[to] > TYPE_SIZES[from_]
    names = [".".join(["cvt", *kept, to, from_])]
    if widening:  # exact: a rounding that is written has no effect
        names.append(".".join(["cvt", *(part for part in kept if part != "rn"), to, from_]))
    if "rn" not in kept and not widening:
        names.append(".".join(["cvt", "rn", *kept, to, from_]))
    for name in names:
        if name in OPCODES:
            return _lanewise(name, to, from_)
    raise Refused("the machine does not know this conversion")


FAMILY = {"cvt": plan}
