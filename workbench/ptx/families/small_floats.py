"""cvt from and to formats of 8, 6 and 4 bits, to powers of two (UE8M0) and with random bits (.rs)."""

from __future__ import annotations

from workbench.base.element_types import PTX_BYTES
from workbench.ptx.instruction import Instruction, SinglePlan, destination, elementwise, expect, opcode, source, vector
from workbench.ptx.operands import Constant, Operand, Refused, Register, Symbols

FORMATS = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
_PAIRS = {f"{name}x2" for name in FORMATS}
_FOURS = {f"{name}x4" for name in FORMATS}
TYPES = _PAIRS | _FOURS | {"ue8m0x2", "s2f6x2"}
_SCALED = "scaled::n2::ue8m0"
_ONE = Constant(2, 0x7F7F)  # two scales of 1


def plan(parts: list[str]) -> SinglePlan:
    """Plan one conversion; ``parts`` is the opcode text, split at its dots."""
    to, from_, modifiers = parts[-2], parts[-1], set(parts[1:-2])
    if len(modifiers) != len(parts) - 3:
        raise Refused("the same modifier twice")
    if "rs" in modifiers:
        return _random(to, from_, modifiers)
    if "s2f6x2" in (to, from_):
        return _fixed(to, from_, modifiers)
    if to == "ue8m0x2":
        _check(modifiers, {"rz"} if "rz" in modifiers else {"rp"}, {"satfinite"})
        return _lanes(_name(modifiers - {"rn"}, to, from_), to, from_)
    if from_ == "ue8m0x2":
        _check(modifiers, {"rn"}, set())
        return _lanes(f"cvt.rn.{to}.{from_}", to, from_)
    narrow = {"satfinite"} if to in _PAIRS else set()
    _check(modifiers, {"rn"} | narrow, {"relu"})
    return _lanes(_name(modifiers - {"rn"} - narrow, to, from_), to, from_)


def _check(modifiers: set[str], wanted: set[str], allowed: set[str]) -> None:
    """Raise Refused unless the wanted modifiers are there, and others only if they are allowed."""
    if not wanted <= modifiers <= wanted | allowed:
        listed = "".join(f".{each}" for each in sorted(wanted))
        more = "".join(f"{{.{each}}}" for each in sorted(allowed))
        raise Refused(f"this conversion takes {listed}{more}")


def _name(modifiers: set[str], to: str, from_: str) -> str:
    kept = [part for part in ("rs", "rz", "rp", "relu", "satfinite") if part in modifiers]
    return ".".join(["cvt", *kept, to, from_])


def _lanes(name: str, to: str, from_: str) -> SinglePlan:
    row = opcode(name)

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 1 + len(row.sources))
        return elementwise(row, _target(symbols, operands[0], to), *_sources(symbols, operands[1:], from_))

    return bind


def _target(symbols: Symbols, token: str, to: str) -> Register:
    return destination(symbols, token, max(PTX_BYTES[to], 2))


def _sources(symbols: Symbols, tokens: list[str], from_: str) -> list[Operand]:
    return [source(symbols, token, from_, max(PTX_BYTES[from_], 2)) for token in tokens]


def _random(to: str, from_: str, modifiers: set[str]) -> SinglePlan:
    """Plan ``cvt.rs``: two values to halves, or four in braces to smaller formats, and a register of random bits."""
    fours = to in _FOURS
    if from_ != "f32" or not (fours or to in ("f16x2", "bf16x2")):
        raise Refused("the machine supports .rs from .f32 to two halves or to four of fewer bits")
    _check(modifiers, {"rs", "satfinite"} if fours else {"rs"}, {"relu"} if fours else {"relu", "satfinite"})
    row = opcode(_name(modifiers - ({"satfinite"} if fours else set()), to, from_))

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3 if fours else 4)
        values = vector(operands[1]) if fours else operands[1:3]
        if len(values) != (4 if fours else 2):
            raise Refused(f"{len(values)} values, where 4 belong")
        random = source(symbols, operands[-1], "b32", 4)
        return elementwise(row, _target(symbols, operands[0], to), *_sources(symbols, values, from_), random)

    return bind


def _fixed(to: str, from_: str, modifiers: set[str]) -> SinglePlan:
    """Plan a conversion from or to ``.s2f6x2``, whose last operand is a pair of scales if ``.scaled::n2::ue8m0``."""
    narrow = to == "s2f6x2"
    _check(modifiers, {"rn", "satfinite"} if narrow else {"rn"}, {"relu", "satfinite", _SCALED})
    scaled = _SCALED in modifiers
    row = opcode(_name(modifiers - ({"satfinite"} if narrow else set()), to, from_))
    count = len(row.sources) - 1

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 1 + count + scaled)
        scale = source(symbols, operands[-1], "b16", 2) if scaled else _ONE
        return elementwise(
            row, _target(symbols, operands[0], to), *_sources(symbols, operands[1 : 1 + count], from_), scale
        )

    return bind
