"""set, slct and setp of packed halves, each made of several of the machine's comparisons and choices."""

from __future__ import annotations

from workbench.base.element_types import PTX_BYTES
from workbench.ptx.families import arithmetic, moves
from workbench.ptx.instruction import (
    Instruction,
    Plan,
    comparison,
    destination,
    elementwise,
    expect,
    opcode,
    source,
    unless_sink,
)
from workbench.ptx.machine import OPCODES
from workbench.ptx.operands import Constant, Refused, Symbols

_ONE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


def set_(parts: list[str]) -> Plan:
    """Plan ``set.cmp{.and|or|xor}{.ftz}.dtype.stype d, a, b{, {!}c};``.

    A true result is 1.0 for floating point types, else all ones.
    """
    to, from_ = parts[-2:]
    direct = ".".join(parts).replace(".s32.", ".u32.")
    if direct in OPCODES:
        return arithmetic.plan(direct.split("."))
    if to not in ("u32", "s32", "f32", "u16", "s16", "f16", "bf16"):
        raise Refused("the machine does not support this form of set")
    compare = moves.setp(["setp", *parts[1:-2], from_])
    size = PTX_BYTES[to]
    yes = Constant(size, _ONE.get(to, (1 << 8 * size) - 1))
    count = 4 if any(part in moves.COMBINE for part in parts) else 3

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        expect(operands, count)
        target = destination(symbols, operands[0], size)
        predicate = symbols.temporary(0)
        with symbols.named("result of set", predicate):
            test = compare(symbols, ["result of set", *operands[1:]])
        return [test, elementwise(opcode(f"selp.b{8 * size}"), target, yes, Constant(size, 0), predicate)]

    return bind


def slct(parts: list[str]) -> Plan:
    """Plan ``slct{.ftz}.type.{s32,f32} d, a, b, c;``: a where c >= 0, else b; -0 counts as 0 and NaN as negative."""
    type_name, tested = parts[-2:]
    if tested not in ("s32", "f32") or type_name not in PTX_BYTES:
        raise Refused("the machine does not support this form of slct")
    size = PTX_BYTES[type_name]
    row = opcode(f"selp.b{8 * size}")
    test = opcode("setp.ge.ftz.f32" if "ftz" in parts else f"setp.ge.{tested}")

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        expect(operands, 4)
        target = destination(symbols, operands[0], size)
        predicate = symbols.temporary(0)
        compared = comparison(test, predicate, source(symbols, operands[3], tested, 4), Constant(4, 0))
        either = (source(symbols, token, type_name, size) for token in operands[1:3])
        return [compared, elementwise(row, target, *either, predicate)]

    return bind


def setp(parts: list[str]) -> Plan:
    """Plan setp of one value, or of packed halves.

    In ``setp.cmp.f16x2 p|q, a, b;`` p is the result of the low halves, q that of the high ones.
    """
    if parts[-1] not in ("f16x2", "bf16x2"):
        return moves.setp(parts)
    if len(parts) != 3:
        raise Refused("setp of packed halves with a third operand or .ftz")
    row = opcode(f"setp.{parts[1]}.{parts[2].removesuffix('x2')}")

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        expect(operands, 3)
        targets = [unless_sink(symbols, name.strip(), 0) for name in operands[0].split("|")]
        made, halves = [], []
        for token in operands[1:]:
            low, high = symbols.temporary(2), symbols.temporary(2)
            halves.append((low, high))
            made.append(moves.unpacking((low, high), source(symbols, token, "b32", 4), 4))
        for target, a, b in zip(targets, *halves, strict=False):
            if target is not None:
                made.append(comparison(row, target, a, b))
        return made

    return bind


FAMILY = {"set": set_, "slct": slct, "setp": setp}
