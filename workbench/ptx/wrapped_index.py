"""Out-of-bounds addresses from an index that did not fit into 32 bits, found in the PTX that computed it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from workbench.ptx.decode import locate
from workbench.ptx.instruction import split_operands
from workbench.ptx.parse import Statement, parse_number

if TYPE_CHECKING:
    from workbench.ptx.kernel import DecodedKernel

_LEAST = 1 << 24  # elements: a merely negative index lies nearer to its buffer, a wrapped one hardly ever
_DEEP = 16  # instructions to follow back from the access
_ADDRESS = re.compile(r"\[\s*(%\w+)")
_PASSED_ON = ("add.", "sub.s64", "cvta", "mov.", "or.b64", "selp.")
_COMPUTED = re.compile(r"(mul\.lo|mad\.lo|shl|add|sub)\.[bsu]32$")


class _Widened(NamedTuple):
    """A 32-bit register from which an address is computed, ``factor`` bytes for each unit of its value."""

    register: str
    signed: bool
    factor: int
    before: Statement


def cause_of(kernel: DecodedKernel, pc: int, offset: int) -> str:
    """Explain where the index of an access ``offset`` bytes from its buffer's start wrapped; "" if it did not."""
    statement = kernel.decoded.code[pc].statement if 0 <= pc < len(kernel.decoded.code) else None
    base = _ADDRESS.search(statement.operands) if statement else None
    if statement is None or base is None or -_LEAST < offset < (1 << 32) - _LEAST:
        return ""
    items = [item for item in kernel.module.body(kernel.entry) if type(item) is Statement]
    for one in _widened(items, base[1], statement, 1, _DEEP):
        index = offset // one.factor
        wrapped = -(1 << 31) <= index < -_LEAST if one.signed else (1 << 32) - _LEAST <= index < 1 << 32
        source = _arithmetic(items, one.register, one.before, _DEEP) if wrapped else None
        if source is None:
            continue
        where = locate(kernel.module, source.location) or f"PTX line {source.line}"
        if one.signed:
            went = f"which has wrapped: {index + (1 << 32):,} does not fit into 32 bits"
        else:
            went = f"which is {index - (1 << 32):,} without a sign: it went below 0"
        return f"; that is element {index:,}, of an index computed at {where}, {went}. Compute it in 64 bits"
    return ""


def _definition(items: list[Statement], register: str, before: Statement) -> Statement | None:
    """Return the last statement before ``before`` that writes a register, else, for a loop, the first behind it."""
    found = [one for one in items if split_operands(one.operands)[:1] == [register] and not one.opcode.startswith("st")]
    earlier = [one for one in found if one.start < before.start]
    return earlier[-1] if earlier else next(iter(found), None)


def _widened(items: list[Statement], register: str, before: Statement, factor: int, depth: int) -> Iterator[_Widened]:
    """Yield the 32-bit registers from which a 64-bit one is computed."""
    one = _definition(items, register, before)
    if one is None or not depth:
        return
    _, *read = split_operands(one.operands)
    name = one.opcode
    wide = re.match(r"(?:mul|mad)\.wide\.([su])32$|cvt\.[su]64\.([su])32$", name)
    if wide:
        scale = _number(read[1]) if name.startswith("m") else 1
        if scale:
            yield _Widened(read[0], (wide[1] or wide[2]) == "s", factor * scale, one)
        further = read[2:] if name.startswith("mad") else []
    elif name == "shl.b64" and (shift := _number(read[1])) is not None and shift < 8:
        yield from _widened(items, read[0], one, factor << shift, depth - 1)
        return
    elif name.startswith("mul.lo.") and (scale := _number(read[1])):
        yield from _widened(items, read[0], one, factor * scale, depth - 1)
        return
    else:
        further = read if name.startswith(_PASSED_ON) else []
    for other in further:
        if other.startswith("%"):
            yield from _widened(items, other, one, factor, depth - 1)


def _arithmetic(items: list[Statement], register: str, before: Statement, depth: int) -> Statement | None:
    """Return the latest product, else the latest sum, from which a 32-bit register is computed."""
    one = _definition(items, register, before)
    if one is None or not depth:
        return None
    if _COMPUTED.match(one.opcode) and one.opcode.startswith(("mul", "mad", "shl")):
        return one
    _, *read = split_operands(one.operands)
    if not one.opcode.startswith(("add.", "sub.", "mov.", "or.", "selp.")):
        return None
    deeper = (_arithmetic(items, other, one, depth - 1) for other in read if other.startswith("%"))
    product = next(filter(None, deeper), None)
    return product or (one if _COMPUTED.match(one.opcode) else None)


def _number(token: str) -> int | None:
    try:
        value = parse_number(token)
    except ValueError:
        return None
    return value if isinstance(value, int) and value > 0 else None
