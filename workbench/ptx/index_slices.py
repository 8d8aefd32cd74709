"""Ways from sums, products and shifts of 32 bits to the addresses of global memory, for checks of indexes that wrap.

An index is followed backwards from each address through instructions that keep it a multiple or a sum: moves,
conversions to 64 bits, sums, products, shifts to the left, choices between two. Any other source of a number (a
remainder, a mask, a shift to the right, memory) ends the way: hash functions and random numbers wrap on purpose. The
core then follows the values (core/checks/wrapped.hpp), but only those that the ranges of the operands let wrap.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from workbench.ptx.instruction import split_operands
from workbench.ptx.machine import core
from workbench.ptx.parse import parse_number

_Row = tuple[int, str | None, bool, str | None, Sequence[str] | str | None]
_INTEGER = re.compile(r"\.([bsu])(32|64)$")
_WAYS = {
    "mov": core.WrapWay.move, "cvta": core.WrapWay.move, "selp": core.WrapWay.choose, "add": core.WrapWay.add,
    "or": core.WrapWay.add, "sub": core.WrapWay.subtract, "mul.lo": core.WrapWay.multiply,
    "mul.wide": core.WrapWay.multiply, "mad.lo": core.WrapWay.multiply_add, "mad.wide": core.WrapWay.multiply_add,
    "shl": core.WrapWay.shift,
}  # fmt: skip
_WIDENINGS = frozenset(("cvt.s64.s32", "cvt.u64.u32", "cvt.u64.s32", "cvt.s64.u32"))
_HASHING = 1 << 20  # from here on, an odd factor is one of a hash function or a random number
_BASE = re.compile(r"\[\s*([%A-Za-z_$][\w$.]*#)")
_ACCESSES = frozenset(("ld", "st", "atom", "red", "cp", "ldu"))
_OTHER_MEMORY = re.compile(r"\.(?:shared|local|param|tensor)\b|^cp\.(?:async\.(?:wait|commit|mbarrier)|reduce)")
_DEEP = 64  # statements to follow back for the bits of a value
_WHOLE = 32  # bits of a number of which nothing is known
_CONSTANT = -2  # instead of -1: a sum with it does not wrap


class IndexStep(NamedTuple):
    """One instruction on such a way, by its statement's offset in the PTX; registers are numbered, -1 for others."""

    start: int
    way: object
    starts: bool
    wide_factors: bool
    result: int
    sources: tuple[int, int, int]


class _Form(NamedTuple):
    """Common part of the statements of one shape; operands are positions of names, or constants."""

    opcode: str
    written: tuple[int, ...]
    way: object | None
    bits: int
    operands: tuple[int | None, ...]
    constants: tuple[int | None, ...]
    base: int | None


class _Statement(NamedTuple):
    start: int
    form: _Form
    names: Sequence[str]

    def source(self, at: int) -> str | None:
        """Return the name of an operand, or None for a constant."""
        place = self.form.operands[at]
        return None if place is None else self.names[place]


def index_steps(rows: Iterable[_Row], limits: Mapping[str, int]) -> list[IndexStep]:
    """Return the steps of a body; ``limits`` has the bits of special registers such as ``%tid.x``."""
    statements, made = [], dict[str, list[_Statement]]()
    for start, _, _, shape, names in rows:
        if shape is None or type(names) is not tuple:
            continue
        form = _form(shape)
        one = _Statement(start, form, names)
        for at in form.written:
            made.setdefault(names[at], []).append(one)
        if form.base is not None:
            statements.append(one)
    followed = _followed([one.names[one.form.base] for one in statements if one.form.base is not None], made)
    if not followed:
        return []
    ranges = _Ranges(made, limits, followed)
    starting = {one.start for name in followed for one in made[name] if ranges.may_wrap(one)}
    reached = _reached(followed, made, starting)
    numbers = {name: number for number, name in enumerate(sorted(reached))}
    steps = []
    for name in reached:
        for one in made[name]:
            found = [numbers.get(source or "", -1) for source in map(one.source, range(len(one.form.operands)))]
            a, b, c = (*found, -1, -1, -1)[:3]
            if one.form.way == core.WrapWay.multiply_add and not ranges.computed(one, 2):
                c = c if c >= 0 else _CONSTANT
            wide = one.form.opcode.startswith(("mul.lo", "mad.lo")) and one.form.bits == 64
            steps.append(IndexStep(one.start, one.form.way, one.start in starting, wide, numbers[name], (a, b, c)))
    for one in statements:
        assert one.form.base is not None
        base = numbers.get(one.names[one.form.base])
        if base is not None:
            steps.append(IndexStep(one.start, core.WrapWay.access, False, False, -1, (base, -1, -1)))
    return steps


