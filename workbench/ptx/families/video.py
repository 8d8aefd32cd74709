"""Video instructions on two halves or four bytes at once, as CUDA's SIMD intrinsics use them."""

from __future__ import annotations

from workbench.ptx.instruction import Instruction, Plan, destination, elementwise, expect, opcode, source
from workbench.ptx.machine import core
from workbench.ptx.operands import Refused, Symbols

_NAMES = ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")


def packed(parts: list[str]) -> Plan:
    """Plan ``vop{2,4}.dtype.atype.btype{.sat}{.add} d, a, b, c;`` without lane masks and selectors."""
    types, rest = parts[1:4], parts[4:]
    if any(kind not in ("u32", "s32") for kind in types) or rest not in ([], ["sat"], ["add"]):
        raise Refused("the machine does not support this video instruction")
    row = opcode(parts[0])
    d, a, b = (kind == "s32" for kind in types)
    flags = core.Video.signed_a * a | core.Video.signed_b * b | core.Video.signed_d * d
    flags |= core.Video.saturate * ("sat" in rest) | core.Video.add * ("add" in rest)

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 4)
        if any("." in operand for operand in operands):
            raise Refused("lane masks and selectors of video instructions")
        target = destination(symbols, operands[0], 4)
        return elementwise(row, target, *(source(symbols, token, "b32", 4) for token in operands[1:]), imm=flags)

    return bind


FAMILY = {f"{name}{count}": packed for name in _NAMES for count in (2, 4)}
