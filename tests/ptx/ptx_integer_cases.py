"""Exact statements of the integer instructions, in Python integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ptx_support import signed


class Case(NamedTuple):
    """``instruction`` with its operand types, and what it must give for bit patterns of them."""

    instruction: str
    destination: str
    sources: tuple[str, ...]
    expected: Callable[..., int]


CASES: list[Case] = []


def case(text: str, kinds: str, function: Callable[..., int], operands: int | None = None, suffix: str = "") -> None:
    destination, *sources = kinds.split()
    marks = ", ".join(f"{{s{i}}}" for i in range(len(sources)))
    CASES.append(Case(f"{text} {{d0}}, {marks}{suffix};", destination, tuple(sources), function))


def wrap(width: int, function: Callable[..., int]) -> Callable[..., int]:
    return lambda *values: function(*values) & ((1 << width) - 1)


def s(width: int, function: Callable[..., int]) -> Callable[..., int]:
    """The function on signed operands, wrapped to the width of the result."""
    return lambda *values: function(*(signed(v, width) for v in values)) & ((1 << width) - 1)


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


for w in (16, 32, 64):
    u, i = f"u{w}", f"s{w}"
    case(f"add.{u}", f"{u} {u} {u}", wrap(w, lambda a, b: a + b))
    case(f"sub.{i}", f"{i} {i} {i}", wrap(w, lambda a, b: a - b))
    case(f"mul.lo.{i}", f"{i} {i} {i}", wrap(w, lambda a, b: a * b))
    case(f"mul.hi.{u}", f"{u} {u} {u}", lambda a, b, w=w: a * b >> w)
    case(f"mul.hi.{i}", f"{i} {i} {i}", s(w, lambda a, b, w=w: a * b >> w))
    case(f"mad.lo.{i}", f"{i} {i} {i} {i}", wrap(w, lambda a, b, c: a * b + c))
    case(f"div.{u}", f"{u} {u} {u}", lambda a, b, w=w: a // b if b else (1 << w) - 1)
    case(f"div.{i}", f"{i} {i} {i}", s(w, lambda a, b: truncated(a, b) if b else -1))
    case(f"rem.{u}", f"{u} {u} {u}", lambda a, b: a % b if b else a)
    case(f"rem.{i}", f"{i} {i} {i}", s(w, lambda a, b: a - b * truncated(a, b) if b else a))
    for name, pick in (("min", min), ("max", max)):
        case(f"{name}.{u}", f"{u} {u} {u}", pick)
        case(f"{name}.{i}", f"{i} {i} {i}", s(w, pick))
    case(f"neg.{i}", f"{i} {i}", wrap(w, lambda a: -a))
    case(f"abs.{i}", f"{i} {i}", s(w, abs))
    b = f"b{w}"
    case(f"and.{b}", f"{b} {b} {b}", lambda a, b: a & b)
    case(f"or.{b}", f"{b} {b} {b}", lambda a, b: a | b)
    case(f"xor.{b}", f"{b} {b} {b}", lambda a, b: a ^ b)
    case(f"not.{b}", f"{b} {b}", wrap(w, lambda a: ~a))
    case(f"shl.{b}", f"{b} {b} u32", lambda a, n, w=w: (a << n) & ((1 << w) - 1) if n < w else 0)
    case(f"shr.{u}", f"{u} {u} u32", lambda a, n, w=w: a >> n if n < w else 0)
    case(f"shr.{i}", f"{i} {i} u32", lambda a, n, w=w: (signed(a, w) >> min(n, w)) & ((1 << w) - 1))
    case(f"mov.{b}", f"{b} {b}", lambda a: a)
    case(f"selp.{b}", f"{b} {b} {b} pred", lambda a, b, p: a if p else b)

for w, wide in ((16, 32), (32, 64)):
    u, i = f"u{w}", f"s{w}"
    case(f"mul.wide.{u}", f"u{wide} {u} {u}", lambda a, b: a * b)
    case(
        f"mul.wide.{i}",
        f"s{wide} {i} {i}",
        lambda a, b, w=w, wide=wide: (signed(a, w) * signed(b, w)) & ((1 << wide) - 1),
    )
    case(f"mad.wide.{u}", f"u{wide} {u} {u} u{wide}", lambda a, b, c, wide=wide: (a * b + c) & ((1 << wide) - 1))
    case(
        f"mad.wide.{i}", f"s{wide} {i} {i} s{wide}",
        lambda a, b, c, w=w, wide=wide: (signed(a, w) * signed(b, w) + c) & ((1 << wide) - 1),
    )  # fmt: skip

I32 = (-(1 << 31), (1 << 31) - 1)
case("add.sat.s32", "s32 s32 s32", s(32, lambda a, b: clamp(a + b, *I32)))
case("sub.sat.s32", "s32 s32 s32", s(32, lambda a, b: clamp(a - b, *I32)))
case("mul24.lo.u32", "u32 u32 u32", wrap(32, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)))
case("mul24.lo.s32", "s32 s32 s32", wrap(32, lambda a, b: signed(a, 24) * signed(b, 24)))
case("mad.hi.u32", "u32 u32 u32 u32", wrap(32, lambda a, b, c: (a * b >> 32) + c))
case("mad.hi.s32", "s32 s32 s32 s32", s(32, lambda a, b, c: (a * b >> 32) + c))
case("sad.u32", "u32 u32 u32 u32", wrap(32, lambda a, b, c: abs(a - b) + c))
case("sad.s32", "s32 s32 s32 s32", s(32, lambda a, b, c: abs(a - b) + c))
case("min.relu.s32", "s32 s32 s32", s(32, lambda a, b: max(min(a, b), 0)))
case("max.relu.s32", "s32 s32 s32", s(32, lambda a, b: max(a, b, 0)))
case("cnot.b32", "b32 b32", lambda a: int(a == 0))
case("shf.l.wrap.b32", "b32 b32 b32 u32", lambda a, b, n: ((b << 32 | a) << (n & 31)) >> 32 & 0xFFFFFFFF)
case("shf.r.wrap.b32", "b32 b32 b32 u32", lambda a, b, n: (b << 32 | a) >> (n & 31) & 0xFFFFFFFF)
case("shf.l.clamp.b32", "b32 b32 b32 u32", lambda a, b, n: ((b << 32 | a) << min(n, 32)) >> 32 & 0xFFFFFFFF)
case("shf.r.clamp.b32", "b32 b32 b32 u32", lambda a, b, n: (b << 32 | a) >> min(n, 32) & 0xFFFFFFFF)


def lop3(table: int) -> Callable[[int, int, int], int]:
    def function(a: int, b: int, c: int) -> int:
        bits = (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1 for i in range(32))
        return sum(bit << i for i, bit in enumerate(bits))

    return function


for table in (0x00, 0xFF, 0x96, 0xE8, 0xCA, 0x2D):
    case("lop3.b32", "b32 b32 b32 b32", lop3(table), suffix=f", {table}")


def prmt(a: int, b: int, selectors: list[int]) -> int:
    pool = [(b << 32 | a) >> 8 * i & 255 for i in range(8)]
    picked = [pool[n & 7] if not n & 8 else (255 if pool[n & 7] & 128 else 0) for n in selectors]
    return sum(byte << 8 * i for i, byte in enumerate(picked))


case("prmt.b32", "b32 b32 b32 b32", lambda a, b, c: prmt(a, b, [c >> 4 * i & 15 for i in range(4)]))
# Byte positions from most to least significant, for selectors 0 to 3 (PTX ISA, prmt).
MODES = {
    "f4e": ["3210", "4321", "5432", "6543"], "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"], "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"], "rc16": ["1010", "3232", "1010", "3232"],
}  # fmt: skip
for mode, rows in MODES.items():
    case(
        f"prmt.b32.{mode}",
        "b32 b32 b32 b32",
        lambda a, b, c, rows=rows: prmt(a, b, [int(n) for n in reversed(rows[c & 3])]),
    )


def bfe(width: int, is_signed: bool) -> Callable[[int, int, int], int]:
    def function(a: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        if length == 0:
            return 0
        sign = a >> min(position + length - 1, width - 1) & 1 if is_signed else 0
        bits = [(a >> position + k & 1) if position + k < width and k < length else sign for k in range(width)]
        return sum(bit << k for k, bit in enumerate(bits))

    return function


def bfi(width: int) -> Callable[[int, int, int, int], int]:
    def function(a: int, b: int, position: int, length: int) -> int:
        for k in range(length & 255):
            at = (position & 255) + k
            if at < width:
                b = (b & ~(1 << at)) | (a >> k & 1) << at
        return b

    return function


for w in (32, 64):
    case(f"bfe.u{w}", f"u{w} u{w} u32 u32", bfe(w, False))
    case(f"bfe.s{w}", f"s{w} s{w} u32 u32", bfe(w, True))
    case(f"bfi.b{w}", f"b{w} b{w} b{w} u32 u32", bfi(w))
    case(f"popc.b{w}", f"u32 b{w}", int.bit_count)
    case(f"clz.b{w}", f"u32 b{w}", lambda a, w=w: w - a.bit_length())
    case(f"brev.b{w}", f"b{w} b{w}", lambda a, w=w: int(f"{a:0{w}b}"[::-1], 2))
    case(f"bfind.u{w}", f"u32 u{w}", lambda a: a.bit_length() - 1 if a else 0xFFFFFFFF)


def bfind_signed(a: int, shift: bool = False) -> int:
    value = signed(a, 32)
    size = (~value if value < 0 else value).bit_length()
    return 0xFFFFFFFF if size == 0 else 32 - size if shift else size - 1


case("bfind.s32", "u32 s32", bfind_signed)
case("bfind.shiftamt.u32", "u32 u32", lambda a: 32 - a.bit_length() if a else 0xFFFFFFFF)
case("bfind.shiftamt.s32", "u32 s32", lambda a: bfind_signed(a, True))


def dot(widths: tuple[int, int], signs: str, offset: int = 0) -> Callable[[int, int, int], int]:
    def function(a: int, b: int, c: int) -> int:
        total = c
        for k in range(32 // widths[0]):
            x, y = a >> widths[0] * k, b >> widths[1] * k + offset
            x, y = x & ((1 << widths[0]) - 1), y & ((1 << widths[1]) - 1)
            total += (signed(x, widths[0]) if signs[0] == "s" else x) * (signed(y, widths[1]) if signs[1] == "s" else y)
        return total & 0xFFFFFFFF

    return function


for signs in ("ss", "uu", "su", "us"):
    case(f"dp4a.{signs[0]}32.{signs[1]}32", "b32 b32 b32 b32", dot((8, 8), signs))
for signs in ("ss", "uu"):
    case(f"dp2a.lo.{signs[0]}32.{signs[1]}32", "b32 b32 b32 b32", dot((16, 8), signs))
    case(f"dp2a.hi.{signs[0]}32.{signs[1]}32", "b32 b32 b32 b32", dot((16, 8), signs, 16))

# ---- conversions between integers ----

INTEGERS = {f"{sign}{w}": (sign == "s", w) for w in (8, 16, 32, 64) for sign in "su"}


def convert(to: str, from_: str, saturating: bool, register: int) -> Callable[[int], int]:
    def function(bits: int) -> int:
        is_signed, width = INTEGERS[from_]
        value = signed(bits, width) if is_signed else bits & ((1 << width) - 1)
        to_signed, to_width = INTEGERS[to]
        if saturating:
            value = clamp(value, -(1 << to_width - 1) if to_signed else 0, (1 << to_width - to_signed) - 1)
        value &= (1 << to_width) - 1
        return (signed(value, to_width) if to_signed else value) & ((1 << register) - 1)

    return function


for from_, (_, from_width) in INTEGERS.items():
    for to, (_, to_width) in INTEGERS.items():
        register = max(to_width, 16)
        case(f"cvt.{to}.{from_}", f"b{register} b{max(from_width, 16)}", convert(to, from_, False, register))
        for wide in (16, 32, 64):
            if wide >= to_width:
                case(f"cvt.sat.{to}.{from_}", f"b{wide} b{max(from_width, 16)}", convert(to, from_, True, wide))
    # Narrow values in wide registers.
    for source in (32, 64):
        for target in (16, 32, 64):
            if source > max(from_width, 16) and target >= from_width:
                case(f"cvt.{from_}.{from_}", f"b{target} b{source}", convert(from_, from_, False, target))

# ---- comparisons ----

TESTS = {"eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
for w in (16, 32, 64):
    for name, test in TESTS.items():
        case(f"setp.{name}.u{w}", f"pred u{w} u{w}", lambda a, b, test=test: int(test(a, b)))
        case(f"setp.{name}.s{w}", f"pred s{w} s{w}", lambda a, b, test=test, w=w: int(test(signed(a, w), signed(b, w))))
    for name, alias in UNSIGNED.items():
        case(f"setp.{name}.u{w}", f"pred u{w} u{w}", lambda a, b, test=TESTS[alias]: int(test(a, b)))
for name, combine in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
    case(
        f"setp.lt.{name}.s32", "pred s32 s32 pred", lambda a, b, p, f=combine: f(int(signed(a, 32) < signed(b, 32)), p)
    )
    case(f"{name}.pred", "pred pred pred", combine)
case("not.pred", "pred pred", lambda a: 1 - a)
case("mov.pred", "pred pred", lambda a: a)

# ---- carry chains: two links, so that the flag of the first shows in the second ----


def chain(first: str, second: str, kinds: str, function: Callable[..., int]) -> None:
    """``{d0}`` is what the second instruction gives."""
    kind = kinds.split()[0]
    CASES.append(Case(f"{first}; {second};", kind, tuple(kinds.split()[1:]), function))


for w in (32, 64):
    u, i = f"u{w}", f"s{w}"
    mask = (1 << w) - 1
    chain(
        f"add.cc.{u} {{d0}}, {{s0}}, {{s1}}", f"addc.{u} {{d0}}, {{s2}}, {{s0}}", f"{u} {u} {u} {u}",
        lambda a, b, c, m=mask, w=w: (c + a + (a + b >> w)) & m,
    )  # fmt: skip
    chain(
        f"add.cc.{u} {{d0}}, {{s0}}, {{s1}}; addc.cc.{u} {{d0}}, {{s2}}, {{s0}}", f"addc.{u} {{d0}}, {{s1}}, 0",
        f"{u} {u} {u} {u}", lambda a, b, c, m=mask, w=w: (b + (c + a + (a + b >> w) >> w)) & m,
    )  # fmt: skip
    chain(
        f"sub.cc.{i} {{d0}}, {{s0}}, {{s1}}", f"subc.{i} {{d0}}, {{s2}}, {{s0}}", f"{i} {i} {i} {i}",
        lambda a, b, c, m=mask: (c - a - (a < b)) & m,
    )  # fmt: skip
    chain(
        f"sub.cc.{u} {{d0}}, {{s0}}, {{s1}}; subc.cc.{u} {{d0}}, {{s2}}, {{s0}}", f"subc.{u} {{d0}}, {{s1}}, 0",
        f"{u} {u} {u} {u}", lambda a, b, c, m=mask: (b - (c < a + (a < b))) & m,
    )  # fmt: skip
    # After sub the flag is the carry of a + ~b + 1, which addc adds and subc takes for "nothing borrowed".
    chain(
        f"sub.cc.{u} {{d0}}, {{s0}}, {{s1}}", f"addc.{u} {{d0}}, {{s2}}, {{s0}}", f"{u} {u} {u} {u}",
        lambda a, b, c, m=mask: (c + a + (a >= b)) & m,
    )  # fmt: skip
    chain(
        f"add.cc.{u} {{d0}}, {{s0}}, {{s1}}", f"subc.{u} {{d0}}, {{s2}}, {{s0}}", f"{u} {u} {u} {u}",
        lambda a, b, c, m=mask, w=w: (c - a - 1 + (a + b >> w)) & m,
    )  # fmt: skip
    chain(
        f"mad.lo.cc.{u} {{d0}}, {{s0}}, {{s1}}, {{s2}}", f"madc.hi.{u} {{d0}}, {{s0}}, {{s1}}, {{s2}}",
        f"{u} {u} {u} {u}", lambda a, b, c, m=mask, w=w: ((a * b >> w) + c + ((a * b & m) + c >> w)) & m,
    )  # fmt: skip
    chain(
        f"mad.hi.cc.{i} {{d0}}, {{s0}}, {{s1}}, {{s2}}", f"madc.lo.{i} {{d0}}, {{s1}}, {{s2}}, {{s0}}",
        f"{i} {i} {i} {i}",
        lambda a, b, c, m=mask, w=w: (b * c + a + (((signed(a, w) * signed(b, w) >> w) & m) + c >> w)) & m,
    )  # fmt: skip

# ---- vectors packed into one register, and taken out of it ----


def vector_cases(whole: int, count: int) -> None:
    """``mov`` of a vector into a register of ``whole`` bits, and of each of its elements out of it."""
    part = whole // count
    mask = (1 << part) - 1
    register, kind = {8: ("%y", "u16"), 16: ("%h1", "b16"), 32: ("%r1", "b32")}[part]
    names = [f"{register}{i}" for i in range(count)]
    fill = "cvt.u8.u16" if part == 8 else f"mov.b{part}"
    filled = " ".join(f"{fill} {name}, {{s{i}}};" for i, name in enumerate(names))
    CASES.append(
        Case(
            f"{filled} mov.b{whole} {{d0}}, {{{{{', '.join(names)}}}}};", f"b{whole}", (kind,) * count,
            lambda *parts: sum((value & mask) << part * i for i, value in enumerate(parts)),
        )
    )  # fmt: skip
    for i, name in enumerate(names):
        elements = ", ".join(name if k == i else "_" for k in range(count))
        for sign in ("u", "s") if part == 8 else ("b",):
            widen, to = (f"cvt.{sign}32.{sign}8", f"{sign}32") if part == 8 else (f"mov.b{part}", f"b{part}")

            def element(a: int, i: int = i, sign: str = sign) -> int:
                value = a >> part * i & mask
                return signed(value, part) & 0xFFFFFFFF if sign == "s" else value

            text = f"mov.b{whole} {{{{{elements}}}}}, {{s0}}; {widen} {{d0}}, {name};"
            CASES.append(Case(text, to, (f"b{whole}",), element))


for whole, count in ((16, 2), (32, 4), (32, 2), (64, 4), (64, 2)):
    vector_cases(whole, count)