def _followed(work: list[str], made: Mapping[str, Sequence[_Statement]]) -> set[str]:
    """Return the registers on the ways to the given ones: those that only such statements write."""
    followed: set[str] = set()
    seen: set[str] = set()
    while work:
        name = work.pop()
        if name in seen or name not in made:
            continue
        seen.add(name)
        if all(one.form.way is not None for one in made[name]):
            followed.add(name)
            for one in made[name]:
                work += [source for at in range(len(one.form.operands)) if (source := one.source(at)) is not None]
    return followed


def _reached(followed: set[str], made: Mapping[str, Sequence[_Statement]], starting: set[int]) -> set[str]:
    """Return the followed registers that a value which has wrapped can reach."""
    readers: dict[str, list[str]] = {}
    work = []
    for name in followed:
        for one in made[name]:
            if one.start in starting:
                work.append(name)
            for source in map(one.source, range(len(one.form.operands))):
                if source in followed:
                    readers.setdefault(source, []).append(name)
    reached: set[str] = set()
    while work:
        name = work.pop()
        if name not in reached:
            reached.add(name)
            work += readers.get(name, ())
    return reached


class _Ranges:
    """Bits of registers' values, for those that are known not to be negative."""

    def __init__(self, made: Mapping[str, Sequence[_Statement]], limits: Mapping[str, int], followed: set[str]):
        self._made, self._limits, self._followed = made, limits, followed
        self._known: dict[str, int] = {}
        self._depth = 0

    def may_wrap(self, one: _Statement) -> bool:
        """Return True for a sum, product or shift of 32 bits whose result may fit neither with nor without a sign."""
        if one.form.bits != 32 or one.form.opcode.startswith(("mov", "cvta", "selp", "or", "mul.wide", "mad.wide")):
            return False
        if one.form.way == core.WrapWay.subtract:
            return False  # two numbers of 32 bits, one of them with a sign, have a difference that fits
        if one.form.way == core.WrapWay.add:  # likewise, unless neither has a sign, which a constant may have
            return self.computed(one, 0) and self.computed(one, 1)
        return self._bits(one) >= _WHOLE

    def computed(self, one: _Statement, at: int) -> bool:
        """Return True for an operand that is computed in a followed way and may have its highest bit set."""
        name = one.source(at)
        return name is not None and name in self._followed and self.of(name) >= _WHOLE

    def _operand(self, one: _Statement, at: int) -> int:
        constant, name = one.form.constants[at], one.source(at)
        if name is None:
            return constant.bit_length() if constant is not None and constant >= 0 else _WHOLE
        return self.of(name)

    def of(self, name: str) -> int:
        """Return the bits of a register's value, 32 if it may be negative or is not known."""
        if name in self._limits:
            return self._limits[name]
        if name not in self._known:
            self._known[name] = _WHOLE  # ends the recursion for a register that depends on itself
            found = self._made.get(name, ())
            if len(found) == 1 and self._depth < _DEEP:
                self._depth += 1
                self._known[name] = min(self._bits(found[0]), _WHOLE)
                self._depth -= 1
        return self._known[name]

    def _bits(self, one: _Statement) -> int:
        opcode, count = one.form.opcode, len(one.form.operands)
        loaded = re.match(r"(?:ld|ldu)\..*\.[bu](8|16)$|cvt\.[us](?:16|32|64)\.u(8|16)$", opcode)
        if loaded:
            return int(loaded[1] or loaded[2])
        operation = _BITS.get(re.sub(r"\.[bsu](?:16|32|64)$", "", opcode))
        if operation is None or not _INTEGER.search(opcode) or count < operation.__code__.co_argcount:
            return _WHOLE
        bits = [self._operand(one, at) for at in range(count)][: operation.__code__.co_argcount]
        if opcode.startswith("and"):
            return min(bits)
        if opcode.startswith(("shl", "shr")):
            by = one.form.constants[1]
            if by is None or not 0 <= by < 32:
                return _WHOLE
            if opcode.startswith("shr"):
                return max(bits[0] - by, 0) if bits[0] < _WHOLE or ".s" not in opcode else _WHOLE
            return bits[0] + by
        if opcode.startswith("rem.u"):
            return min(bits)
        return operation(*bits) if max(bits) < _WHOLE else _WHOLE


