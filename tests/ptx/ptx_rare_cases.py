"""Exact statements of the instructions that compilers seldom emit and inline assembly does."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from ptx_float_cases import (
    NAN,
    as_float,
    flush,
    forms,
    operate,
    packed,
    round_float,
    saturated,
)
from ptx_integer_cases import TESTS, Case, bfind_signed, clamp, dot, s, wrap
from ptx_support import WIDTHS, decode_float, signed

CASES: list[Case] = []


def case(text: str, kinds: str, function: Callable[..., object], suffix: str = "") -> None:
    destination, *sources = kinds.split()
    marks = ", ".join(f"{{s{i}}}" for i in range(len(sources)))
    CASES.append(Case(f"{text} {{d0}}, {marks}{suffix};", destination, tuple(sources), function))


# ---- integers ----

for w in (16, 64):
    u, i = f"u{w}", f"s{w}"
    case(f"mad.hi.{u}", f"{u} {u} {u} {u}", wrap(w, lambda a, b, c, w=w: (a * b >> w) + c))
    case(f"mad.hi.{i}", f"{i} {i} {i} {i}", s(w, lambda a, b, c, w=w: (a * b >> w) + c))
    case(f"sad.{u}", f"{u} {u} {u} {u}", wrap(w, lambda a, b, c: abs(a - b) + c))
    case(f"sad.{i}", f"{i} {i} {i} {i}", s(w, lambda a, b, c: abs(a - b) + c))
    case(f"cnot.b{w}", f"b{w} b{w}", lambda a: int(a == 0))
I32 = (-(1 << 31), (1 << 31) - 1)
case("mad.hi.sat.s32", "s32 s32 s32 s32", s(32, lambda a, b, c: clamp((a * b >> 32) + c, *I32)))


def low24(value: int, is_signed: bool) -> int:
    return signed(value, 24) if is_signed else value & 0xFFFFFF


for sign in "us":
    product = lambda a, b, sign=sign: low24(a, sign == "s") * low24(b, sign == "s")  # noqa: E731
    kinds = f"{sign}32 {sign}32 {sign}32"
    case(f"mul24.hi.{sign}32", kinds, wrap(32, lambda a, b, f=product: f(a, b) >> 16))
    case(f"mad24.lo.{sign}32", f"{kinds} {sign}32", wrap(32, lambda a, b, c, f=product: f(a, b) + c))
    case(f"mad24.hi.{sign}32", f"{kinds} {sign}32", wrap(32, lambda a, b, c, f=product: (f(a, b) >> 16) + c))
case(
    "mad24.hi.sat.s32", "s32 s32 s32 s32",
    s(32, lambda a, b, c: clamp(signed((low24(a, True) * low24(b, True)) >> 16, 32) + c, *I32)),
)  # fmt: skip
for signs in ("su", "us"):
    case(f"dp2a.lo.{signs[0]}32.{signs[1]}32", "b32 b32 b32 b32", dot((16, 8), signs))
    case(f"dp2a.hi.{signs[0]}32.{signs[1]}32", "b32 b32 b32 b32", dot((16, 8), signs, 16))


def leading(a: int, shift: bool, is_signed: bool) -> int:
    value = signed(a, 64) if is_signed else a
    size = (~value if value < 0 else value).bit_length()
    return 0xFFFFFFFF if size == 0 else 64 - size if shift else size - 1


case("bfind.s64", "u32 s64", lambda a: leading(a, False, True))
case("bfind.shiftamt.u64", "u32 u64", lambda a: leading(a, True, False))
case("bfind.shiftamt.s64", "u32 s64", lambda a: leading(a, True, True))
assert bfind_signed(5) == leading(5, False, True)


def mask_bits(position: int, length: int, wraps: bool) -> int:
    position, length = (position & 31, length & 31) if wraps else (min(position, 32), min(length, 32))
    return sum(1 << i for i in range(position, min(position + length, 32)))


def extended(a: int, size: int, wraps: bool, is_signed: bool) -> int:
    size = size & 31 if wraps else min(size, 32)
    if size == 0:
        return 0
    return (signed(a, size) if is_signed else a & ((1 << size) - 1)) & 0xFFFFFFFF


for mode in ("clamp", "wrap"):
    case(f"bmsk.{mode}.b32", "b32 b32 b32", lambda a, b, m=mode: mask_bits(a, b, m == "wrap"))
    for sign in "us":
        function = lambda a, b, m=mode, sign=sign: extended(a, b, m == "wrap", sign == "s")  # noqa: E731
        case(f"szext.{mode}.{sign}32", f"{sign}32 {sign}32 b32", function)


def find_nth_set(mask: int, base: int, offset: int) -> int:
    """The PTX ISA's pseudo-code of fns."""
    base, offset = base & 31, signed(offset, 32)
    bits = [i for i in range(32) if mask >> i & 1]
    if offset == 0:
        return base if base in bits else 0xFFFFFFFF
    found = [i for i in bits if i >= base] if offset > 0 else [i for i in bits if i <= base][::-1]
    return found[abs(offset) - 1] if abs(offset) <= len(found) else 0xFFFFFFFF


