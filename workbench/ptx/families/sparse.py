"""mma.sp: products of a sparse A, which stores half of its elements, and metadata with their places."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.ptx.families import block_scale
from workbench.ptx.instruction import Instruction, Plan, expect, opcode, result, source, vector
from workbench.ptx.machine import FRAGMENT, core
from workbench.ptx.operands import Operand, Refused, Register, Symbols

_PRODUCT = core.SparseProduct
_ORDERED = "sp::ordered_metadata"
# Registers of A, and of B, and the allowed selectors, by the type of A's elements and K. The PTX ISA: one lane of four
# has the metadata, or two, or all.
_SIZES = {
    ("f16", 16): (2, 4), ("f16", 32): (4, 2), ("bf16", 16): (2, 4), ("bf16", 32): (4, 2), ("tf32", 8): (2, 4),
    ("tf32", 16): (4, 2), ("s8", 32): (2, 2), ("s8", 64): (4, 1), ("u8", 32): (2, 2), ("u8", 64): (4, 1),
    ("s4", 64): (2, 2), ("s4", 128): (4, 1), ("u4", 64): (2, 2), ("u4", 128): (4, 1),
}  # fmt: skip
_FLOATS_OF_8 = ("e4m3", "e5m2")


def plan(parts: list[str]) -> Plan:
    """Plan ``mma.sp{::ordered_metadata}.sync.aligned.shape.row.col{.kind}{.satfinite}.D.A.B.C d, a, b, c, e, f;``.

    ``e`` is the metadata, ``f`` the selector of the lanes that have it. With block scales their four operands follow.
    CUTLASS writes ``.satfinite`` last, which ptxas takes too.
    """
    ordered = parts[1] == _ORDERED
    marks = [part for part in parts if part.startswith(("kind::", "scale_vec::")) or part == "block_scale"]
    rest = [part for part in parts if part not in marks]
    if rest[1] not in ("sp", _ORDERED) or rest[2:4] != ["sync", "aligned"] or rest[5:7] != ["row", "col"]:
        raise Refused("the machine supports mma.sp.sync.aligned with A by rows and B by columns only")
    shape, types = rest[4], [part for part in rest[7:] if part != "satfinite"]
    saturating = ["satfinite"] if rest[7:] in (["satfinite", *types], [*types, "satfinite"]) else []
    if marks and not ordered:
        raise Refused("mma.sp with a .kind, which PTX only has as mma.sp::ordered_metadata")
    if "block_scale" in marks:
        return _scaled(shape, marks, types)
    if len(types) != 4 or len(rest) != 11 + len(saturating):
        raise Refused("the machine does not support this mma.sp")
    if types[0] == "f16" and types[1] in _FLOATS_OF_8 and not ordered:
        raise Refused("mma.sp of 8 bits with sums of .f16, which PTX only has as mma.sp::ordered_metadata")
    if marks not in ([], ["kind::f8f6f4"]) or (bool(marks) < bool({*block_scale.NARROW} & {*types})):
        raise Refused("mma.sp with factors of 4 or 6 bits of floating point needs .kind::f8f6f4, or .block_scale")
    if marks and not {*types[1:3]} <= {*block_scale.FACTORS}:
        raise Refused("mma.sp with .kind::f8f6f4 takes factors of .e4m3, .e5m2, .e3m2, .e2m3, .e2m1")
    row = opcode(".".join(["mma.sp", shape, *saturating, *types]))
    registers, selectors = _SIZES.get((types[1], int(shape.rpartition("k")[2])), (4, 1))
    sums = 2 if types[0] == "f16" else 4

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 6)
        slots, targets = _factors(symbols, operands, (sums, registers, registers, sums))
        raw = {_PRODUCT.selector: selector(operands[5], selectors), _PRODUCT.ordered: int(ordered)}
        return Instruction(row, slots, targets, raw)

    return bind


def _scaled(shape: str, marks: list[str], types: list[str]) -> Plan:
    runs = block_scale.runs_of(marks, types[-1])
    row = opcode(f"mma.sp.{shape}.block_scale.{runs}.{'.'.join(types)}")

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        expect(operands, 10)
        slots, targets = _factors(symbols, operands, (4, 4, 4, 4))
        for column, operand in ((_PRODUCT.scale_a, operands[6]), (_PRODUCT.scale_b, operands[8])):
            (token,) = vector(operand)
            slots[column] = source(symbols, token, "b32", 4)
        tokens = [*vector(operands[7]), *vector(operands[9])]
        slots[_PRODUCT.selectors], before = block_scale.selectors(symbols, tokens, runs)
        raw = {_PRODUCT.selector: selector(operands[5], 1), _PRODUCT.ordered: 1}
        return [*before, Instruction(row, slots, targets, raw)]

    return bind


def _factors(
    symbols: Symbols, operands: list[str], counts: Sequence[int]
) -> tuple[dict[int, Operand], tuple[Register, ...]]:
    """Return the slots of D, A, B, C and the metadata, and D's registers."""
    fragments = [vector(operand) for operand in operands[:4]]
    for name, tokens, count in zip("DABC", fragments, counts, strict=True):
        if len(tokens) != count:
            raise Refused(f"{len(tokens)} registers of {name}, where {count} belong")
    targets = tuple(result(symbols, token, 4) for token in fragments[0])
    slots: dict[int, Operand] = {FRAGMENT + i: target for i, target in enumerate(targets)}
    for first, tokens in zip((_PRODUCT.a, _PRODUCT.b, _PRODUCT.c), fragments[1:], strict=True):
        slots |= {first + i: source(symbols, token, "f32", 4) for i, token in enumerate(tokens)}
    slots[_PRODUCT.metadata] = source(symbols, operands[4], "b32", 4)
    return slots, targets


def selector(token: str, count: int) -> int:
    """Return the value of a sparsity selector; raise Refused unless it is a constant below ``count``."""
    allowed = ("0", "0 or 1", "", "0, 1, 2 or 3")[count - 1]
    try:
        value = int(token, 0)
    except ValueError:
        value = -1
    if not 0 <= value < count:
        raise Refused(f"the sparsity selector {token}, where the constant {allowed} belongs")
    return value
