"""Exact statements of the conversions from and to 8, 6 and 4 bits: every value written out, and random bits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

from ptx_float_cases import NAN
from ptx_integer_cases import Case
from ptx_support import WIDTHS, decode_float, round_float, signed

CASES: list[Case] = []
# Exponent bits, mantissa bits, bias, and the magnitudes that are no numbers.
FORMATS = {
    "e4m3": (4, 3, 7, {127}), "e5m2": (5, 2, 15, {124, 125, 126, 127}), "e2m3": (2, 3, 1, set()),
    "e3m2": (3, 2, 3, set()), "e2m1": (2, 1, 1, set()),
}  # fmt: skip


def case(text: str, kinds: str, function: Callable[..., object], *, braces: bool = False) -> None:
    destination, *sources = kinds.split()
    marks = [f"{{s{i}}}" for i in range(len(sources))]
    listed = f"{{{{{', '.join(marks[:4])}}}}}, {marks[4]}" if braces else ", ".join(marks)
    CASES.append(Case(f"{text} {{d0}}, {listed};", destination, tuple(sources), function))


def magnitudes(name: str) -> dict[int, Fraction]:
    """The values of the codes without a sign."""
    exponent_bits, mantissa_bits, bias, special = FORMATS[name]
    values = {}
    for code in sorted(set(range(1 << exponent_bits + mantissa_bits)) - special):
        exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
        scale = Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)
        values[code] = scale * (mantissa | (1 << mantissa_bits if exponent else 0))
    return values


VALUES = {name: magnitudes(name) for name in FORMATS}


def bits_of(name: str) -> int:
    return sum(FORMATS[name][:2]) + 1


def step_of(name: str) -> int:
    """How far apart the codes of a pair or of four are: six bits lie in a byte each."""
    return 4 if name == "e2m1" else 8


def nan_of(name: str) -> int:
    return 127 if FORMATS[name][3] else max(VALUES[name])


def relu(bits: int, kind: str) -> int:
    value = decode_float(bits, kind)
    nan = isinstance(value, float) and math.isnan(value)
    return 0 if bits >> (WIDTHS[kind] - 1) and not nan else bits


def encode(name: str, kind: str, positive: bool = False) -> Callable[[int], int]:
    values = VALUES[name]
    largest = max(values.values())

    def function(bits: int) -> int:
        bits = relu(bits, kind) if positive else bits
        value = decode_float(bits, kind)
        if isinstance(value, float) and math.isnan(value):
            return nan_of(name)
        size = largest if isinstance(value, float) else min(abs(value), largest)
        best = min(values, key=lambda code: (abs(values[code] - size), code & 1))
        return bits >> (WIDTHS[kind] - 1) << (bits_of(name) - 1) | best

    return functools.cache(function)


def decode(name: str, positive: bool) -> Callable[[int], object]:
    step, top = step_of(name), bits_of(name) - 1

    def one(code: int) -> object:
        sign, size = code >> top & 1, code & ((1 << top) - 1)
        value = VALUES[name].get(size)
        if value is None and (name != "e5m2" or size != 124):
            return NAN
        if positive and sign:
            return 0
        return (0x7C00 if value is None else round_float(value, "f16")) | sign << 15

    return lambda bits: tuple(one(bits >> step * i & ((1 << step) - 1)) for i in range(2))


for name in FORMATS:
    full, step = f"{name}x2", step_of(name)
    for end in ("", ".relu"):
        of_f32, of_f16, of_bf16 = (encode(name, kind, bool(end)) for kind in ("f32", "f16", "bf16"))

        def two(high: int, low: int, f: Callable[[int], int] = of_f32, step: int = step) -> int:
            return f(high) << step | f(low)

        case(f"cvt.rn.satfinite{end}.{full}.f32", f"{full} f32 f32", two)
        for kind, one in (("f16", of_f16), ("bf16", of_bf16)):

            def packed(x: int, f: Callable[[int], int] = one, step: int = step) -> int:
                return f(x >> 16) << step | f(x & 0xFFFF)

            case(f"cvt.rn.satfinite{end}.{full}.{kind}x2", f"{full} {kind}x2", packed)
        case(f"cvt.rn{end}.f16x2.{full}", f"f16x2 {full}", decode(name, bool(end)))

# ---- powers of two, and 64ths with a power of two each ----


def power(mode: str, finite: bool, kind: str) -> Callable[[int], int]:
    def function(bits: int) -> int:
        value = decode_float(bits, kind)
        if isinstance(value, float):
            return 255 if math.isnan(value) or not finite else 254
        size = abs(value)
        if mode == "rz":
            code = max((code for code in range(255) if Fraction(2) ** (code - 127) <= size), default=0)
        else:
            code = min((code for code in range(255) if Fraction(2) ** (code - 127) >= size), default=255)
        return 254 if finite and code == 255 else code

    return functools.cache(function)


for mode in ("rz", "rp"):
    for finite in ("", ".satfinite"):
        f, g = power(mode, bool(finite), "f32"), power(mode, bool(finite), "bf16")
        case(f"cvt.{mode}{finite}.ue8m0x2.f32", "ue8m0x2 f32 f32", lambda a, b, f=f: f(a) << 8 | f(b))
        case(f"cvt.{mode}{finite}.ue8m0x2.bf16x2", "ue8m0x2 bf16x2", lambda x, g=g: g(x >> 16) << 8 | g(x & 0xFFFF))


def scale(code: int) -> Fraction | None:
    return None if code == 255 else Fraction(2) ** (code - 127)


def widened(code: int) -> object:
    return NAN if code == 255 else round_float(scale(code), "bf16")


case("cvt.rn.bf16x2.ue8m0x2", "bf16x2 ue8m0x2", lambda x: (widened(x & 255), widened(x >> 8)))


def in_64ths(bits: int, kind: str, by: int, positive: bool) -> int:
    value = decode_float(relu(bits, kind) if positive else bits, kind)
    nan = isinstance(value, float) and math.isnan(value)
    if by == 255 or nan:
        return 127
    if isinstance(value, float):
        return 127 if value > 0 else 128
    return max(-128, min(127, round(value / scale(by) * 64))) & 255


def from_64ths(code: int, by: int, end: str) -> object:
    if by == 255:
        return NAN
    value = Fraction(signed(code, 8), 64) * scale(by)
    result = round_float(value, "bf16")
    if "relu" in end and value < 0:
        return 0
    return result - 1 if "satfinite" in end and result & 0x7FFF == 0x7F80 else result


SCALED = ".scaled::n2::ue8m0"
for end in ("", ".relu"):

    def pair(a: int, b: int, by: int = 0x7F7F, p: bool = bool(end)) -> int:
        return in_64ths(a, "f32", by >> 8, p) << 8 | in_64ths(b, "f32", by & 255, p)

    def halves(x: int, by: int = 0x7F7F, p: bool = bool(end)) -> int:
        return in_64ths(x >> 16, "bf16", by >> 8, p) << 8 | in_64ths(x & 0xFFFF, "bf16", by & 255, p)

    for scaled, more in (("", ""), (SCALED, " ue8m0x2")):
        case(f"cvt.rn.satfinite{end}{scaled}.s2f6x2.f32", f"s2f6x2 f32 f32{more}", pair)
        case(f"cvt.rn.satfinite{end}{scaled}.s2f6x2.bf16x2", f"s2f6x2 bf16x2{more}", halves)
for end in ("", ".relu", ".satfinite", ".relu.satfinite"):

    def opened(x: int, by: int = 0x7F7F, end: str = end) -> tuple[object, object]:
        return from_64ths(x & 255, by & 255, end), from_64ths(x >> 8, by >> 8, end)

    for scaled, more in (("", ""), (SCALED, " ue8m0x2")):
        case(f"cvt.rn{end}{scaled}.bf16x2.s2f6x2", f"bf16x2 s2f6x2{more}", opened)

# ---- random bits: added to what is cut off, of which they are the highest bits ----

_EXPONENTS = {"f16": (11, -14), "bf16": (8, -126)}


def chopped(value: Fraction, precision: int, lowest: int, share: Fraction) -> Fraction:
    """The magnitude of a value, cut to a format after ``share`` of its last place has been added."""
    size = abs(value)
    if size == 0:
        return size
    exponent = max(math.frexp(float(size))[1] - 1, lowest)  # of f32, whose magnitudes are exact in float
    unit = Fraction(2) ** (exponent - precision + 1)
    return (size / unit + share).__floor__() * unit


def to_half(bits: int, kind: str, random: int, end: str) -> object:
    bits = relu(bits, "f32") if "relu" in end else bits
    value = decode_float(bits, "f32")
    top = bits >> 31 << 15
    infinite = 0x7C00 if kind == "f16" else 0x7F80
    if isinstance(value, float):
        result = infinite
        if math.isnan(value):
            return NAN
    else:
        width = 13 if kind == "f16" else 16
        share = Fraction(random & ((1 << width) - 1), 1 << width)
        result = round_float(chopped(value, *_EXPONENTS[kind], share), kind)
    return (result - ("satfinite" in end and result == infinite)) | top


def to_code(bits: int, name: str, random: int, end: str) -> int:
    bits = relu(bits, "f32") if end else bits
    value = decode_float(bits, "f32")
    largest = max(VALUES[name])
    if isinstance(value, float) and math.isnan(value):
        return nan_of(name)
    if isinstance(value, float):
        code = largest
    else:
        _, mantissa_bits, bias, _ = FORMATS[name]
        size = chopped(value, mantissa_bits + 1, 1 - bias, Fraction(random, 1 << 16))
        code = next((code for code, known in VALUES[name].items() if known == size), largest)
    return code | bits >> 31 << (bits_of(name) - 1)


for kind in ("f16", "bf16"):
    for end in ("", ".relu", ".satfinite", ".relu.satfinite"):

        def random_pair(a: int, b: int, random: int, kind: str = kind, end: str = end) -> tuple[object, object]:
            return to_half(b, kind, random & 0xFFFF, end), to_half(a, kind, random >> 16, end)

        case(f"cvt.rs{end}.{kind}x2.f32", f"{kind}x2 f32 f32 b32", random_pair)


def backwards(half: int) -> int:
    return int(f"{half:016b}"[::-1], 2)


for name in FORMATS:
    for end in ("", ".relu"):

        def fours(a: int, b: int, e: int, f: int, random: int, name: str = name, end: str = end) -> int:
            upper, lower = random >> 16, random & 0xFFFF
            if name == "e2m1":
                upper, lower = random >> 8 & 0xFF | random >> 16 & 0xFF00, random & 0xFF | random >> 8 & 0xFF00
            shares = (backwards(upper), upper, backwards(lower), lower)
            result = 0
            for value, share in zip((a, b, e, f), shares, strict=True):
                result = result << step_of(name) | to_code(value, name, share, end)
            return result

        case(f"cvt.rs{end}.satfinite.{name}x4.f32", f"{name}x4 f32 f32 f32 f32 b32", fours, braces=True)