# The base is less than 32, or the result is not specified.
CASES.append(
    Case("and.b32 %r50, {s1}, 31; fns.b32 {d0}, {s0}, %r50, {s2};", "b32", ("b32", "b32", "s32"), find_nth_set)
)


def halves(function: Callable[[int, int], int], is_signed: bool) -> Callable[[int, int], int]:
    def both(a: int, b: int) -> int:
        parts = [(x >> shift & 0xFFFF) for shift in (0, 16) for x in (a, b)]
        parts = [signed(x, 16) for x in parts] if is_signed else parts
        return (function(*parts[:2]) & 0xFFFF) | (function(*parts[2:]) & 0xFFFF) << 16

    return both


for sign in "us":
    kind = f"{sign}16x2"
    for name, function in (("add", lambda a, b: a + b), ("min", min), ("max", max)):
        case(f"{name}.{kind}", "b32 b32 b32", halves(function, sign == "s"))
case("min.relu.s16x2", "b32 b32 b32", halves(lambda a, b: max(min(a, b), 0), True))
case("max.relu.s16x2", "b32 b32 b32", halves(lambda a, b: max(a, b, 0), True))

VIDEO = {
    "vadd": lambda a, b: a + b, "vsub": lambda a, b: a - b, "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
    "vabsdiff": lambda a, b: abs(a - b), "vmin": min, "vmax": max,
}  # fmt: skip


def video(function: Callable[[int, int], int], count: int, types: str, end: str) -> Callable[[int, int, int], int]:
    width = 32 // count

    def all_parts(a: int, b: int, c: int) -> int:
        values = []
        for i in range(count):
            x, y = (v >> width * i & ((1 << width) - 1) for v in (a, b))
            value = function(signed(x, width) if types[1] == "s" else x, signed(y, width) if types[2] == "s" else y)
            if end == "sat":
                low, high = (-(1 << width - 1), (1 << width - 1) - 1) if types[0] == "s" else (0, (1 << width) - 1)
                value = clamp(value, low, high)
            values.append(value)
        if end == "add":
            return (c + sum(values)) & 0xFFFFFFFF
        return sum((value & ((1 << width) - 1)) << width * i for i, value in enumerate(values))

    return all_parts


for name, function in VIDEO.items():
    for count in (2, 4):
        for types in ("uuu", "sss", "sus"):
            for end in ("", "sat", "add"):
                text = ".".join(filter(None, (f"{name}{count}", *(f"{t}32" for t in types), end)))
                case(text, "b32 b32 b32 b32", video(function, count, types, end))


def pack(kind: str) -> Callable[..., int]:
    width = int(kind[1:])
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if kind[0] == "s" else (0, (1 << width) - 1)

    def function(a: int, b: int, c: int = 0) -> int:
        first, second = (clamp(signed(x, 32), low, high) & ((1 << width) - 1) for x in (a, b))
        return (c << 2 * width | first << width | second) & 0xFFFFFFFF

    return function


