"""What random expressions are made of."""

from __future__ import annotations

import re

TYPES = ("u32", "i32", "u64", "i64", "f32", "f64", "f16")
# What a device function does not see.
OF_KERNEL = re.compile(r"\b(in|given|table|small|pair|NAME_mix)\b")
LITERALS = {
    "u32": ("0u", "1u", "2u", "31u", "0x7fffffffu", "0x80000000u", "0xffffffffu", "0x00ff00ffu"),
    "i32": ("0", "1", "(-1)", "7", "0x7fffffff", "(-0x7fffffff - 1)", "(-65536)"),
    "u64": ("0ull", "1ull", "0xffffffffull", "0x8000000000000000ull", "0xfedcba9876543210ull"),
    "i64": ("0ll", "1ll", "(-1ll)", "0x7fffffffffffffffll", "(-4294967296ll)"),
    "f32": ("0.f", "(-0.f)", "1.f", "(-1.5f)", "3e38f", "1e-40f", "16777216.f", "0.1f", "2147483648.f"),
    "f64": ("0.", "(-0.)", "1.", "(-1.5)", "1e308", "1e-310", "0.1", "4294967296.", "1.00000005960464478"),
    "f16": tuple(f"__ushort_as_half({bits})" for bits in ("0x3c00", "0x0001", "0x8000", "0x7bff")),
    "bool": ("true", "false"),
}  # fmt: skip


