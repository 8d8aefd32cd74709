"""mov with its packing forms, cvta, selp, setp, and the clocks."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.base.element_types import PTX_BYTES
from workbench.ptx.families.refused import NARROW_ADDRESSES
from workbench.ptx.instruction import (
    Instruction,
    Plan,
    SinglePlan,
    comparison,
    destination,
    elementwise,
    expect,
    opcode,
    predicate,
    source,
    unless_sink,
    vector,
)
from workbench.ptx.machine import OPCODES, core
from workbench.ptx.operands import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    SHARED_WINDOW,
    Constant,
    Operand,
    Refused,
    Register,
    Symbols,
)

_CLOCKS = {"%clock": "clock.b32", "%clock_hi": "clock.b32", "%clock64": "clock.b64", "%globaltimer": "clock.b64"}

_VECTORS = {(2, 2), (4, 2), (4, 4), (8, 2), (8, 4)}  # (bytes, parts) that the ISA lists


def mov(parts: list[str]) -> Plan:
    """Plan ``mov.type d, a;`` of a register, a constant or an address.

    It also plans the packing of registers into one, and back.
    """
    type_name = parts[-1]
    if len(parts) != 2 or type_name not in PTX_BYTES:
        raise Refused("the machine does not support this form of mov")
    size = PTX_BYTES[type_name]
    row = opcode("mov.pred" if size == 0 else f"mov.b{8 * min(max(size, 2), 8)}")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction | list[Instruction]:
        expect(operands, 2)
        to, from_ = operands
        if type_name == "b128":
            return _move_wide(symbols, to, from_)
        if to[0] == "{":
            return _unpack(symbols, vector(to), from_, type_name, size)
        if from_[0] == "{":
            return _pack(symbols, to, vector(from_), size)
        target = destination(symbols, to, size)
        if from_ in _CLOCKS:
            return elementwise(opcode(_CLOCKS[from_]), target)
        if type_name == "pred" and from_ == "%is_explicit_cluster":
            return comparison(opcode("setp.ne.b32"), target, source(symbols, from_, "b32", 4), Constant(4, 0))
        return elementwise(row, target, source(symbols, from_, type_name, size))

    return bind


def _move_wide(symbols: Symbols, to: str, from_: str) -> list[Instruction]:
    """Return the moves, half by half, of a 128-bit register that is packed, unpacked or copied."""
    into, out_of = (_halves(symbols, one) for one in (to, from_))
    moves = [one for pair in zip(into, out_of, strict=True) if (one := _move_half(symbols, *pair)) is not None]
    return moves or [Instruction(opcode("nop"), {})]


def _halves(symbols: Symbols, token: str) -> list[list[str]]:
    """Return the registers that make up the lower and the upper 64 bits of an operand."""
    names = vector(token) if token[0] == "{" else [*symbols.halves(token)]
    if len(names) not in (2, 4):
        raise Refused(f"{len(names)} registers for 128 bits, where 2 or 4 belong")
    return [names[: len(names) // 2], names[len(names) // 2 :]]


def _move_half(symbols: Symbols, to: list[str], from_: list[str]) -> Instruction | None:
    if len(from_) == 2:
        return _pack(symbols, to[0], from_, 8)
    if len(to) == 2:
        return None if to == ["_", "_"] else _unpack(symbols, to, from_[0], "b64", 8)
    target = unless_sink(symbols, to[0], 8)
    if target is None:
        return None
    return elementwise(opcode("mov.b64"), target, source(symbols, from_[0], "b64", 8))


def _parts(parts: list[str], size: int) -> int:
    """Return the bytes of the registers that hold the parts of a vector; parts of 8 bits lie in 16."""
    if (size, len(parts)) not in _VECTORS:
        raise Refused(f"{len(parts)} registers for {8 * size} bits")
    return max(size // len(parts), 2)


def _pack(symbols: Symbols, to: str, parts: list[str], size: int) -> Instruction:
    target = destination(symbols, to, size)
    part = _parts(parts, size)
    values = [source(symbols, token, f"b{8 * part}", part) for token in parts]
    return elementwise(opcode(f"pack.b{8 * size}.{len(parts)}"), target, *values)


def _unpack(symbols: Symbols, parts: list[str], from_: str, type_name: str, size: int) -> Instruction:
    part = _parts(parts, size)
    value = source(symbols, from_, type_name, size)
    return unpacking([unless_sink(symbols, token, part) for token in parts], value, size)


def unpacking(parts: Sequence[Register | None], value: Operand, size: int) -> Instruction:
    """Return the instruction that splits ``value``, of ``size`` bytes, into ``parts``; a part of None is dropped."""
    columns = core.Unpacking
    targets = {i: part for i, part in enumerate(parts, columns.part) if part is not None}
    row = opcode(f"unpack.b{8 * size}.{len(parts)}")
    return Instruction(row, {columns.source: value} | targets, tuple(targets.values()))


def cvta(parts: list[str]) -> Plan:
    """Plan cvta: addresses of shared and local variables become generic by an offset, others are generic already."""
    to_space = parts[1] == "to"
    space = parts[2 if to_space else 1].split("::")[0]
    size = PTX_BYTES[parts[-1]]
    if size != 8:
        raise Refused(NARROW_ADDRESSES)
    if space not in ("global", "const", "shared", "local", "param"):
        raise Refused("the machine does not support this form of cvta")
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}.get(space)

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        target = destination(symbols, operands[0], 8)
        address = source(symbols, operands[1], "b64", 8)
        if window is None:
            return elementwise(opcode("mov.b64"), target, address)
        return elementwise(opcode("sub.b64" if to_space else "add.b64"), target, address, Constant(8, window))

    return bind


def selp(parts: list[str]) -> Plan:
    """Plan ``selp.type d, a, b, p;``."""
    type_name = parts[-1]
    size = PTX_BYTES[type_name]
    row = opcode(f"selp.b{8 * size}")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 4)
        target = destination(symbols, operands[0], size)
        choice = source(symbols, operands[3], "pred", 0)
        return elementwise(row, target, *(source(symbols, token, type_name, size) for token in operands[1:3]), choice)

    return bind


_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_COMPARISON = core.Comparison
COMBINE = {how.name: how for how in core.Combine if how != core.Combine.none}


def setp(parts: list[str]) -> SinglePlan:
    """Plan ``setp.cmp{.ftz}{.and|or|xor}.type p{|q}, a, b{, {!}c};``.

    q is the comparison's opposite, combined with c in the same way.
    """
    type_name, test = parts[-1], _UNSIGNED.get(parts[1], parts[1])
    middle = parts[2:-1]
    combine = next((COMBINE[part] for part in middle if part in COMBINE), core.Combine.none)
    if any(part not in ("ftz", *COMBINE) for part in middle):
        raise Refused("the machine does not support this form of setp")
    if "ftz" in middle and type_name != "f32":
        raise Refused("a comparison of half precision with .ftz: leave .ftz away")
    kind = type_name
    if kind[0] in "sub" and test in ("eq", "ne") and kind[0] != "b" and kind != "bf16":
        kind = f"b{kind[1:]}"
    if "ftz" in middle and type_name == "f32":
        kind = "ftz.f32"
    name = f"setp.{test}.{kind}"
    if name not in OPCODES and kind[0] == "b":
        name = f"setp.{test}.u{kind[1:]}"
    row, size = opcode(name), PTX_BYTES[type_name]

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 4 if combine else 3)
        slots: dict[int, Operand] = {
            _COMPARISON.a: source(symbols, operands[1], type_name, size),
            _COMPARISON.b: source(symbols, operands[2], type_name, size),
        }
        names = [part.strip() for part in operands[0].split("|")[:2]]
        columns = (_COMPARISON.result, _COMPARISON.inverse)
        found = zip(columns, (unless_sink(symbols, name, 0) for name in names), strict=False)
        targets = {column: target for column, target in found if target is not None}
        negated: dict[int, int] = {}
        if combine:
            slots[_COMPARISON.third], negated = predicate(symbols, operands[3])
        return Instruction(row, slots | targets, tuple(targets.values()), negated, imm=combine)

    return bind


FAMILY = {"mov": mov, "cvta": cvta, "selp": selp, "setp": setp}