for kind in ("s16", "u16"):
    case(f"cvt.pack.sat.{kind}.s32", "b32 s32 s32", pack(kind))
for kind in ("s8", "u8", "s4", "u4", "s2", "u2"):
    case(f"cvt.pack.sat.{kind}.s32.b32", "b32 s32 s32 b32", pack(kind))

# ---- set and slct ----


def compared(test: str, kind: str, a: int, b: int) -> bool:
    if kind in WIDTHS:
        x, y = as_float(a, kind), as_float(b, kind)
        unordered = math.isnan(x) or math.isnan(y)
        if test in ("num", "nan"):
            return unordered == (test == "nan")
        name = test.removesuffix("u")
        ordered = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[name]
        return (unordered and test != name) or (ordered and not unordered)
    width = int(kind[1:])
    x, y = (signed(v, width) if kind[0] == "s" else v for v in (a, b))
    return TESTS[test](x, y)


ALL = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "f32": 0x3F800000, "u16": 0xFFFF, "f16": 0x3C00}
for test, kind in (("lt", "s32"), ("ge", "u64"), ("ne", "b16"), ("leu", "f32"), ("nan", "f64"), ("gt", "f16")):
    for to, yes in ALL.items():
        if to in ("u16", "f16") and kind != "f16":
            continue
        function = lambda a, b, t=test, k=kind, yes=yes: yes if compared(t, k, a, b) else 0  # noqa: E731
        case(f"set.{test}.{to}.{kind}", f"b{WIDTHS.get(to) or int(to[1:])} {kind} {kind}", function)
case(
    "set.lt.xor.u32.s32", "u32 s32 s32 pred",
    lambda a, b, p: 0xFFFFFFFF if compared("lt", "s32", a, b) != bool(p) else 0,
)  # fmt: skip
for kind in ("b16", "u32", "f64"):
    width = WIDTHS.get(kind) or int(kind[1:])
    case(f"slct.{kind}.s32", f"b{width} b{width} b{width} s32", lambda a, b, c: a if signed(c, 32) >= 0 else b)
    for ftz in ("", ".ftz"):

        def chosen(a: int, b: int, c: int, ftz: str = ftz) -> int:
            return a if as_float(flush(c, "f32") if ftz else c, "f32") >= 0 else b

        case(f"slct{ftz}.{kind}.f32", f"b{width} b{width} b{width} f32", chosen)


def kind_of(name: str, bits: int, kind: str) -> int:
    value = as_float(bits, kind)
    smallest = 2.0 ** (-126 if kind == "f32" else -1022)
    return int({
        "finite": math.isfinite(value), "infinite": math.isinf(value), "number": not math.isnan(value),
        "notanumber": math.isnan(value), "normal": math.isfinite(value) and (value == 0 or abs(value) >= smallest),
        "subnormal": 0 < abs(value) < smallest,
    }[name])  # fmt: skip


for name in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
    for kind in ("f32", "f64"):
        case(f"testp.{name}.{kind}", f"pred {kind}", lambda a, n=name, k=kind: kind_of(n, a, k))
for test in ("eq", "ltu", "ge", "num"):
    for kind in ("f16", "bf16"):
        for place in (0, 16):

            def half(a: int, b: int, t: str = test, k: str = kind, place: int = place) -> int:
                return int(compared(t, k, a >> place & 0xFFFF, b >> place & 0xFFFF))

            names = "{d0}|%p40" if place == 0 else "%p40|{d0}"
            CASES.append(Case(f"setp.{test}.{kind}x2 {names}, {{s0}}, {{s1}};", "pred", (f"{kind}x2",) * 2, half))

# ---- floating point ----


def signed_extreme(name: str, kind: str, ftz: bool) -> Callable[[int, int], object]:
    """min or max of the magnitudes, with the sign of the product."""
    top = WIDTHS[kind] - 1

    def function(a: int, b: int) -> object:
        a, b = (flush(x, kind) if ftz else x for x in (a, b))
        x, y = (abs(as_float(v, kind)) for v in (a, b))
        if (math.isnan(x) and math.isnan(y)) or ("NaN" in name and (math.isnan(x) or math.isnan(y))):
            return NAN
        both = [(v, w & ~(1 << top)) for v, w in ((x, a), (y, b)) if not math.isnan(v)]
        size = (min if name.startswith("min") else max)(both)[1]
        return size | (a ^ b) & 1 << top

    return function


