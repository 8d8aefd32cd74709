"""Instructions that work lane by lane: integer and floating point arithmetic, logic, shifts, special functions.

The core's table has their canonical names; this module maps PTX spellings to them.
"""

from __future__ import annotations

from contextlib import ExitStack

from workbench.base.element_types import PTX_BYTES
from workbench.ptx.instruction import Instruction, Plan, SinglePlan, elementwise, expect, opcode, result, source
from workbench.ptx.machine import OPCODES, WIDTHS
from workbench.ptx.operands import Operand, Refused, Symbols

NAMES = (
    "add", "sub", "mul", "mad", "mul24", "div", "rem", "abs", "neg", "min", "max", "sad", "fma", "rcp", "sqrt", "rsqrt",
    "sin", "cos", "lg2", "ex2", "tanh", "and", "or", "xor", "not", "cnot", "shl", "shr", "shf", "lop3", "bfe", "bfi",
    "popc", "clz", "brev", "bfind", "dp4a", "dp2a", "copysign", "prmt", "mad24", "bmsk", "szext", "fns", "testp",
)  # fmt: skip

_FLOATS = {"f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "f32x2"}

# In two's complement these are the same for signed and unsigned operands.
_SIGNLESS = {"add", "sub", "mul.lo", "mad.lo", "and", "or", "xor", "not"}


def _candidates(parts: list[str]) -> list[str]:
    kept = [part for part in parts if part != "rn"]
    name, kind = ".".join(kept), kept[-1]
    found = [name]
    stem = ".".join(kept[:-1])
    if stem in _SIGNLESS and kind in PTX_BYTES and "x" not in kind:
        found.append(f"{stem}.b{8 * PTX_BYTES[kind]}")
    if kind in ("s16x2", "u16x2"):
        found.append(f"{stem}.b16x2")
    if stem == "shr" and kind[0] == "b":
        found.append(f"shr.u{kind[1:]}")
    if kept[0] == "mad" and kind in ("f32", "f64"):
        found.append("fma" + name[3:])
    if (kept[0] in ("mul", "mad") and kept[1:2] == ["wide"]) or kept[0] == "bfi":
        found.append(name.replace("bfi.u", "bfi.b"))
    return found


def plan(parts: list[str]) -> Plan:
    """Return the plan of one opcode text, split at its dots."""
    if parts[0] in ("min", "max") and parts[-1] == "f32":
        return _extreme(parts)
    whole = _plan(parts)
    if whole is not None:
        return whole
    if parts[0] in ("add", "sub", "fma") and parts[-2:] in (["f32", "f16"], ["f32", "bf16"]):
        return _mixed(parts)
    unclamped = _plan([part for part in parts if part != "sat"]) if parts[-1] == "f32" else None
    if unclamped is None:
        raise Refused("the machine does not support this instruction")
    return _saturated(unclamped)


def _plan(parts: list[str]) -> SinglePlan | None:
    """Return the plan of the core's row for an opcode, or None if there is no such row."""
    row = next((OPCODES[name] for name in _candidates(parts) if name in OPCODES), None)
    if row is None:
        return None
    type_name = parts[-1] if parts[-1] in PTX_BYTES else "b32"
    # Literals of the operation's own width are read with its type, others as plain bits.
    own = PTX_BYTES[type_name]
    types = {"b32": "f32"} if parts[-2] == "f32" else {}  # of the operands that do not have the last type
    kinds = [
        (kind, type_name if WIDTHS.get(kind) == own else types.get(kind, kind), WIDTHS.get(kind))
        for kind in row.sources
    ]
    width = WIDTHS[row.destinations[0]]
    count = len(kinds) + 1
    contracts = parts[0] if _leaves_rounding_open(parts) else ""

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, count)
        target = result(symbols, operands[0], width)
        sources: list[Operand] = []
        imm = 0
        for i, (kind, literal_type, bytes_) in enumerate(kinds, 1):
            if kind == "imm":
                imm = int(operands[i], 0)
            elif kind == "pred":
                if operands[i][0] == "!":
                    raise Refused("a negated predicate operand")
                sources.append(source(symbols, operands[i], "pred", 0))
            else:
                sources.append(source(symbols, operands[i], literal_type, bytes_))
        made = elementwise(row, target, *sources, imm=imm)
        made.contracts = contracts
        return made

    return bind


def _leaves_rounding_open(parts: list[str]) -> bool:
    """Return True for a product or a sum that the PTX ISA lets the assembler fuse: one without a rounding."""
    if parts[0] not in ("mul", "add", "sub") or parts[-1] not in _FLOATS or parts[-2] == "f32":
        return False
    return not {"rn", "rz", "rm", "rp"} & set(parts) and not (parts[0] == "mul" and "sat" in parts)


def _extreme(parts: list[str]) -> SinglePlan:
    """Return the plan of ``min`` and ``max{.ftz}{.NaN}{.abs}.f32``, of two operands or three."""
    order = ("ftz", "NaN", "xorsign", "abs")
    known = [part for part in order if part in parts[1:-1]]
    if sorted(known) != sorted(parts[1:-1]):
        raise Refused("the machine does not support this instruction")
    two = _plan([parts[0], *known, "f32"])
    three = _plan([f"{parts[0]}3", *known, "f32"])

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        made = three if len(operands) == 4 else two
        if made is None:
            raise Refused("two operands take .xorsign.abs or neither, three .abs at most")
        return made(symbols, operands)

    return bind


def _mixed(parts: list[str]) -> Plan:
    """Return the plan of an f32 operation with f16 or bf16 operands and a directed rounding: it widens them first."""
    inner = plan(parts[:-1])
    widening = opcode(f"cvt.f32.{parts[-1]}")

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        expect(operands, 4 if parts[0] == "fma" else 3)
        made, names = [], [operands[0]]
        with ExitStack() as stack:
            for i, token in enumerate(operands[1:-1]):
                wide = symbols.temporary(4)
                made.append(elementwise(widening, wide, source(symbols, token, parts[-1], 2)))
                stack.enter_context(symbols.named(f"widened {i}", wide))
                names.append(f"widened {i}")
            bound = inner(symbols, [*names, operands[-1]])
        return [*made, *(bound if isinstance(bound, list) else [bound])]

    return bind


def _saturated(unclamped: SinglePlan) -> Plan:
    """Return the plan of a directed rounding with .sat: the operation, then the clamp."""

    def bind(symbols: Symbols, operands: list[str]) -> list[Instruction]:
        made = unclamped(symbols, operands)
        (target,) = made.destinations
        return [made, elementwise(OPCODES["cvt.sat.f32.f32"], target, target)]

    return bind


FAMILY = dict.fromkeys(NAMES, plan)
