"""mma with block scales: each run of A's rows and B's columns along K has a factor of its own (sm_120a)."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.ptx.instruction import Instruction, Plan, elementwise, expect, opcode, result, source, vector
from workbench.ptx.machine import core
from workbench.ptx.operands import Constant, Operand, Refused, Register, Symbols

NARROW = ("e3m2", "e2m3", "e2m1")
FACTORS = ("e4m3", "e5m2", *NARROW)
_COLUMNS = core.ScaledProduct
_FRAGMENTS = ((4, _COLUMNS.d), (4, _COLUMNS.a), (2, _COLUMNS.b), (4, _COLUMNS.c))
# PTX ISA, "Block Scaling for mma.sync": the runs along K by kind and type of the scales; the first one is the default.
_RUNS = {
    ("mxf8f6f4", "ue8m0"): ("1X",), ("mxf4", "ue8m0"): ("2X",),
    ("mxf4nvf4", "ue8m0"): ("2X", "4X"), ("mxf4nvf4", "ue4m3"): ("4X",),
}  # fmt: skip
_BYTES = {"1X": (0, 1, 2, 3), "2X": (0, 2), "4X": (0,)}
_UNKNOWN = "the machine does not support this mma with block scales"
_THREADS = ((0, 1), (0, 1, 2, 3))  # of A: pairs of a quad; of B


def plan(parts: list[str]) -> Plan:
    """Plan ``mma.sync.aligned.shape.row.col.kind.block_scale{.scale_vec::nX}.f32.A.B.f32.S``.

    Behind D, A, B and C come the scales of A with ``{byte, thread}``, which say where in a quad they lie, and those of
    B. The kind may stand before the shape.
    """
    rest = [part for part in parts if part != "block_scale" and not part.startswith(("kind::", "scale_vec::"))]
    if rest[1:3] != ["sync", "aligned"] or rest[4:6] != ["row", "col"]:
        raise Refused(_UNKNOWN)
    runs = runs_of(parts, rest[-1])
    row = opcode(f"mma.{rest[3]}.block_scale.{runs}.{'.'.join(rest[6:])}")

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        expect(operands, 8)
        slots: dict[int, Operand] = {}
        targets: list[Register] = []
        for (count, column), operand in zip(_FRAGMENTS, operands, strict=False):
            tokens = vector(operand)
            if len(tokens) != count:
                raise Refused(f"{len(tokens)} registers for a fragment of {count}")
            if column == _COLUMNS.d:
                targets = [result(symbols, token, 4) for token in tokens]
            values: Sequence[Operand] = (
                targets if column == _COLUMNS.d else [source(symbols, token, "f32", 4) for token in tokens]
            )
            slots |= dict(enumerate(values, column))
        for column, operand in ((_COLUMNS.scale_a, operands[4]), (_COLUMNS.scale_b, operands[6])):
            (token,) = vector(operand)
            slots[column] = source(symbols, token, "b32", 4)
        found, before = selectors(symbols, [*vector(operands[5]), *vector(operands[7])], runs)
        slots[_COLUMNS.selectors] = found
        return [*before, Instruction(row, slots, tuple(targets))]

    return bind


def runs_of(parts: list[str], scale: str) -> str:
    """Return the runs along K of ``.kind`` and ``.scale_vec``, "1X" for example; raise Refused where PTX has none."""
    kind = "".join(part[6:] for part in parts if part.startswith("kind::"))
    named = [part[11:] for part in parts if part.startswith("scale_vec::")]
    if (kind, scale) not in _RUNS:
        raise Refused(_UNKNOWN)
    allowed = _RUNS[kind, scale]
    runs = named[0] if named else allowed[0]
    if runs not in allowed or (kind == "mxf4nvf4" and not named):
        listed = " or ".join(f".scale_vec::{each}" for each in allowed)
        raise Refused(f"mma of .kind::{kind} with scales of .{scale} takes {listed}")
    return runs


def selectors(symbols: Symbols, tokens: list[str], runs: str) -> tuple[Operand, list[Instruction]]:
    """Return the operand that has byte and thread of A and of B, 16 bits each, and the instructions that make it."""
    values = [source(symbols, token, "u16", 2) for token in tokens]
    allowed = (_BYTES[runs], _THREADS[0], _BYTES[runs], _THREADS[1])
    names = ("byte-id-a", "thread-id-a", "byte-id-b", "thread-id-b")
    for name, value, these in zip(names, values, allowed, strict=True):
        if isinstance(value, Constant) and value.value not in these:
            listed = ", ".join(map(str, these))
            raise Refused(f"{name} of {value.value}, where .scale_vec::{runs} allows {listed}")
    if all(isinstance(value, Constant) for value in values):
        packed = sum(value.value << 16 * i for i, value in enumerate(values) if isinstance(value, Constant))
        return Constant(8, packed), []
    register = symbols.temporary(8)
    return register, [elementwise(opcode("pack.b64.4"), register, *values)]
