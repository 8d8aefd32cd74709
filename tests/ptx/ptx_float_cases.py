"""Exact statements of the floating point instructions, in rational numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from ptx_integer_cases import Case
from ptx_support import WIDTHS, decode_float, round_float, signed

CASES: list[Case] = []
NAN = object()  # any NaN is right


def case(text: str, kinds: str, function: Callable[..., object]) -> None:
    destination, *sources = kinds.split()
    marks = ", ".join(f"{{s{i}}}" for i in range(len(sources)))
    CASES.append(Case(f"{text} {{d0}}, {marks};", destination, tuple(sources), function))


def flush(bits: int, kind: str) -> int:
    value = decode_float(bits, kind)
    smallest = Fraction(2) ** (-14 if kind == "f16" else -126)
    is_subnormal = isinstance(value, Fraction) and 0 < abs(value) < smallest
    return bits & 1 << (WIDTHS[kind] - 1) if is_subnormal else bits


def as_float(bits: int, kind: str) -> float:
    """The value as a Python float with its signed zero: exact for every format."""
    value = float(decode_float(bits, kind))
    return -0.0 if value == 0 and bits >> (WIDTHS[kind] - 1) else value


def operate(name: str, kind: str, mode: str, values: tuple[int, ...]) -> object:
    """The correctly rounded result of one operation on bit patterns."""
    floats = [as_float(bits, kind) for bits in values]
    if any(math.isnan(x) for x in floats):
        return NAN
    exact = [Fraction(x) if math.isfinite(x) else None for x in floats]
    top = WIDTHS[kind] - 1
    infinite = (1 << WIDTHS[kind]) - 1 - (1 << top) - round_mask(kind)
    # Surrogates of moderate size keep the signs and the infinities, and cannot overflow.
    tame = [x if not math.isfinite(x) or x == 0 else math.copysign(1.5, x) for x in floats]
    if name == "div":
        if floats[1] == 0:
            return (
                NAN
                if floats[0] == 0
                else infinite | int(math.copysign(1, floats[0]) * math.copysign(1, floats[1]) < 0) << top
            )
        special, formula = tame[0] / tame[1] if not all(map(math.isinf, tame)) else math.nan, lambda a, b: a / b
    elif name == "fma":
        special, formula = tame[0] * tame[1] + tame[2], lambda a, b, c: a * b + c
    elif name == "mul":
        special, formula = tame[0] * tame[1], lambda a, b: a * b
    else:
        sign = 1 if name == "add" else -1
        special, formula = tame[0] + sign * tame[1], lambda a, b: a + sign * b
    if None in exact:
        if math.isnan(special):
            return NAN
        return (infinite if math.isinf(special) else 0) | int(math.copysign(1, special) < 0) << top
    result = formula(*exact)
    if result != 0:
        return round_float(result, kind, mode)
    return zero(name, floats, mode) << top


def round_mask(kind: str) -> int:
    return (1 << {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[kind]) - 1


def zero(name: str, floats: list[float], mode: str) -> int:
    """The sign of an exact zero."""
    signs = [math.copysign(1, x) for x in floats]
    if name in ("mul", "div"):
        return int(signs[0] * signs[1] < 0)
    last = signs[-1] if name in ("add", "fma") else -signs[-1]
    terms = [signs[0] * signs[1] if name == "fma" else signs[0], last]
    if terms[0] == terms[1]:
        return int(terms[0] < 0)
    return int(mode == "rm")


def saturated(bits: object, kind: str) -> object:
    if bits is NAN:
        return 0
    value = as_float(bits, kind)
    return 0 if value <= 0 else round_float(Fraction(1), kind) if value >= 1 else bits


def relu(bits: object, kind: str) -> object:
    return bits if bits is NAN else 0 if as_float(bits, kind) <= 0 else bits


def forms(name: str, kind: str, mode: str = "rn", ftz: bool = False, end: str = "") -> Callable[..., object]:
    def function(*values: int) -> object:
        if ftz:
            values = tuple(flush(bits, kind) for bits in values)
        result = operate(name, kind, mode, values)
        if ftz and result is not NAN:
            result = flush(result, kind)
        return saturated(result, kind) if end == "sat" else relu(result, kind) if end == "relu" else result

    return function


def packed(function: Callable[..., object], width: int = 16) -> Callable[..., object]:
    def both(*values: int) -> object:
        low = function(*(bits & (1 << width) - 1 for bits in values))
        high = function(*(bits >> width for bits in values))
        return (low, high)

    return both


def count(name: str) -> int:
    return 3 if name == "fma" else 2


for op in ("add", "sub", "mul", "fma"):
    for ftz in ("", ".ftz"):
        kinds = " ".join(["f32x2"] * (count(op) + 1))
        for mode in ("rn", "rz", "rm", "rp"):
            case(f"{op}.{mode}{ftz}.f32x2", kinds, packed(forms(op, "f32", mode, bool(ftz)), 32))

for op in ("add", "sub", "mul", "fma"):
    rn = ".rn" if op == "fma" else ""
    n = count(op)
    for ftz in ("", ".ftz"):
        case(f"{op}{rn}{ftz}.f32", " ".join(["f32"] * (n + 1)), forms(op, "f32", ftz=bool(ftz)))
        case(f"{op}{rn}{ftz}.sat.f32", " ".join(["f32"] * (n + 1)), forms(op, "f32", ftz=bool(ftz), end="sat"))
        case(f"{op}{rn}{ftz}.f16", " ".join(["f16"] * (n + 1)), forms(op, "f16", ftz=bool(ftz)))
        case(f"{op}{rn}{ftz}.f16x2", " ".join(["f16x2"] * (n + 1)), packed(forms(op, "f16", ftz=bool(ftz))))
    for mode in ("rz", "rm", "rp"):
        case(f"{op}.{mode}.f32", " ".join(["f32"] * (n + 1)), forms(op, "f32", mode))
        if op != "sub":
            case(f"{op}.{mode}.ftz.f32", " ".join(["f32"] * (n + 1)), forms(op, "f32", mode, ftz=True))
            case(f"{op}.{mode}.f64", " ".join(["f64"] * (n + 1)), forms(op, "f64", mode))
    case(f"{op}.rn.f64", " ".join(["f64"] * (n + 1)), forms(op, "f64"))
    case(f"{op}{rn}.sat.f16", " ".join(["f16"] * (n + 1)), forms(op, "f16", end="sat"))
    case(f"{op}{rn}.sat.f16x2", " ".join(["f16x2"] * (n + 1)), packed(forms(op, "f16", end="sat")))
    case(f"{op}.rn.bf16", " ".join(["bf16"] * (n + 1)), forms(op, "bf16"))
    case(f"{op}.rn.bf16x2", " ".join(["bf16x2"] * (n + 1)), packed(forms(op, "bf16")))
for kind in ("f16", "bf16"):
    case(f"fma.rn.relu.{kind}", f"{kind} {kind} {kind} {kind}", forms("fma", kind, end="relu"))
    case(f"fma.rn.relu.{kind}x2", " ".join([f"{kind}x2"] * 4), packed(forms("fma", kind, end="relu")))
case("div.rn.f32", "f32 f32 f32", forms("div", "f32"))
case("div.rn.ftz.f32", "f32 f32 f32", forms("div", "f32", ftz=True))
case("div.rn.f64", "f64 f64 f64", forms("div", "f64"))
for mode in ("rz", "rm", "rp"):
    case(f"div.{mode}.f32", "f32 f32 f32", forms("div", "f32", mode))
ONE = {"f32": 0x3F800000, "f64": 0x3FF0000000000000}
for text, kind, ftz in (("rcp.rn.f32", "f32", False), ("rcp.rn.ftz.f32", "f32", True), ("rcp.rn.f64", "f64", False)):
    case(text, f"{kind} {kind}", lambda a, kind=kind, ftz=ftz: forms("div", kind, ftz=ftz)(ONE[kind], a))


def root(kind: str, ftz: bool = False) -> Callable[[int], object]:
    def function(bits: int) -> object:
        bits = flush(bits, kind) if ftz else bits
        x = as_float(bits, kind)
        if math.isnan(x) or x < 0:
            return NAN
        if x == 0 or math.isinf(x):
            return bits
        value = Fraction(x)
        shift = 700
        scaled = value * Fraction(2) ** (2 * shift)
        whole = math.isqrt(scaled.numerator // scaled.denominator)
        sticky = Fraction(0) if whole * whole == scaled else Fraction(1, 2)
        return round_float((whole + sticky) / Fraction(2) ** shift, kind)

    return function


case("sqrt.rn.f32", "f32 f32", root("f32"))
case("sqrt.rn.ftz.f32", "f32 f32", root("f32", True))
case("sqrt.rn.f64", "f64 f64", root("f64"))


def extreme(kind: str, largest: bool, nan: bool = False, ftz: bool = False) -> Callable[[int, int], object]:
    """min and max: a NaN gives way, or wins in the .NaN forms; -0 is less than +0."""

    def function(a: int, b: int) -> object:
        a, b = (flush(a, kind), flush(b, kind)) if ftz else (a, b)
        x, y = as_float(a, kind), as_float(b, kind)
        if math.isnan(x) or math.isnan(y):
            return NAN if nan or (math.isnan(x) and math.isnan(y)) else b if math.isnan(x) else a
        key = [(x, math.copysign(1, x)), (y, math.copysign(1, y))]
        return (a if key[0] >= key[1] else b) if largest else (a if key[0] <= key[1] else b)

    return function


for name, largest in (("min", False), ("max", True)):
    for nan in ("", ".NaN"):
        for ftz in ("", ".ftz"):
            case(f"{name}{ftz}{nan}.f32", "f32 f32 f32", extreme("f32", largest, bool(nan), bool(ftz)))
        for kind in ("f16", "bf16"):
            case(f"{name}{nan}.{kind}", f"{kind} {kind} {kind}", extreme(kind, largest, bool(nan)))
            case(f"{name}{nan}.{kind}x2", " ".join([f"{kind}x2"] * 3), packed(extreme(kind, largest, bool(nan))))
    case(f"{name}.f64", "f64 f64 f64", extreme("f64", largest))


def of_three(name: str, nan: bool, ftz: bool, magnitudes: bool) -> Callable[[int, int, int], object]:
    pick = extreme("f32", name == "max", nan, ftz)

    def function(*values: int) -> object:
        a, b, c = ((bits & 0x7FFFFFFF) if magnitudes else bits for bits in values)
        first = pick(a, b)
        if first is NAN:
            c_is_nan = math.isnan(as_float(c, "f32"))
            return NAN if nan or c_is_nan else flush(c, "f32") if ftz else c
        return pick(first, c)

    return function


for name in ("min", "max"):
    for nan in ("", ".NaN"):
        for ftz in ("", ".ftz"):
            for magnitudes in ("", ".abs"):
                meaning = of_three(name, bool(nan), bool(ftz), bool(magnitudes))
                case(f"{name}{ftz}{nan}{magnitudes}.f32", "f32 f32 f32 f32", meaning)


def sign_operation(kind: str, name: str, ftz: bool = False) -> Callable[..., object]:
    top = 1 << (WIDTHS[kind] - 1)

    def function(a: int, b: int = 0) -> object:
        a = flush(a, kind) if ftz else a
        if math.isnan(as_float(a, kind)) and name != "copysign":
            return NAN
        return a ^ top if name == "neg" else a & ~top if name == "abs" else (a & top) | (b & ~top)

    return function


for name in ("neg", "abs"):
    for kind in ("f32", "f64", "f16", "bf16"):
        case(f"{name}.{kind}", f"{kind} {kind}", sign_operation(kind, name))
    case(f"{name}.ftz.f32", "f32 f32", sign_operation("f32", name, True))
    for kind in ("f16", "bf16"):
        case(f"{name}.{kind}x2", f"{kind}x2 {kind}x2", packed(sign_operation(kind, name)))
for kind in ("f32", "f64"):
    case(f"copysign.{kind}", f"{kind} {kind} {kind}", sign_operation(kind, "copysign"))

# ---- comparisons ----

ORDERED = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def compare(test: str, kind: str, ftz: bool) -> Callable[[int, int], int]:
    def function(a: int, b: int) -> int:
        x, y = (as_float(flush(bits, kind) if ftz else bits, kind) for bits in (a, b))
        unordered = math.isnan(x) or math.isnan(y)
        if test in ("num", "nan"):
            return int(unordered == (test == "nan"))
        if unordered:
            return int(test not in ORDERED)
        return int(ORDERED[test if test in ORDERED else test[:-1]](x, y))

    return function


for test in (*ORDERED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
    for kind in ("f32", "f64", "f16", "bf16"):
        case(f"setp.{test}.{kind}", f"pred {kind} {kind}", compare(test, kind, False))
    case(f"setp.{test}.ftz.f32", "pred f32 f32", compare(test, "f32", True))


def set_both(test: str, kind: str, true: int) -> Callable[..., object]:
    holds = compare(test, kind, False)
    return packed(lambda a, b: true if holds(a, b) else 0)


for test in (*ORDERED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
    for kind, one in (("f16", 0x3C00), ("bf16", 0x3F80)):
        holds = compare(test, kind, False)
        case(f"set.{test}.{kind}.{kind}", f"{kind} {kind} {kind}", lambda a, b, f=holds, one=one: one if f(a, b) else 0)
        case(f"set.{test}.{kind}x2.{kind}x2", f"{kind}x2 {kind}x2 {kind}x2", set_both(test, kind, one))
        case(f"set.{test}.u32.{kind}x2", f"f16x2 {kind}x2 {kind}x2", set_both(test, kind, 0xFFFF))

# ---- conversions ----


def narrow(to: str, from_: str, mode: str = "rn", ftz: bool = False, end: str = "") -> Callable[[int], object]:
    def function(bits: int) -> object:
        bits = flush(bits, from_) if ftz and from_ == "f32" else bits
        value = decode_float(bits, from_)
        if isinstance(value, float) and math.isnan(value):
            return 0 if end == "sat" else NAN
        negative = bits >> (WIDTHS[from_] - 1)
        if isinstance(value, float):
            result = (1 << WIDTHS[to] - 1) - 1 - round_mask(to) | negative << (WIDTHS[to] - 1)
        else:
            result = round_float(value, to, mode, negative)
        result = flush(result, to) if ftz and to == "f32" else result
        return saturated(result, to) if end == "sat" else relu(result, to) if end == "relu" else result

    return function


def pair(function: Callable[[int], object]) -> Callable[[int, int], object]:
    return lambda high, low: (function(low), function(high))


def mixed(op: str, kind: str, mode: str, end: str) -> Callable[..., object]:
    """An f32 operation whose operands but the last one are ``kind``."""
    inner, widen = forms(op, "f32", mode, end=end), narrow("f32", kind)

    def function(*values: int) -> object:
        wide = [widen(bits) for bits in values[:-1]]
        return (0 if end else NAN) if NAN in wide else inner(*wide, values[-1])

    return function


for op in ("add", "sub", "fma"):
    for kind in ("f16", "bf16"):
        kinds = " ".join(["f32", *[kind] * (count(op) - 1), "f32"])
        for mode in ("rn", "rz", "rm", "rp"):
            for end in ("", "sat"):
                case(f"{op}.{mode}{'.' * bool(end)}{end}.f32.{kind}", kinds, mixed(op, kind, mode, end))

for kind in ("f16", "bf16"):
    for mode in ("rn", "rz"):
        case(f"cvt.{mode}.{kind}.f32", f"{kind} f32", narrow(kind, "f32", mode))
        case(f"cvt.{mode}.{kind}x2.f32", f"{kind}x2 f32 f32", pair(narrow(kind, "f32", mode)))
    case(f"cvt.rn.relu.{kind}.f32", f"{kind} f32", narrow(kind, "f32", end="relu"))
    case(f"cvt.rn.relu.{kind}x2.f32", f"{kind}x2 f32 f32", pair(narrow(kind, "f32", end="relu")))
    case(f"cvt.f32.{kind}", f"f32 {kind}", narrow("f32", kind))
    case(f"cvt.f64.{kind}", f"f64 {kind}", narrow("f64", kind))
    case(f"cvt.rn.{kind}.f64", f"{kind} f64", narrow(kind, "f64"))
case("cvt.ftz.f32.f16", "f32 f16", narrow("f32", "f16", ftz=True))
case("cvt.rn.bf16.f16", "bf16 f16", narrow("bf16", "f16"))
case("cvt.rn.f16.bf16", "f16 bf16", narrow("f16", "bf16"))
case("cvt.f64.f32", "f64 f32", narrow("f64", "f32"))
case("cvt.ftz.f64.f32", "f64 f32", narrow("f64", "f32", ftz=True))
for mode in ("rn", "rz", "rm", "rp"):
    case(f"cvt.{mode}.f32.f64", "f32 f64", narrow("f32", "f64", mode))
case("cvt.rn.ftz.f32.f64", "f32 f64", narrow("f32", "f64", ftz=True))
case("cvt.f32.f32", "f32 f32", narrow("f32", "f32"))
case("cvt.sat.f32.f32", "f32 f32", narrow("f32", "f32", end="sat"))
case("cvt.ftz.f32.f32", "f32 f32", narrow("f32", "f32", ftz=True))
case("cvt.ftz.sat.f32.f32", "f32 f32", narrow("f32", "f32", ftz=True, end="sat"))


def whole(value: Fraction, mode: str) -> int:
    low = math.floor(value)
    if mode == "rni":
        rest = value - low
        return low + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low & 1))
    return {"rzi": math.trunc(value), "rmi": low, "rpi": math.ceil(value)}[mode]


def to_integer(to: str, from_: str, mode: str, ftz: bool) -> Callable[[int], int]:
    is_signed, width = to[0] == "s", int(to[1:])

    def function(bits: int) -> int:
        value = decode_float(flush(bits, from_) if ftz else bits, from_)
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
        if isinstance(value, float):
            if math.isnan(value):
                result = 1 << width - 1 if from_ == "f64" or width == 64 else 0
            else:
                result = high if value > 0 else low
        else:
            result = max(low, min(high, whole(value, mode)))
        register = max(width, 16)
        return (signed(result, width) if is_signed else result) & ((1 << register) - 1)

    return function


def rounded(kind: str, mode: str) -> Callable[[int], object]:
    def function(bits: int) -> object:
        value = decode_float(bits, kind)
        if isinstance(value, float):
            return NAN if math.isnan(value) else bits
        return round_float(Fraction(whole(value, mode)), kind, zero_sign=bits >> (WIDTHS[kind] - 1))

    return function


for mode in ("rni", "rzi", "rmi", "rpi"):
    for from_ in ("f32", "f64", "f16"):
        for width in (8, 16, 32, 64):
            for sign in "su":
                to = f"{sign}{width}"
                case(f"cvt.{mode}.{to}.{from_}", f"b{max(width, 16)} {from_}", to_integer(to, from_, mode, False))
    case(f"cvt.{mode}.ftz.s32.f32", "b32 f32", to_integer("s32", "f32", mode, True))
    for kind in ("f32", "f64", "f16", "bf16"):
        case(f"cvt.{mode}.{kind}.{kind}", f"{kind} {kind}", rounded(kind, mode))
for width in (8, 16, 32, 64):
    for sign in "su":
        for kind in ("f32", "f64", "f16", "bf16"):

            def from_integer(bits: int, kind: str = kind, sign: str = sign, width: int = width) -> int:
                value = signed(bits, width) if sign == "s" else bits & ((1 << width) - 1)
                return round_float(Fraction(value), kind)

            case(f"cvt.rn.{kind}.{sign}{width}", f"{kind} b{max(width, 16)}", from_integer)
for width in (32, 64):
    for sign in "su":
        for kind in ("f32", "f64"):
            for mode in ("rz", "rm", "rp"):

                def directed(bits: int, kind: str = kind, sign: str = sign, w: int = width, mode: str = mode) -> int:
                    return round_float(Fraction(signed(bits, w) if sign == "s" else bits), kind, mode)

                case(f"cvt.{mode}.{kind}.{sign}{width}", f"{kind} b{width}", directed)


def tf32(away: bool) -> Callable[[int], object]:
    def function(bits: int) -> object:
        if bits >> 23 & 255 == 255:
            return NAN if bits & 0x7FFFFF else bits
        low = bits & 0x1FFF
        up = low >= 0x1000 if away else low > 0x1000 or (low == 0x1000 and bits >> 13 & 1)
        return (bits & ~0x1FFF) + (0x2000 if up else 0)

    return function


case("cvt.rn.tf32.f32", "f32 f32", tf32(False))
case("cvt.rna.tf32.f32", "f32 f32", tf32(True))
