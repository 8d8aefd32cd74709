"""Uses of the bits of float results by integer instructions, which exact comparison cannot follow.

Elements of a ring (``LaunchOptions.exact``) have bits of their own. Moves, packing, halves and signs keep them. A
kernel that takes a mantissa by a mask, rounds by integer addition or compares floats as integers reads nonsense.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from workbench.ptx.instruction import split_operands
from workbench.ptx.parse import Statement

_NAME = re.compile(r"(?<![\w$%.])[%A-Za-z_$][\w$]*")
_FLOAT = re.compile(r"\.(f16|bf16|tf32|f32|f64)(x2)?(\.|$)")
_INTEGER = re.compile(r"\.[sub](8|16|32|64)(x2)?$")
_COMPUTES = frozenset(
    re.findall(
        r"\w+",
        """
        abs add cos cvt div ex2 fma lg2 max min mul neg rcp redux rsqrt sin sqrt sub tanh mma wgmma atom copysign""",
    )
)
_MOVES = frozenset(("mov", "selp", "shfl", "prmt", "or", "xor", "and", "shl", "shr", "bfi", "cvt"))
_HALVES = (0xFFFF, 0xFFFF_0000)
_SIGNS = (0x8000_0000, 0x8000_8000, 0x8000, 0x8000_0000_0000_0000)
_ROUNDS = ("0f4B400000", "0f4B400001")  # 1.5 * 2^23: adding it rounds to a whole number
_MASKS: Mapping[int, str] = {
    0x7F80_0000: "exponent", 0x7FF0_0000: "exponent", 0x7F80: "exponent", 0x7C00: "exponent", 0xFF80_0000: "exponent",
    0x7F_FFFF: "mantissa", 0x807F_FFFF: "mantissa", 0x7FFF_FFFF: "magnitude", 0x7FFF: "magnitude",
    0x7FFF_7FFF: "magnitude", 0x8000_0000: "sign", 0x8000: "sign", 0x8000_8000: "sign",
}  # fmt: skip
_COUNTS = frozenset(
    re.findall(
        r"\w+",
        """
        popc clz bfind brev dp4a dp2a sad mul24 mad24 rem lop3 shf bfe""",
    )
)


def uses_of_bits(statements: Sequence[Statement]) -> dict[int, str]:
    """Return what a statement does with the bits of floats, by the statement's offset in the PTX."""
    parsed = [_Parsed.of(one) for one in statements]
    results, made, units = _results(parsed), _made(parsed), _units_and_a_bit(parsed)
    found = {}
    for one in parsed:
        reason = _reason(one, results)
        if not reason and _is_arithmetic(one) and any(made.get(name, one.kind) != one.kind for name in one.read):
            reason = "computes with a float made of an integer's bits"
        if not reason and one.head == "mul" and one.kind == "f16" and not units.isdisjoint(one.read):
            reason = "multiplies by a power of two and a last bit, so as to round"
        if reason:
            found[one.start] = reason
    return found


def exponents_in(statements: Sequence[Statement]) -> list[Statement]:
    """Return the instructions that take the exponent of a float result by a mask, which is a power of two."""
    parsed = [_Parsed.of(one) for one in statements]
    results = _results(parsed)
    return [
        statement
        for statement, one in zip(statements, parsed, strict=True)
        if one.opcode == "and.b32" and one.constants == [0x7F80_0000] and not results.isdisjoint(one.read)
    ]


class _Parsed(NamedTuple):
    """A statement's opcode and operands; ``read`` are the registers that it reads as values."""

    start: int
    opcode: str
    head: str
    operands: Sequence[str]
    written: Sequence[str]
    read: Sequence[str]

    @classmethod
    def of(cls, statement: Statement) -> _Parsed:
        operands = split_operands(statement.operands)
        written = _NAME.findall(operands[0]) if operands else []
        read = _NAME.findall(",".join(operands[1:]))
        return cls(statement.start, statement.opcode, statement.opcode.partition(".")[0], operands, written, read)

    @property
    def kind(self) -> str:
        """Type of an instruction on floats: "f16" also of pairs."""
        return self.opcode.rpartition(".")[2].removesuffix("x2")

    @property
    def constants(self) -> list[int]:
        """Integers among the operands, as unsigned numbers."""
        return _constants(self.operands[1:], 64 if self.opcode.endswith("64") else 32)


def _constants(operands: Iterable[str], bits: int) -> list[int]:
    found = []
    for text in operands:
        try:
            found.append(int(text.strip().rstrip("U"), 0))
        except ValueError:
            continue
    return [one % (1 << bits) for one in found]