for name in ("min", "max", "min.NaN", "max.NaN"):
    case(f"{name}.xorsign.abs.f32", "f32 f32 f32", signed_extreme(name, "f32", False))
    first, *nan = name.split(".")
    text = ".".join([first, "ftz", *nan, "xorsign.abs.f32"])
    case(text, "f32 f32 f32", signed_extreme(name, "f32", True))
    for kind in ("f16", "bf16"):
        case(f"{name}.xorsign.abs.{kind}", f"{kind} {kind} {kind}", signed_extreme(name, kind, False))
        both = packed(signed_extreme(name, kind, False))
        case(f"{name}.xorsign.abs.{kind}x2", f"{kind}x2 {kind}x2 {kind}x2", both)


def directed(name: str, kind: str, mode: str, ftz: bool = False, sat: bool = False) -> Callable[..., object]:
    def function(*values: int) -> object:
        if ftz:
            values = tuple(flush(bits, kind) for bits in values)
        if name == "rcp":
            result = operate("div", kind, mode, (round_float(Fraction(1), kind), *values))
        elif name == "sqrt":
            result = root(values[0], kind, mode)
        else:
            result = operate(name, kind, mode, values)
        if ftz and result is not NAN:
            result = flush(result, kind)
        return saturated(result, kind) if sat else result

    return function