def _table() -> dict[str, list[tuple[str, str]]]:
    """By the type of the result: (template, types of its parts)."""
    ops: dict[str, list[tuple[str, str]]] = {kind: [] for kind in (*TYPES, "bool")}
    for kind, bits in (("u32", 32), ("u64", 64)):
        two = f"{kind} {kind}"
        ops[kind] += [(f"($0 {op} $1)", two) for op in ("+", "-", "*", "&", "|", "^")]
        ops[kind] += [(f"($0 {op} ($1 & {bits - 1}))", f"{kind} u32") for op in ("<<", ">>")]
        ops[kind] += [("whole_divide($0, $1)", two), ("whole_modulo($0, $1)", two), ("(~$0)", kind)]
        ops[kind] += [("min($0, $1)", two), ("max($0, $1)", two), ("($2 ? $0 : $1)", f"{two} bool")]
        ops[kind] += [
            (f"({kind})$0", "u64" if kind == "u32" else "u32"),
            (f"({kind})$0", "i32"),
            (f"({kind})$0", "i64"),
        ]
        ops[kind] += [(f"({kind})({narrow})$0", kind) for narrow in ("u8", "i8", "u16", "i16")]
    for kind, unsigned, bits in (("i32", "u32", 32), ("i64", "u64", 64)):
        two = f"{kind} {kind}"
        ops[kind] += [(f"({kind})(({unsigned})$0 {op} ({unsigned})$1)", two) for op in ("+", "-", "*")]
        ops[kind] += [(f"($0 {op} $1)", two) for op in ("&", "|", "^")]
        ops[kind] += [(f"($0 >> ($1 & {bits - 1}))", f"{kind} u32"), ("whole_divide($0, $1)", two)]
        ops[kind] += [(f"({kind})(({unsigned})$0 << ($1 & {bits - 1}))", f"{kind} u32"), ("whole_modulo($0, $1)", two)]
        ops[kind] += [
            ("min($0, $1)", two),
            ("max($0, $1)", two),
            ("abs($0 | 1)", kind),
            ("($2 ? $0 : $1)", f"{two} bool"),
        ]
        ops[kind] += [(f"({kind})$0", other) for other in ("u32", "u64", "i32", "i64") if other != kind]
        ops[kind] += [(f"({kind})({narrow})$0", kind) for narrow in ("u8", "i8", "u16", "i16")]
    ops["u32"] += [
        ("__byte_perm($0, $1, $2)", "u32 u32 u32"), ("__brev($0)", "u32"), ("__umulhi($0, $1)", "u32 u32"),
        ("__dp4a($0, $1, $2)", "u32 u32 u32"), ("__dp2a_lo($0, $1, $2)", "u32 u32 u32"), ("bits($0)", "f32"),
        ("__dp2a_hi($0, $1, $2)", "u32 u32 u32"), ("__usad($0, $1, $2)", "u32 u32 u32"), ("bits($0)", "f16"),
        ("__sad($0, $1, $2)", "i32 i32 u32"), ("__umul24($0, $1)", "u32 u32"), ("(u32)__popcll($0)", "u64"),
        ("__uhadd($0, $1)", "u32 u32"), ("__urhadd($0, $1)", "u32 u32"), ("__half2uint_rn($0)", "f16"),
        ("(u32)((const u8*)in)[$0 & 2047]", "u32"), ("(u32)((const u16*)in)[$0 & 1023]", "u32"),
        ("__ldg((const u32*)in + ($0 & 511))", "u32"), ("NAME_mix($0, $1)", "u32 f32"), ("(u32)$0", "bool"),
        ("kTable[$0 & 7]", "u32"), ("deeper($0 & 3, $1)", "u32 u32"),
        ("(u32)turned(given, $0).e[$1 % 3]", "u32 u32"), ("(u32)(given.e[$0 % 3] & given.a)", "u32"),
        ("(u32)turned(given, $0).b", "u32"), ("table[$0 & 7]", "u32"), ("(u32)small[$0 & 15]", "u32"),
        ("(u32)pair[$0 & 1].e[$1 % 3]", "u32 u32"), ("(u32)pair[$0 & 1].b", "u32"),
        *((f"__funnelshift_{way}($0, $1, $2)", "u32 u32 u32") for way in ("l", "r", "lc", "rc")),
        # Not __vsubus2, whose highest bit NVRTC takes for zero.
        *((f"__v{name}($0, $1)", "u32 u32") for name in (
            "add2", "add4", "sub2", "sub4", "addss2", "addus4", "subss4", "absdiffs2", "absdiffu4", "maxs2",
            "minu4", "avgu4", "cmpeq4", "cmpgts2", "setltu4")),
    ]  # fmt: skip
    ops["i32"] += [
        ("__popc($0)", "u32"), ("__clz($0)", "i32"), ("__clzll($0)", "i64"), ("__ffs($0)", "i32"),
        ("__ffsll($0)", "i64"),
        # Of 16 bits: NVRTC takes it for granted that the product of __mul24 does not overflow.
        ("__mulhi($0, $1)", "i32 i32"), ("__mul24((i16)$0, (i16)$1)", "i32 i32"), ("__dp4a($0, $1, $2)", "i32 i32 i32"),
        ("__dp2a_lo($0, $1, $2)", "i32 i32 i32"), ("__dp2a_hi($0, $1, $2)", "i32 i32 i32"),
        ("__hadd($0, $1)", "i32 i32"), ("__rhadd($0, $1)", "i32 i32"),
        ("(i32)((const i8*)in)[$0 & 2047]", "u32"), ("(i32)((const i16*)in)[$0 & 1023]", "u32"),
        ("__half2int_rz($0)", "f16"), ("(i32)__half2short_rd($0)", "f16"), ("((const int*)in)[$0 & 511]", "u32"),
        ("(i32)kSteps[$0 & 3]", "u32"),
    ]  # fmt: skip
    ops["u64"] += [
        ("__brevll($0)", "u64"), ("__umul64hi($0, $1)", "u64 u64"), ("((u64)$0 * $1)", "u32 u32"), ("bits($0)", "f64"),
        ("in[$0 & 255]", "u32"), ("(given.d + $0)", "u64"), ("turned(given, $0).d", "u32"),
        ("(((u64)$0 << 32) | $1)", "u32 u32"),
    ]  # fmt: skip
    ops["i64"] += [
        ("__mul64hi($0, $1)", "i64 i64"), ("((i64)$0 * $1)", "i32 i32"), ("((const i64*)in)[$0 & 255]", "u32"),
        ("(i64)((i64)$0 * $1 + (i64)$2)", "i32 i32 i32"),
    ]  # fmt: skip
    ways = ("rn", "rz", "ru", "rd")
    for kind, short, fma, end in (("f32", "f", "__fmaf", "f"), ("f64", "d", "__fma", "")):
        two, three = f"{kind} {kind}", f"{kind} {kind} {kind}"
        ops[kind] += [(f"($0 {op} $1)", two) for op in ("+", "-", "*", "/")]
        for way in ways:
            ops[kind] += [(f"__{short}{name}_{way}($0, $1)", two) for name in ("add", "sub", "mul", "div")]
            ops[kind] += [(f"{fma}_{way}($0, $1, $2)", three), (f"__{short}sqrt_{way}($0)", kind)]
            ops[kind] += [(f"__{short}rcp_{way}($0)", kind)]
        ops[kind] += [(f"{name}{end}(unknown($0), $1)", two) for name in ("fmin", "fmax")]
        ops[kind] += [(f"{name}{end}($0)", kind) for name in ("fabs", "sqrt", "rint", "floor", "ceil", "trunc")]
        ops[kind] += [("(-$0)", kind), ("with_sign($0, $1)", two), ("($2 ? $0 : $1)", f"{two} bool")]
        ops[kind] += [(f"({kind})$0", other) for other in ("i32", "u32", "i64", "u64")]
        ops[kind] += [(f"{name}{end}($0, $1)", two) for name in ("fmod", "remainder", "nextafter")]
        ops[kind] += [(f"round{end}($0)", kind), (f"scalbn{end}($0, $1 % 200)", f"{kind} i32")]
    for way in ways:
        ops["f32"] += [(f"__{name}2float_{way}($0)", kind) for name, kind in (
            ("int", "i32"), ("uint", "u32"), ("ll", "i64"), ("ull", "u64"), ("double", "f64"))]  # fmt: skip
        ops["f64"] += [(f"__ll2double_{way}($0)", "i64"), (f"__ull2double_{way}($0)", "u64")]
        for source, kind in (("float", "f32"), ("double", "f64")):
            for target, name in (("i32", "int"), ("u32", "uint"), ("i64", "ll"), ("u64", "ull")):
                ops[target] += [(f"__{source}2{name}_{way}($0)", kind)]
    ops["f32"] += [
        ("__half2float($0)", "f16"), ("(f32)$0", "f64"), ("__saturatef($0)", "f32"), ("__uint_as_float($0)", "u32"),
        ("((const f32*)in)[$0 & 511]", "u32"), ("given.c", ""), ("turned(given, $0).c", "u32"),
    ]  # fmt: skip
    ops["f64"] += [
        ("(f64)$0", "f32"), ("__longlong_as_double($0)", "i64"), ("__hiloint2double($0, $1)", "i32 i32"),
        ("((const f64*)in)[$0 & 255]", "u32"),
        ("kScales[$0 & 3]", "u32"),
    ]  # fmt: skip
    ops["f16"] += [(f"__h{name}($0, $1)", "f16 f16") for name in ("add", "sub", "mul", "min", "max")]
    ops["f16"] += [
        ("__hfma($0, $1, $2)", "f16 f16 f16"), ("__hneg($0)", "f16"), ("__habs($0)", "f16"),
        ("($2 ? $0 : $1)", "f16 f16 bool"),
        ("__float2half_rn($0)", "f32"), ("__float2half_rz($0)", "f32"), ("__int2half_rn($0)", "i32"),
        ("__ushort_as_half((u16)$0)", "u32"),
    ]  # fmt: skip
    for kind in ("u32", "i32", "u64", "i64", "f32", "f64"):
        ops["bool"] += [(f"($0 {op} $1)", f"{kind} {kind}") for op in ("<", "<=", ">", ">=", "==", "!=")]
    ops["bool"] += [(f"__h{op}($0, $1)", "f16 f16") for op in ("lt", "ge", "neu")]
    ops["bool"] += [("($0 && $1)", "bool bool"), ("($0 || $1)", "bool bool"), ("(!$0)", "bool")] * 3
    ops["bool"] += [("($0 >> ($1 & 31) & 1)", "u32 u32"), ("($0 != $0)", "f32")]
    return ops


OPERATIONS = _table()
