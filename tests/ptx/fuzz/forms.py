"""Instructions in random forms, each with its exact meaning, beyond those that the tests of the instructions keep."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ptx_float_cases import CASES as FLOAT_CASES
from ptx_float_cases import NAN, ORDERED, flush, forms, packed, saturated, to_integer
from ptx_float_cases import compare as float_compare
from ptx_integer_cases import CASES as INTEGER_CASES
from ptx_integer_cases import TESTS, UNSIGNED, Case, lop3, prmt
from ptx_rare_cases import ALL, compared, narrow
from ptx_rare_cases import CASES as RARE_CASES
from ptx_small_cases import CASES as SMALL_CASES
from ptx_support import WIDTHS, signed

_SHORT = {"e2m1x2", "e2m1x4", "e2m3x4", "e3m2x4", "e4m3x4", "e5m2x4"}  # registers of 8 bits, and operands in braces
KEPT = INTEGER_CASES + FLOAT_CASES + RARE_CASES
KEPT += [one for one in SMALL_CASES if _SHORT.isdisjoint((one.destination, *one.sources))]
# Where a thread has 16 bytes of its own, by state space; and the code that leaves it there.
PLACES = {
    ".shared": "%r58", ".local": "%d56", ".global": "%d57", "": "%d58", " ": "%d59",
}  # fmt: skip
SET_UP = (
    ".shared .align 16 .b8 tile[1024]; .local .align 16 .b8 depot[16];",
    "mov.u32 %r58, tile; mad.lo.u32 %r58, %r60, 16, %r58;",
    "mov.u64 %d56, depot;", "ld.param.u64 %d57, [scratch]; mad.wide.u32 %d57, %r60, 16, %d57;",
    "cvt.u64.u32 %d58, %r58; cvta.shared.u64 %d58, %d58;", "cvta.local.u64 %d59, %d56;",
)  # fmt: skip
_SPARE = {16: "%h50", 32: "%r50", 64: "%d50"}


def _arithmetic(draw: random.Random) -> Case:
    op = draw.choice(("add", "sub", "mul", "fma", "div"))
    kind = draw.choice(("f32", "f32", "f64", "f16", "bf16") if op != "div" else ("f32", "f64"))
    mode = draw.choice(("rn", "rz", "rm", "rp")) if kind in ("f32", "f64") else "rn"
    ftz = kind in ("f32", "f16") and draw.random() < 0.5
    end = ""
    if kind in ("f32", "f16") and op != "div":
        end = draw.choice(("", "", "sat"))
    if kind in ("f16", "bf16") and op == "fma":
        end = draw.choice(("", "sat", "relu") if kind == "f16" else ("", "relu"))
    two = kind in ("f16", "bf16") and draw.random() < 0.5
    said = "" if kind == "f16" and op != "fma" and draw.random() < 0.5 else f".{mode}"
    text = f"{op}{said}{'.ftz' if ftz else ''}{'.' + end if end else ''}.{kind}{'x2' if two else ''}"
    function = forms(op, kind, mode, ftz, end)
    operands = [kind + "x2" * two] * (3 if op == "fma" else 2)
    return _case(text, operands[0], operands, packed(function) if two else function)


def _case(text: str, destination: str, sources: Sequence[str], function, suffix: str = "") -> Case:
    marks = ", ".join(f"{{s{i}}}" for i in range(len(sources)))
    return Case(f"{text} {{d0}}, {marks}{suffix};", destination, tuple(sources), function)


def _lop3(draw: random.Random) -> Case:
    table = draw.randrange(256)
    return _case("lop3.b32", "b32", ["b32"] * 3, lop3(table), f", {table}")


def _prmt(draw: random.Random) -> Case:
    selector = draw.getrandbits(16)
    function = lambda a, b: prmt(a, b, [selector >> 4 * i & 15 for i in range(4)])  # noqa: E731
    return _case("prmt.b32", "b32", ["b32", "b32"], function, f", {selector:#x}")


def _test(draw: random.Random) -> tuple[str, str, str, object]:
    """(test, kind, .ftz, its function of two operands)"""
    kind = draw.choice(("s16", "u16", "s32", "u32", "s64", "u64", "b32", "b64", "f32", "f64", "f16", "bf16"))
    if kind in WIDTHS:
        test = draw.choice((*ORDERED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"))
        ftz = kind == "f32" and draw.random() < 0.5
        return test, kind, ".ftz" if ftz else "", float_compare(test, kind, ftz)
    if kind[0] == "b":
        test = draw.choice(("eq", "ne"))
    else:
        test = draw.choice((*TESTS, *UNSIGNED) if kind[0] == "u" else tuple(TESTS))
    return test, kind, "", lambda a, b: compared(UNSIGNED.get(test, test), kind, a, b)


def _setp(draw: random.Random) -> Case:
    test, kind, ftz, function = _test(draw)
    second = draw.random() < 0.4  # the destination is the second one, which holds the opposite
    where = draw.choice(("{d0}", "{d0}|%p40")) if not second else "%p40|{d0}"
    if draw.random() < 0.5:
        return Case(
            f"setp.{test}{ftz}.{kind} {where}, {{s0}}, {{s1}};", "pred", (kind, kind),
            lambda a, b: int(bool(function(a, b)) != second),
        )  # fmt: skip
    name = draw.choice(("and", "or", "xor"))
    combine = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[name]
    negated = draw.random() < 0.5
    return Case(
        f"setp.{test}.{name}{ftz}.{kind} {where}, {{s0}}, {{s1}}, {'!' if negated else ''}{{s2}};",
        "pred", (kind, kind, "pred"),
        lambda a, b, p: combine(int(bool(function(a, b)) != second), p ^ negated),
    )  # fmt: skip


def _set(draw: random.Random) -> Case:
    test, kind, ftz, function = _test(draw)
    while kind in ("f16", "bf16"):
        test, kind, ftz, function = _test(draw)
    to = draw.choice(("u32", "s32", "f32"))
    if draw.random() < 0.5:
        return _case(
            f"set.{test}{ftz}.{to}.{kind}", f"b{to[1:]}", [kind, kind], lambda a, b: ALL[to] if function(a, b) else 0
        )
    name = draw.choice(("and", "or", "xor"))
    combine = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[name]
    return _case(
        f"set.{test}.{name}{ftz}.{to}.{kind}", f"b{to[1:]}", [kind, kind, "pred"],
        lambda a, b, p: ALL[to] if combine(int(bool(function(a, b))), p) else 0,
    )  # fmt: skip


def _from_float(draw: random.Random) -> Case:
    to, kind = draw.choice("su") + draw.choice(("8", "16", "32", "64")), draw.choice(("f32", "f64", "f16"))
    mode, ftz = draw.choice(("rni", "rzi", "rmi", "rpi")), kind == "f32" and draw.random() < 0.5
    sat = draw.choice(("", ".sat"))  # they saturate without it, too
    text = f"cvt.{mode}{'.ftz' if ftz else ''}{sat}.{to}.{kind}"
    return _case(text, f"b{max(int(to[1:]), 16)}", [kind], to_integer(to, kind, mode, ftz))


def _from_integer(draw: random.Random) -> Case:
    kind, from_ = draw.choice(("f32", "f64", "f16", "bf16")), draw.choice("su") + draw.choice(("8", "16", "32", "64"))
    mode = draw.choice(("rn", "rz", "rm", "rp"))
    end = ".sat" if kind != "bf16" and draw.random() < 0.3 else ""
    return _case(
        f"cvt.{mode}{end}.{kind}.{from_}", kind, [f"b{max(int(from_[1:]), 16)}"], narrow(kind, mode, from_, end[1:])
    )


def _between_floats(draw: random.Random) -> Case:
    kind, from_ = draw.choice(
        (("f32", "f64"), ("f16", "f64"), ("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("bf16", "f64"))
    )
    mode = draw.choice(("rn", "rz", "rm", "rp"))
    ftz = "f32" in (kind, from_) and kind != "bf16" and draw.random() < 0.4
    end = ".sat" if kind != "bf16" and draw.random() < 0.3 else ""
    one = narrow(kind, mode, from_)

    def function(bits: int) -> object:
        result = one(flush(bits, "f32") if ftz and from_ == "f32" else bits)
        if ftz and kind == "f32" and result is not NAN:
            result = flush(result, "f32")
        return saturated(result, kind) if end else result

    return _case(f"cvt.{mode}{'.ftz' if ftz else ''}{end}.{kind}.{from_}", kind, [from_], function)


def _place(draw: random.Random) -> tuple[str, str]:
    """(state space, address)"""
    space, address = draw.choice(tuple(PLACES.items()))
    return space.strip(), address


def _memory(draw: random.Random) -> Case:
    """A store, and a load of some of its bytes, perhaps of another width."""
    space, address = _place(draw)
    size, count = draw.choice(((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 2), (4, 4), (8, 2)))
    least = max(8 * size, 16)
    width = draw.choice([bits for bits in (16, 32, 64) if bits >= least]) if count == 1 else least
    whole = size * count
    loaded, many = draw.choice([(s, n) for s in (1, 2, 4, 8) for n in (1, 2, 4) if s * n <= min(whole, 16)])
    offset = draw.randrange(0, whole - loaded * many + 1, loaded * many)
    is_signed, which = draw.random() < 0.5, draw.randrange(many)
    to = draw.choice([bits for bits in (16, 32, 64) if bits >= 8 * loaded]) if many == 1 else max(8 * loaded, 16)
    stored = ", ".join(f"{{s{i}}}" for i in range(count))
    others = draw.choice(("_", _SPARE[to]))
    names = ", ".join("{d0}" if i == which else others for i in range(many))
    vector, back = (f".v{n}" if n > 1 else "" for n in (count, many))
    stored, names = (f"{{{{{text}}}}}" if n > 1 else text for text, n in ((stored, count), (names, many)))

    def function(*values: int) -> int:
        memory = b"".join((value & (1 << 8 * size) - 1).to_bytes(size, "little") for value in values)
        at = offset + which * loaded
        value = int.from_bytes(memory[at : at + loaded], "little", signed=is_signed)
        return value & (1 << to) - 1

    sign = "s" if is_signed else "u"
    return Case(
        f"st{space}{vector}.b{8 * size} [{address}], {stored}; "
        f"ld{space}{back}.{sign}{8 * loaded} {names}, [{address}+{offset}];",
        f"b{to}", (f"b{width}",) * count, function,
    )  # fmt: skip


def _atomic(draw: random.Random) -> Case:
    """An atomic on what was stored before, and its result or what it leaves."""
    space, address = _place(draw)
    while space == ".local" or address == PLACES[" "]:
        space, address = _place(draw)
    width = draw.choice((32, 64))
    op = draw.choice(("add", "and", "or", "xor", "min", "max", "exch", "cas", *(("inc", "dec") if width == 32 else ())))
    sign = draw.choice("us") if op in ("min", "max") else "b" if op in ("and", "or", "xor", "exch", "cas") else "u"
    kind, mask = f"{sign}{width}", (1 << width) - 1
    meanings = {
        "add": lambda a, b: a + b, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
        "exch": lambda a, b: b, "inc": lambda a, b: 0 if a >= b else a + 1,
        "dec": lambda a, b: b if a == 0 or a > b else a - 1,
        "min": lambda a, b: min(a, b, key=order), "max": lambda a, b: max(a, b, key=order),
        "cas": lambda a, b, c: c if a == b else a,
    }  # fmt: skip

    def order(value: int) -> int:
        return signed(value, width) if sign == "s" else value

    old = draw.random() < 0.5
    operands = "{s1}, {s2}" if op == "cas" else "{s1}"
    text = f"st{space}.b{width} [{address}], {{s0}}; "
    if old:
        text += f"atom{space}.{op}.{kind} {{d0}}, [{address}], {operands};"
    else:
        done = "red" if op not in ("exch", "cas") and draw.random() < 0.5 else "atom"
        result = "" if done == "red" else f"{_SPARE[width]}, "
        text += f"{done}{space}.{op}.{kind} {result}[{address}], {operands}; ld{space}.b{width} {{d0}}, [{address}];"
    count = 3 if op == "cas" else 2
    return Case(text, f"b{width}", (f"b{width}",) * count, lambda *v: v[0] if old else meanings[op](*v) & mask)


def _move(draw: random.Random) -> Case:
    """Registers put together, or taken apart."""
    part, count = draw.choice(((16, 2), (32, 2), (16, 4)))
    whole, mask = part * count, (1 << part) - 1
    if draw.random() < 0.5:
        marks = ", ".join(f"{{s{i}}}" for i in range(count))
        return Case(
            f"mov.b{whole} {{d0}}, {{{{{marks}}}}};", f"b{whole}", (f"b{part}",) * count,
            lambda *values: sum(value << part * i for i, value in enumerate(values)),
        )  # fmt: skip
    which, other = draw.randrange(count), draw.choice(("_", _SPARE[part]))
    names = ", ".join("{d0}" if i == which else other for i in range(count))
    return Case(
        f"mov.b{whole} {{{{{names}}}}}, {{s0}};", f"b{part}", (f"b{whole}",), lambda a: a >> part * which & mask
    )


MAKERS = (
    _arithmetic,
    _arithmetic,
    _lop3,
    _prmt,
    _setp,
    _set,
    _from_float,
    _from_integer,
    _between_floats,
    _memory,
    _memory,
    _atomic,
    _move,
)


def draw_case(draw: random.Random) -> Case:
    return draw.choice(KEPT) if draw.random() < 0.5 else draw.choice(MAKERS)(draw)