def root(bits: int, kind: str, mode: str) -> object:
    """The rounded square root, from the integer one of a number scaled by an even power of two."""
    value = as_float(bits, kind)
    if math.isnan(value) or value < 0:
        return NAN
    if value == 0 or math.isinf(value):
        return bits
    exact = decode_float(bits, kind)
    scaled = exact * Fraction(4) ** 1200
    whole = math.isqrt(scaled.numerator // scaled.denominator)
    # A sticky half unit, far below the last place, stands for the digits that follow.
    inexact = Fraction(whole) ** 2 != scaled
    return round_float((Fraction(whole) + (Fraction(1, 2) if inexact else 0)) / Fraction(2) ** 1200, kind, mode)


for mode in ("rz", "rm", "rp"):
    for kind in ("f32", "f64"):
        case(f"rcp.{mode}.{kind}", f"{kind} {kind}", directed("rcp", kind, mode))
        case(f"sqrt.{mode}.{kind}", f"{kind} {kind}", directed("sqrt", kind, mode))
    for name in ("sub", "div"):
        case(f"{name}.{mode}.f64", "f64 f64 f64", directed(name, "f64", mode))
        case(f"{name}.{mode}.ftz.f32", "f32 f32 f32", directed(name, "f32", mode, True))
    for name in ("rcp", "sqrt"):
        case(f"{name}.{mode}.ftz.f32", "f32 f32", directed(name, "f32", mode, True))
    for name in ("add", "sub", "mul"):
        case(f"{name}.{mode}.sat.f32", "f32 f32 f32", directed(name, "f32", mode, False, True))
    case(f"fma.{mode}.ftz.sat.f32", "f32 f32 f32 f32", directed("fma", "f32", mode, True, True))


def extreme16(name: str) -> Callable[[int, int], object]:
    def function(a: int, b: int) -> object:
        a, b = flush(a, "f16"), flush(b, "f16")
        pairs = [(as_float(v, "f16"), -(v >> 15), v) for v in (a, b)]
        real = [p for p in pairs if not math.isnan(p[0])]
        if not real or (len(real) == 1 and "NaN" in name):
            return NAN
        return (min if name.startswith("min") else max)(real)[2]

    return function


for name in ("min.ftz", "max.ftz", "min.ftz.NaN", "max.ftz.NaN"):
    case(f"{name}.f16", "f16 f16 f16", extreme16(name))
    case(f"{name}.f16x2", "f16x2 f16x2 f16x2", packed(extreme16(name)))
for name, function in (
    ("neg", lambda a: flush(a, "f16") ^ 0x8000), ("abs", lambda a: flush(a, "f16") & 0x7FFF),
):  # fmt: skip
    case(f"{name}.ftz.f16", "f16 f16", function)
    case(f"{name}.ftz.f16x2", "f16x2 f16x2", packed(function))
for name in ("add", "sub", "mul", "fma"):
    kinds = 4 if name == "fma" else 3
    round_ = "rn." if name == "fma" else ""
    function = directed(name, "f16", "rn", True, True)
    case(f"{name}.{round_}ftz.sat.f16", " ".join(["f16"] * kinds), function)
    case(f"{name}.{round_}ftz.sat.f16x2", " ".join(["f16x2"] * kinds), packed(function))


def positive(bits: object, kind: str) -> object:
    return bits if bits is NAN else 0 if as_float(bits, kind) <= 0 else bits


for kind in ("f16", "f16x2"):
    one = lambda *v: positive(directed("fma", "f16", "rn", True)(*v), "f16")  # noqa: E731
    case(f"fma.rn.ftz.relu.{kind}", " ".join([kind] * 4), one if kind == "f16" else packed(one))

# ---- conversions ----


def narrow(kind: str, mode: str, from_: str, end: str = "") -> Callable[[int], object]:
    def function(bits: int) -> object:
        if from_ in WIDTHS:
            value = as_float(bits, from_)
            if math.isnan(value):
                return 0 if end == "sat" else NAN
            sign = int(math.copysign(1, value) < 0)
            if math.isinf(value):
                result = (0x7C00 if kind == "f16" else 0x7F80 if kind == "bf16" else 0x7F800000) | sign << WIDTHS[
                    kind
                ] - 1
            else:
                result = round_float(Fraction(value), kind, mode, sign)
        else:
            width = int(from_[1:])
            result = round_float(
                Fraction(signed(bits, width) if from_[0] == "s" else bits & ((1 << width) - 1)), kind, mode
            )
        if end == "sat":
            return saturated(result, kind)
        if "relu" in end:
            result = 0 if as_float(result, kind) <= 0 else result
        if "satfinite" in end and math.isinf(as_float(result, kind)):
            result -= 1
        return result

    return function


for kind in ("f16", "bf16"):
    for mode in ("rz", "rm", "rp"):
        for from_ in ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f64"):
            case(f"cvt.{mode}.{kind}.{from_}", f"{kind} {from_}", narrow(kind, mode, from_))
    for mode in ("rm", "rp"):
        case(f"cvt.{mode}.{kind}.f32", f"{kind} f32", narrow(kind, mode, "f32"))
    for mode in ("rn", "rz"):
        for end in ("relu", "satfinite", "relu.satfinite"):
            if (mode, end) != ("rn", "relu"):
                case(f"cvt.{mode}.{end}.{kind}.f32", f"{kind} f32", narrow(kind, mode, "f32", end))

                one = narrow(kind, mode, "f32", end)

                def two(high: int, low: int, one: Callable[[int], object] = one) -> tuple[object, object]:
                    return one(low), one(high)

                case(f"cvt.{mode}.{end}.{kind}x2.f32", f"{kind}x2 f32 f32", two)
for mode in ("rz", "rp"):
    case(f"cvt.{mode}.f32.u8", "f32 u8", narrow("f32", mode, "u8"))
case("cvt.rn.sat.f32.s32", "f32 s32", narrow("f32", "rn", "s32", "sat"))
case("cvt.rn.sat.f16.f32", "f16 f32", narrow("f16", "rn", "f32", "sat"))
case("cvt.rz.sat.f32.f64", "f32 f64", narrow("f32", "rz", "f64", "sat"))
case("cvt.rn.ftz.f16.f32", "f16 f32", lambda a: narrow("f16", "rn", "f32")(flush(a, "f32")))
DOWN = narrow("f32", "rm", "f64")
case("cvt.rm.ftz.f32.f64", "f32 f64", lambda a: NAN if DOWN(a) is NAN else flush(DOWN(a), "f32"))
case("cvt.sat.f64.f64", "f64 f64", lambda a: 0 if math.isnan(as_float(a, "f64")) else saturated(a, "f64"))
case("cvt.sat.f16.f16", "f16 f16", lambda a: 0 if math.isnan(as_float(a, "f16")) else saturated(a, "f16"))
case("cvt.f16.f16", "f16 f16", lambda a: a)


def tf32(relu: bool, nearest: bool) -> Callable[[int], object]:
    def function(bits: int) -> object:
        value = as_float(bits, "f32")
        if math.isnan(value):
            return NAN
        if relu and value <= 0:
            return 0
        if math.isinf(value):
            return bits
        size = bits & 0x7FFFFFFF
        whole, rest = divmod(size, 1 << 13)
        up = nearest and (rest > 1 << 12 or (rest == 1 << 12 and whole & 1))
        return (whole + up) << 13 | bits & 1 << 31

    return function


case("cvt.rz.tf32.f32", "f32 f32", tf32(False, False))
case("cvt.rn.relu.tf32.f32", "f32 f32", tf32(True, True))
case("cvt.rz.relu.tf32.f32", "f32 f32", tf32(True, False))


def whole(kind: str, mode: str, to: str) -> Callable[[int], int]:
    to_signed, width = to[0] == "s", int(to[1:])

    def function(bits: int) -> int:
        value = as_float(bits, kind)
        if math.isnan(value):
            return 1 << 63 if width == 64 else 0
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if to_signed else (0, (1 << width) - 1)
        if math.isinf(value):
            return (high if value > 0 else low) & ((1 << max(width, 16)) - 1)
        rounded = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode](Fraction(value))
        result = clamp(rounded, low, high)
        return result & ((1 << max(width, 16)) - 1)

    return function


