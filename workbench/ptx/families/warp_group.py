"""wgmma: matrix products by four warps."""

from __future__ import annotations

import re

from workbench.ptx.families.sparse import selector
from workbench.ptx.instruction import Instruction, Plan, destination, expect, opcode, source, vector
from workbench.ptx.machine import ADDRESS, ASYNC_PROXY, FLAGS, FRAGMENT, core
from workbench.ptx.operands import Constant, Operand, Refused, Symbols

_PRODUCT, _FLAGS = core.GroupProduct, core.WarpGroupProduct
_DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
_SHAPE = re.compile(r"m64n(\d+)k(\d+)")


def wgmma(parts: list[str]) -> Plan:
    """Plan ``wgmma.mma_async{.sp}.sync.aligned.shape{.satfinite}.D.A.B{.and.popc}``, fence, commit and wait."""
    if parts[1] in ("fence", "commit_group", "wait_group"):
        return _group(parts[1])
    sparse = parts[1:3] == ["mma_async", "sp"]
    parts = [*parts[:2], *parts[3:]] if sparse else parts
    if parts[1:4] != ["mma_async", "sync", "aligned"] or len(parts) < 8:
        raise Refused("the machine does not support this wgmma")
    shape = _SHAPE.fullmatch(parts[4])
    if shape is None:
        raise Refused(f"wgmma has no .{parts[4]}")
    kept = [part for part in parts[5:] if part not in ("satfinite", "and", "popc")]
    saturating = ["satfinite"] if "satfinite" in parts else []
    d, a, b = kept
    row = opcode(".".join(["wgmma.sp" if sparse else "wgmma", *saturating, d, a, b]))
    columns, depth = int(shape[1]), int(shape[2])
    integer = d == "s32"
    fits = columns % (16 if integer and columns > 32 else 8) == 0 and 8 <= columns <= 256
    if depth != _DEPTH[a] * (1 + sparse) or not fits:
        raise Refused(f"wgmma has no .{parts[4]} of .{a}")
    registers = columns // (4 if d == "f16" else 2)
    halves, scaled = a in ("f16", "bf16"), not integer
    selectors = 1 if _DEPTH[a] == 32 else 2  # all lanes have metadata, or two of four

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        values = [destination(symbols, token, 4) for token in vector(operands[0])]
        if len(values) != registers:
            raise Refused(f"{len(values)} registers for {registers} of the result")
        in_registers = operands[1][0] == "{"
        expected = 4 + 2 * sparse + (2 if scaled else 0) + ((1 if in_registers else 2) if halves else 0)
        expect(operands, expected)
        slots: dict[int, Operand] = {FRAGMENT + i: value for i, value in enumerate(values)}
        flags = 0
        if in_registers:
            flags |= _FLAGS.a_registers
            tokens = vector(operands[1])
            if len(tokens) != 4:
                raise Refused(f"{len(tokens)} registers of A, where 4 belong")
            slots |= {i: source(symbols, token, "b32", 4) for i, token in enumerate(tokens, _PRODUCT.a)}
        else:
            slots[ADDRESS] = source(symbols, operands[1], "b64", 8)
        slots[_PRODUCT.b] = source(symbols, operands[2], "b64", 8)
        raw: dict[int, int] = {}
        if sparse:
            slots[_PRODUCT.metadata] = source(symbols, operands[3], "b32", 4)
            raw[_PRODUCT.selector] = selector(operands[4], selectors)
            operands = [*operands[:3], *operands[5:]]
        keep = operands[3]
        if keep.lstrip("-").isdigit():
            flags |= 0 if int(keep) else _FLAGS.drop_d
            slots[_PRODUCT.keeps_d] = Constant(0, 1)
        else:
            slots[_PRODUCT.keeps_d] = source(symbols, keep, "pred", 0)
        if not flags & _FLAGS.drop_d:  # the product is added to D, which is read, too
            slots |= {FRAGMENT + registers + i: value for i, value in enumerate(values)}
        if scaled:
            signs = [int(token) for token in operands[4:6]]
            if any(sign not in (1, -1) for sign in signs):
                raise Refused(f"factors of {operands[4]} and {operands[5]}, where 1 and -1 are allowed")
            flags |= (signs[0] < 0) * _FLAGS.negate_a | (signs[1] < 0) * _FLAGS.negate_b
        if halves:
            transposed = [int(token) for token in operands[6:]]
            flags |= transposed[-1] * _FLAGS.transpose_b | (0 if in_registers else transposed[0] * _FLAGS.transpose_a)
        raw |= {_PRODUCT.flags: flags, FLAGS: ASYNC_PROXY}
        return Instruction(row, slots, tuple(values), raw, 0, columns // 8, 0)

    return bind


def _group(name: str) -> Plan:
    row, waits = opcode(f"wgmma.{name}"), name == "wait_group"

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        return Instruction(row, {}, imm=int(operands[0], 0) if waits else 0)

    return bind


def registers(parts: list[str]) -> Plan:
    """Plan ``setmaxnreg.inc|dec.sync.aligned.u32 n;``, which moves registers between warp groups.

    It changes no value.
    """

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 1)
        count = int(operands[0], 0)
        if count % 8 or not 24 <= count <= 256:
            raise Refused(f"{count} registers, where a multiple of 8 from 24 to 256 belongs")
        return Instruction(opcode("nop"), {})

    return bind


FAMILY = {"wgmma": wgmma, "setmaxnreg": registers}