# Bits of a result, by those of operands that are not negative.
_BITS: dict[str, Callable[..., int]] = {
    "mov": lambda a: a,
    "cvt.u64": lambda a: a,
    "cvt.s64": lambda a: a,
    "cvt.u32": lambda a: a,
    "add": lambda a, b: max(a, b) + 1,
    "or": lambda a, b: max(a, b),
    "xor": lambda a, b: max(a, b),
    "and": lambda a, b: min(a, b),
    "mul.lo": lambda a, b: a + b,
    "mul.wide": lambda a, b: a + b,
    "mad.lo": lambda a, b, c: max(a + b, c) + 1,
    "selp": lambda a, b: max(a, b),
    "min": lambda a, b: min(a, b),
    "max": lambda a, b: max(a, b),
    "div": lambda a, b: a,
    "rem": lambda a, b: min(a, b),
    "shl": lambda a, b: a,
    "shr": lambda a, b: a,
}


@functools.lru_cache(maxsize=8192)
def _form(shape: str) -> _Form:
    opcode, _, operands = shape.partition(" ")
    head = opcode.partition(".")[0]
    places = {match.start(): number for number, match in enumerate(re.finditer("#", operands))}
    first = operands.partition("}")[0] if operands.startswith("{") else re.split(r"[,\[]", operands, maxsplit=1)[0]
    if head in ("st", "red"):
        first = ""
    written = tuple(range(first.count("#")))
    base = None
    if head in _ACCESSES and (not _OTHER_MEMORY.search(opcode) or opcode.startswith("cp.async")):
        base = _base(opcode, [places[found.end() - 1] for found in _BASE.finditer(operands)])
    kind = _INTEGER.search(opcode)
    name = opcode[: kind.start()] if kind else ""
    if head == "cvta":
        name = "cvta"
    split, at, sources, constants = split_operands(operands)[1:], len(written), [], []
    for operand in split:
        names = operand.count("#")
        number = None if names else parse_number(operand)
        sources.append(at if names == 1 and operand.endswith("#") and operand[:1] != "[" else None)
        constants.append(number if isinstance(number, int) else None)
        at += names
    way = _WAYS.get(name) if kind or head == "cvta" else None
    if opcode in _WIDENINGS:
        way = core.WrapWay.move
    if len(written) != 1 or "{" in operands or (head == "or" and (len(constants) < 2 or constants[1] is None)):
        way = None
    if head in ("mul", "mad") and any(one is not None and one % 2 and abs(one) >= _HASHING for one in constants):
        way = None
    if head == "selp":
        sources, constants = sources[:2], constants[:2]
    bits = int(kind[2]) if kind else 0
    return _Form(opcode, written, way, bits, tuple(sources), tuple(constants), base)


def _base(opcode: str, bases: Sequence[int]) -> int | None:
    """Return the position of the name of an access's address in global memory."""
    if not opcode.startswith("cp."):
        return bases[0] if len(bases) == 1 else None
    if ".tensor" in opcode or not opcode.startswith("cp.async") or len(bases) < 2:
        return None
    return bases[0] if opcode.startswith("cp.async.bulk.global") else bases[1]