for to in ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"):
    for mode in ("rni", "rzi", "rmi", "rpi"):
        case(f"cvt.{mode}.{to}.bf16", f"b{max(int(to[1:]), 16)} bf16", whole("bf16", mode, to))


# ---- fma.oob: +0 where a factor is the NaN that tensor copies fill in ----

OUTSIDE = 0x7FF7


def outside(kind: str, relu: bool) -> Callable[..., object]:
    plain = forms("fma", kind, end="relu" if relu else "")
    return lambda a, b, c: 0 if OUTSIDE in (a, b) else plain(a, b, c)


def with_factor(place: int, value: int, function: Callable[..., object]) -> Callable[..., object]:
    """A factor becomes ``value`` where the summand's bits are below 2 ** 14."""

    def chosen(*values: int) -> object:
        factors = list(values)
        if values[2] < 16384:
            factors[place] = value
        return function(*factors)

    return chosen


def in_one_half(function: Callable[..., object]) -> Callable[..., object]:
    both = packed(function)
    return lambda a, b, c: both(0x3C000000 | OUTSIDE if c < 1 << 30 else a, b, c)


for kind in ("f16", "bf16"):
    for relu in (False, True):
        name, function = f"fma.rn.oob{'.relu' * relu}.{kind}", outside(kind, relu)
        for place in range(2):
            for value in (OUTSIDE, OUTSIDE + 1):
                operands = ["{s0}", "{s1}", "{s2}"]
                operands[place] = "%h50"
                text = f"mov.b16 %h51, {value}; setp.lt.u16 %p40, {{s2}}, 16384;"
                text += f"selp.b16 %h50, %h51, {{s{place}}}, %p40; {name} {{d0}}, {', '.join(operands)};"
                CASES.append(Case(text, kind, (kind,) * 3, with_factor(place, value, function)))
        text = f"setp.lt.u32 %p40, {{s2}}, 0x40000000; selp.b32 %r50, {0x3C000000 | OUTSIDE}, {{s0}}, %p40;"
        text += f"{name}x2 {{d0}}, %r50, {{s1}}, {{s2}};"
        CASES.append(Case(text, f"{kind}x2", (f"{kind}x2",) * 3, in_one_half(function)))