def _results(parsed: Iterable[_Parsed]) -> set[str]:
    """Return the registers that hold float results, or pairs of them, wherever they were moved."""
    found: set[str] = set()
    moves = []
    for one in parsed:
        kind = one.opcode.split(".")
        if one.head in _COMPUTES and _FLOAT.search(one.opcode):
            if not (one.head == "cvt" and _to_codes(kind)):
                found.update(one.written)
        elif one.head in _MOVES and not (one.head in ("and", "or", "xor") and _ends(one, "pred")):
            moves.append(one)
    changed = True
    while changed:
        changed = False
        for one in moves:
            if not found.issuperset(one.written) and not found.isdisjoint(one.read) and not _reason(one, found):
                found.update(one.written)
                changed = True
    return found


# Exponents that make a whole number of an integer of fewer bits: 1024 + n of 10 bits, 128 + n of 7, 2^23 + n of 23.
_WHOLE = {0x6400: "f16", 0x6400_6400: "f16", 0x4300: "bf16", 0x4300_4300: "bf16", 0x4B00_0000: "f32"}


def _made(parsed: Sequence[_Parsed]) -> dict[str, str]:
    """Return the registers that hold a number to which an integer instruction gave a constant exponent.

    For 1024 + n and the like, which are what they are, the type of float for which they are that; for others, such as
    64 + n / 16, whose elements do not add up so, "".
    """
    found: dict[str, str] = {}
    for one in parsed:
        if one.head in ("or", "xor"):
            sets = [bits for bits in one.constants if bits and bits not in _SIGNS]
        elif one.head == "lop3":  # (a & b) ^ c, (a & b) | c
            sets = [bits for bits in _constants(one.operands[3:4], 32) if bits and bits not in _SIGNS]
        else:
            continue
        if sets:
            found.update(dict.fromkeys(one.written, _WHOLE.get(sets[0], "") if len(sets) == 1 else ""))
    for one in parsed:
        sources = [found[name] for name in one.read if name in found] if one.head == "mov" else []
        if sources:
            found.update(dict.fromkeys(one.written, sources[0]))
    return found


def _units_and_a_bit(parsed: Sequence[_Parsed]) -> set[str]:
    """Return the registers that hold 2^n and the last bit of an f16, or two of them."""
    found: set[str] = set()
    for one in parsed:
        if one.head == "mov":
            halves = {half for bits in one.constants for half in (bits & 0xFFFF, bits >> 16 or bits & 0xFFFF)}
            if any(half & 0x3FF == 1 and half >> 10 for half in halves) or not found.isdisjoint(one.read):
                found.update(one.written)
    return found


def _is_arithmetic(one: _Parsed) -> bool:
    return one.head in ("add", "sub", "mul", "fma") and bool(_FLOAT.search(one.opcode))


def _ends(one: _Parsed, kind: str) -> bool:
    return one.opcode.endswith(f".{kind}")


def _to_codes(kind: Sequence[str]) -> bool:
    """Return True for a conversion to an integer or to bytes, which are exact: ``cvt.rzi.s32.f32``."""
    return len(kind) > 2 and bool(re.fullmatch(r"[su](8|16|32|64)|(e\dm\d|ue8m0)x[24]", kind[-2]))


def _reason(one: _Parsed, results: set[str]) -> str:
    """Return what a statement does with the bits of a result; "" if nothing."""
    if one.head in ("add", "fma") and _FLOAT.search(one.opcode):
        return "rounds to a whole number by adding 1.5 * 2^23" if any(c in _ROUNDS for c in one.operands) else ""
    if results.isdisjoint(one.read) or not _INTEGER.search(one.opcode):
        return ""
    constants = one.constants
    if one.head == "and":
        wrong = [mask for mask in constants if mask not in _HALVES]
        return f"takes the {_MASKS.get(wrong[0], 'bits')} of a float by its bits" if wrong else ""
    if one.head == "xor":
        return "" if all(mask in _SIGNS for mask in constants) else "changes bits of a float"
    if one.head == "or":
        return "changes bits of a float" if any(constants) else ""
    if one.head in ("shl", "shr"):
        return "" if all(by in (16, 32, 48) for by in constants) else "shifts the bits of a float"
    if one.head == "bfi":
        return "" if all(at in (0, 16, 32) for at in constants[-2:]) else "changes bits of a float"
    if one.head in ("add", "sub", "mul", "mad"):
        return "computes with the bits of a float as an integer"
    if one.head in ("min", "max", "setp", "set") or (one.head in ("atom", "red") and re.search("min|max", one.opcode)):
        return "compares floats as integers"
    if one.head == "cvt" and (_FLOAT.search(one.opcode) or ".sat" in one.opcode):
        return "converts the bits of a float as an integer"
    return "computes with the bits of a float" if one.head in _COUNTS else ""
