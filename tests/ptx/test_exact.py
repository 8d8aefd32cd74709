"""Floats as elements of a ring (`LaunchOptions.exact`): each instruction against arithmetic with fractions."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from ptx_support import lane_kernel, run_lanes
from test_mma import value_of

from workbench import ptx
from workbench.analysis.exact import elements as of_ring
from workbench.analysis.exact.elements import (
    HIGH,
    LOW,
    MINUS_INFINITY,
    MODULUS,
    NOTHING,
    PLUS_INFINITY,
    UNDEFINED,
    P,
    Q,
    add,
    element_of,
    function,
    matrix_product,
    multiply,
    negative,
)
from workbench.errors import KernelFault

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
BITS = {"f32": np.uint32, "f16": np.uint16, "bf16": np.uint16, "f64": np.uint64}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    3.0,
    math.inf,
    -math.inf,
    math.nan,
    -3e38,
    3e38,
    1 / 3,
    1 / 98,
    0.6931471805599453,
]


def elements(bits: np.ndarray, kind: str) -> torch.Tensor:
    signed = {2: np.int16, 4: np.int32, 8: np.int64}[bits.dtype.itemsize]
    return of_ring(torch.from_numpy(bits.view(signed).copy()).view(TYPES[kind]))


def drawn(kind: str, seed: int) -> np.ndarray:
    """Numbers of many and of few digits, symbols, and results of earlier instructions."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(96, generator=generator) * 10 ** torch.empty(96).uniform_(-3, 3, generator=generator)
    short = torch.randint(-64, 64, (32,), generator=generator) / 8
    numbers = torch.cat([numbers, short, torch.tensor(SPECIAL)])[
        torch.randperm(128 + len(SPECIAL), generator=generator)
    ]
    array = numbers.to(TYPES[kind]).view({2: torch.int16, 4: torch.int32, 8: torch.int64}[TYPES[kind].itemsize])
    bits = array.numpy().view(BITS[kind]).copy()
    results = run_lanes(f"add.{kind} {{d0}}, {{s0}}, {{s1}};", [kind], [kind] * 2, [bits, bits[::-1]], exact=True)[0]
    return np.concatenate([bits, results])


def residue(value: Fraction) -> int:
    return value.numerator * pow(value.denominator, -1, MODULUS) % MODULUS


@pytest.mark.parametrize("kind", TYPES)
def test_short_numbers_are_what_they_are(kind: str) -> None:
    numbers = [sign * m * 2.0**e for m in (1, 3, 5, 7, 9, 11, 13, 15) for e in range(-4, 5) for sign in (1, -1)]
    numbers += range(2049 if kind != "bf16" else 257)
    if kind != "f16":
        numbers += [m * 2.0**e for m in (1, 3, 5, 7, 9, 11, 13, 15) for e in range(-133, 124)]
    found = of_ring(torch.tensor(numbers, dtype=torch.float64).to(TYPES[kind]))
    assert found.tolist() == [residue(Fraction(one)) for one in numbers]


def test_constants_are_what_they_are_meant_to_be() -> None:
    third, log2e, ln2 = of_ring(torch.tensor([1 / 3, math.log2(math.e), math.log(2)])).tolist()
    assert third * 3 % MODULUS == 1
    assert log2e * ln2 % MODULUS == 1
    assert of_ring(torch.tensor([12345.0, 100001.0])).tolist() == [12345, 100001 % MODULUS]
    found = of_ring(torch.tensor([math.inf, -math.inf, math.nan, -3.3e38, 1e30]))
    assert found.tolist() == [PLUS_INFINITY, MINUS_INFINITY, NOTHING, LOW, HIGH]
    assert of_ring(torch.tensor([math.nan]).half()) == of_ring(torch.tensor([math.nan]).bfloat16()) == NOTHING


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_every_element_has_a_pattern_of_16_bits(kind: str) -> None:
    found = of_ring(torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(TYPES[kind]))
    assert set(range(MODULUS)) <= set(found.tolist())
    away = found[found < MODULUS].unique(return_counts=True)[1]
    assert float((away == 1).double().mean()) > 0.97  # nearly every one has one pattern alone


BINARY = {
    "add": add,
    "sub": lambda a, b: add(a, negative(b)),
    "mul": multiply,
    "div": lambda a, b: multiply(a, function("inverse", b)),
    "max": lambda a, b: _chosen(a, b, 1),
    "min": lambda a, b: _chosen(a, b, -1),
}


def _chosen(a: torch.Tensor, b: torch.Tensor, sign: int) -> torch.Tensor:
    found = torch.where(sign * function("rank", b) > sign * function("rank", a), b, a)
    return torch.where((a >= UNDEFINED) | (b >= UNDEFINED), UNDEFINED, found)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name: str, kind: str) -> None:
    if name == "div" and kind in ("f16", "bf16"):
        pytest.skip("PTX has no such division")
    a, b = drawn(kind, 1), drawn(kind, 2)
    spelled = "div.rn" if name == "div" else name
    [out] = run_lanes(f"{spelled}.{kind} {{d0}}, {{s0}}, {{s1}};", [kind], [kind] * 2, [a, b], exact=True)
    assert torch.equal(elements(out, kind), BINARY[name](elements(a, kind), elements(b, kind)))


@pytest.mark.parametrize("kind", TYPES)
def test_fma_and_contracted_sums(kind: str) -> None:
    a, b, c = (drawn(kind, seed) for seed in (3, 4, 5))
    expected = add(multiply(elements(a, kind), elements(b, kind)), elements(c, kind))
    [out] = run_lanes(f"fma.rn.{kind} {{d0}}, {{s0}}, {{s1}}, {{s2}};", [kind], [kind] * 3, [a, b, c], exact=True)
    assert torch.equal(elements(out, kind), expected)
    text = f"mul.{kind} {{d0}}, {{s0}}, {{s1}}; sub.{kind} {{d0}}, {{s2}}, {{d0}};"
    [out] = run_lanes(text, [kind], [kind] * 3, [a, b, c], exact=True)
    product = multiply(elements(a, kind), elements(b, kind))
    assert torch.equal(elements(out, kind), add(elements(c, kind), negative(product)))


UNARY = {
    "ex2.approx.f32": "power_of_two", "lg2.approx.f32": "logarithm", "rcp.rn.f32": "inverse", "sqrt.rn.f32": "root",
    "rsqrt.approx.f32": "inverse_root", "tanh.approx.f32": "tanh", "sin.approx.f32": "sine", "cos.approx.f32": "cosine",
    "abs.f32": "magnitude", "ex2.approx.f16": "power_of_two", "tanh.approx.bf16": "tanh", "abs.bf16": "magnitude",
    "rcp.rn.f64": "inverse", "sqrt.rn.f64": "root",
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions(name: str) -> None:
    kind = name.rpartition(".")[2]
    a = drawn(kind, 6)
    [out] = run_lanes(f"{name} {{d0}}, {{s0}};", [kind], [kind], [a], exact=True)
    assert torch.equal(elements(out, kind), function(UNARY[name], elements(a, kind)))


def test_the_functions_have_their_laws() -> None:
    x = torch.arange(MODULUS)
    y = x[torch.randperm(MODULUS, generator=torch.Generator().manual_seed(0))]
    power, root, inverse = (lambda z, name=name: function(name, z) for name in ("power_of_two", "root", "inverse"))
    assert torch.equal(power(add(x, y)), multiply(power(x), power(y)))
    assert torch.equal(root(multiply(x, y)), multiply(root(x), root(y)))
    known = (inverse(x) < UNDEFINED) & (x % Q != 0)
    assert torch.equal(multiply(x, inverse(x))[known], torch.ones_like(x)[known])
    assert torch.equal(power(torch.arange(30)) % P, torch.tensor([pow(2, n, P) for n in range(30)]))
    logarithm = function("logarithm", multiply(x, y)) % Q
    defined = (x % P != 0) & (y % P != 0)
    both = (function("logarithm", x) + function("logarithm", y)) % Q
    assert torch.equal(logarithm[defined], both[defined])
    tanh, sigmoid = function("tanh", x), inverse(add(torch.tensor(1), power(multiply(x, negative(_log2e())))))
    silu = multiply(x, sigmoid)  # x / (1 + e^-x) = h tanh(h) + h with h = x / 2
    half = multiply(x, torch.tensor(element_of(0.5)))
    other = add(multiply(half, function("tanh", half)), half)
    known = (silu < UNDEFINED) & (other < UNDEFINED) & (tanh < UNDEFINED)
    assert torch.equal(silu[known] % P, other[known] % P)


def _log2e() -> torch.Tensor:
    return torch.tensor(element_of(math.log2(math.e)))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("test", ["lt", "ge", "eq", "neu", "num"])
def test_comparisons(test: str, kind: str) -> None:
    a, b = drawn(kind, 7), drawn(kind, 8)
    b[::5] = a[::5]
    [out] = run_lanes(f"setp.{test}.{kind} {{d0}}, {{s0}}, {{s1}};", ["pred"], [kind] * 2, [a, b], exact=True)
    x, y = elements(a, kind), elements(b, kind)
    nan = (x >= UNDEFINED) | (y >= UNDEFINED)
    x, y = function("rank", x), function("rank", y)
    expected = {"lt": ~nan & (x < y), "ge": ~nan & (x >= y), "eq": ~nan & (x == y), "neu": nan | (x != y), "num": ~nan}
    assert out.astype(bool).tolist() == expected[test].tolist()


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("kind", TYPES)
def test_formats_hold_the_same_elements(kind: str, to: str) -> None:
    if kind == to:
        pytest.skip("no conversion")
    a = drawn(kind, 9)
    narrows = BITS[to]().itemsize <= BITS[kind]().itemsize
    [out] = run_lanes(f"cvt{'.rn' * narrows}.{to}.{kind} {{d0}}, {{s0}};", [to], [kind], [a], exact=True)
    assert torch.equal(elements(out, to), elements(a, kind))


def test_integers_are_exact_and_come_back() -> None:
    numbers = np.array([0, 1, -1, 77, -300, 32130, -32130, 70000], np.int32)
    [out] = run_lanes("cvt.rn.f32.s32 {d0}, {s0};", ["f32"], ["s32"], [numbers.view(np.uint32)], exact=True)
    assert elements(out, "f32").tolist() == [int(n) % MODULUS for n in numbers]
    [back] = run_lanes("cvt.rni.s32.f32 {d0}, {s0};", ["s32"], ["f32"], [out], exact=True)
    assert back.view(np.int32)[:-1].tolist() == numbers[:-1].tolist()


def test_signs_and_bf16_by_their_bits() -> None:
    a = drawn("f32", 10)
    [out] = run_lanes("xor.b32 {d0}, {s0}, 0x80000000;", ["f32"], ["f32"], [a], exact=True)
    assert torch.equal(elements(out, "f32").clamp(max=UNDEFINED), negative(elements(a, "f32")))
    b = drawn("bf16", 11)
    [out] = run_lanes("cvt.u32.u16 {d0}, {s0}; shl.b32 {d0}, {d0}, 16;", ["f32"], ["bf16"], [b], exact=True)
    assert torch.equal(elements(out, "f32"), elements(b, "bf16"))


MMA = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": ("f16", 16, "f32"),
    "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32": ("bf16", 8, "f32"),
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16": ("f16", 16, "f16"),
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": ("f32", 8, "f32"),
}


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("name", MMA)
def test_matrix_products(name: str, symbols: bool) -> None:
    kind, depth, total = MMA[name]
    generator = torch.Generator().manual_seed(12)
    a, b = (torch.randn(rows, depth, generator=generator).to(TYPES[kind]) for rows in (16, 8))
    c = torch.randn(16, 8, generator=generator).to(TYPES[total])
    if symbols:
        c[3, 4] = -math.inf
    words = 4 // TYPES[kind].itemsize  # elements of a register

    def registers(x: torch.Tensor, row: int, column: int, each: int) -> np.ndarray:
        """A register of each lane: lane 4r + i has elements each * i and on of row r."""
        part = x[row : row + 8, column : column + 4 * each].contiguous()
        return part.view(torch.int32).numpy().reshape(-1).view(np.uint32)

    steps = depth // (4 * words)
    sources = [registers(a, 8 * half, 4 * words * step, words) for step in range(steps) for half in (0, 1)]
    sources += [registers(b, 0, 4 * words * step, words) for step in range(steps)]
    if total == "f32":
        added = [c[8 * half : 8 * half + 8, odd::2] for half in (0, 1) for odd in (0, 1)]
        added = [one.contiguous().view(torch.int32).numpy().reshape(-1).view(np.uint32) for one in added]
    else:
        added = [registers(c, 8 * half, 0, 2) for half in (0, 1)]
    count = len(added)
    d, s = [f"{{d{i}}}" for i in range(count)], [f"{{s{i}}}" for i in range(len(sources) + count)]
    groups = d, s[: 2 * steps], s[2 * steps : 3 * steps], s[3 * steps :]
    text = f"{name} {', '.join('{{' + ', '.join(group) + '}}' for group in groups)};"
    out = run_lanes(text, ["b32"] * count, ["b32"] * len(s), [*sources, *added], exact=True)
    expected = add(matrix_product(of_ring(a), of_ring(b).mT), of_ring(c))
    found = torch.empty(16, 8, dtype=torch.int64)
    for half in (0, 1):
        if total == "f32":
            for odd in (0, 1):
                found[8 * half : 8 * half + 8, odd::2] = elements(out[2 * half + odd], "f32").view(8, 4)
        else:
            found[8 * half : 8 * half + 8] = elements(out[half].view(np.uint16), "f16").view(8, 8)
    assert torch.equal(found, expected)


def test_atomic_sums_in_any_order() -> None:
    text = lane_kernel("red.global.add.f32 [%d40], {s0};", [], ["f32"]).replace(
        "mov.u32 %r60, %tid.x;", "ld.param.u64 %d40, [p0];\nmov.u32 %r60, %tid.x;", 1
    )
    text = text.replace("micro(.param .u64 p0)", "micro(.param .u64 p0, .param .u64 p1)").replace(
        "ld.param.u64 %d60, [p0]", "ld.param.u64 %d60, [p1]"
    )
    values = torch.randn(96, generator=torch.Generator().manual_seed(13))
    total = torch.zeros(1)
    ptx.Program(text)["micro"].launch(3, 32, [total, values], exact=True)
    assert int(of_ring(total)) == int(of_ring(values).sum()) % MODULUS


def test_one_element_may_have_any_stride() -> None:
    assert of_ring(torch.tensor([3.0]).expand(1, 1)[0].as_strided((1,), (0,))).tolist() == [3]


SMALL = {  # a type of pairs: the bits of a number, and its values
    "e4m3x2": (8, torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn).float()),
    "e5m2x2": (8, torch.arange(256).to(torch.uint8).view(torch.float8_e5m2).float()),
    "e2m1x2": (4, torch.tensor([float(value_of("e2m1", code << 2)) for code in range(16)])),
    "e3m2x2": (8, torch.tensor([float(value_of("e3m2", code)) for code in range(64)])),
    "e2m3x2": (8, torch.tensor([float(value_of("e2m3", code)) for code in range(64)])),
    "ue8m0x2": (8, torch.cat([torch.exp2(torch.arange(255) - 127.0), torch.tensor([math.nan])])),
}


@pytest.mark.parametrize("kind", SMALL)
def test_codes_of_small_floats_are_exact_and_come_back(kind: str) -> None:
    """Elements that are no number of the format become one, the same for equal elements."""
    bits, values = SMALL[kind]
    codes = np.arange(len(values), dtype=np.uint16)
    pairs = codes | codes[::-1] << np.uint16(bits)
    wide = "bf16x2" if kind == "ue8m0x2" else "f16x2"
    [out] = run_lanes(f"cvt.rn.{wide}.{kind} {{d0}}, {{s0}};", [wide], [kind], [pairs], exact=True)
    found = elements(out.view(np.uint16), wide[:-2]).view(-1, 2)
    assert torch.equal(found[:, 0], of_ring(values))
    assert torch.equal(found[:, 1], of_ring(values).flip(0))
    rounds = "rp.satfinite" if kind == "ue8m0x2" else "rn.satfinite"
    source = wide if kind == "ue8m0x2" else "f32"
    given = [out] if source == wide else [of_pairs(out, odd) for odd in (1, 0)]
    narrow = f"cvt.{rounds}.{kind}.{source} {{d0}}, {', '.join(f'{{s{i}}}' for i in range(len(given)))};"
    [back] = run_lanes(narrow, [kind], [source] * len(given), given, exact=True)
    other = run_lanes(f"cvt.rn.{wide}.{kind} {{d0}}, {{s0}};", [wide], [kind], [back], exact=True)[0]
    known = found < MODULUS  # infinity has another code
    again = elements(other.view(np.uint16), wide[:-2]).view(-1, 2)
    assert torch.equal(again[known], found[known])


def of_pairs(pairs: np.ndarray, odd: int) -> np.ndarray:
    """One half of pairs of f16, as f32."""
    halves = np.ascontiguousarray(pairs.view(np.uint16)[odd::2])
    return run_lanes("cvt.f32.f16 {d0}, {s0};", ["f32"], ["f16"], [halves], exact=True)[0]


def test_least_and_greatest_of_the_lanes() -> None:
    a = drawn("f32", 17)[:64]
    text = "redux.sync.max.f32 {d0}, {s0}, -1; redux.sync.min.abs.f32 {d1}, {s0}, -1;"
    found = run_lanes(text, ["f32"] * 2, ["f32"], [a], exact=True)
    rows = elements(a, "f32").view(2, 32)
    for out, name, given in zip(found, ("max", "min"), (rows, function("magnitude", rows)), strict=True):
        wanted = [functools.reduce(BINARY[name], row.unbind()) for row in given]
        assert torch.equal(elements(out, "f32").view(2, 32), torch.stack(wanted)[:, None].expand(2, 32))


def test_comparisons_that_give_numbers() -> None:
    a, b = drawn("f16", 18), drawn("f16", 19)
    less = function("rank", elements(a, "f16")) < function("rank", elements(b, "f16"))
    less &= (elements(a, "f16") < UNDEFINED) & (elements(b, "f16") < UNDEFINED)
    [out] = run_lanes("set.lt.f16.f16 {d0}, {s0}, {s1};", ["f16"], ["f16"] * 2, [a, b], exact=True)
    assert torch.equal(elements(out, "f16"), less.long())
    pairs = [one[: len(one) // 2 * 2].view(np.uint32) for one in (a, b)]
    [out] = run_lanes("set.lt.u32.f16x2 {d0}, {s0}, {s1};", ["u32"], ["f16x2"] * 2, pairs, exact=True)
    assert (out.view(np.uint16) == np.where(less[: 2 * len(out)], 0xFFFF, 0)).all()


WITHOUT = {
    "cvt.rni.f32.f32 {d0}, {s0};": "no rule for cvt.rni.f32.f32",
    "add.f32 {d0}, {s0}, {s0}; and.b32 {d0}, {d0}, 0x007fffff;": "takes the mantissa of a float by its bits",
    "ex2.approx.f32 {d0}, {s0}; shl.b32 {d0}, {d0}, 23;": "shifts the bits of a float",
    "mul.f32 {d0}, {s0}, {s0}; add.s32 {d0}, {d0}, 32767;": "computes with the bits of a float as an integer",
    "neg.f32 {d0}, {s0}; max.s32 {d0}, {d0}, 0;": "compares floats as integers",
    "add.f32 {d0}, {s0}, 0f4B400000;": "rounds to a whole number",
    "or.b32 %r61, {s0}, 0x42000000; mov.b32 %r62, %r61; sub.f32 {d0}, %r62, 0f42000000;": "an integer's bits",
    "lop3.b32 {d0}, {s0}, 255, 0x64006400, 0x6a; mul.f32 {d0}, {d0}, {d0};": "a float made of an integer's bits",
    "copysign.f32 {d0}, {s0}, {s0};": "no rule for copysign.f32",
}


@pytest.mark.parametrize("text", WITHOUT)
def test_what_has_no_rule_ends_the_launch(text: str) -> None:
    a = drawn("f32", 14)
    run_lanes(text, ["f32"], ["f32"], [a])
    with pytest.raises(KernelFault, match=WITHOUT[text]):
        run_lanes(text, ["f32"], ["f32"], [a], exact=True)


def test_bits_of_what_a_float_was_converted_to_are_an_integers() -> None:
    a = np.arange(64, dtype=np.float32).view(np.uint32)
    text = "add.f32 %r50, {s0}, {s0}; cvt.rni.s32.f32 %r51, %r50; and.b32 %r51, %r51, 7; shl.b32 {d0}, %r51, 1;"
    [out] = run_lanes(text, ["s32"], ["f32"], [a], exact=True)
    assert out.tolist() == [2 * n % 8 * 2 for n in range(64)]


def test_bits_without_a_constant_exponent_are_a_float() -> None:
    a = np.array([0x4040, 0xBF80] * 16, np.uint32)  # 3 and -1 in bf16
    text = "shl.b32 {d0}, {s0}, 16; xor.b32 {d0}, {d0}, 0x80000000; add.f32 {d0}, {d0}, {d0};"
    [out] = run_lanes(text, ["f32"], ["f32"], [a], exact=True)
    assert elements(out, "f32").tolist() == [MODULUS - 6, 2] * 16


MADE = {  # a whole number of the lower seven bits by a constant exponent, and what is to be taken from it
    "or.b32 %r62, %r61, 0x4b000000; sub.f32 {d0}, %r62, 0f4B000000;": "f32",
    "lop3.b32 %r62, %r61, 0x7f007f, 0x64006400, 0x6a; mov.b32 %r63, 0x64006400; sub.f16x2 {d0}, %r62, %r63;": "f16",
    "or.b32 %r62, %r61, 0x43004300; mov.b32 %r63, 0x43004300; sub.bf16x2 {d0}, %r62, %r63;": "bf16",
}


@pytest.mark.parametrize("text", MADE)
def test_whole_numbers_made_by_a_constant_exponent(text: str) -> None:
    a, kind = np.arange(96, dtype=np.uint32), MADE[text]
    [out] = run_lanes(f"and.b32 %r61, {{s0}}, 127; {text}", ["f32"], ["f32"], [a], exact=True)
    assert elements(out.view(BITS[kind])[:: 4 // np.dtype(BITS[kind]).itemsize].copy(), kind).tolist() == a.tolist()


def test_a_power_of_two_that_is_taken_out() -> None:
    a = drawn("f32", 16)
    text = "mul.f32 {d0}, {s0}, {s0}; and.b32 %r62, {d0}, 0x7f800000;"
    text += "div.rn.f32 {d0}, {s0}, %r62; mul.f32 {d0}, {d0}, %r62;"
    [out] = run_lanes(text, ["f32"], ["f32"], [a], exact=True)
    known = elements(a, "f32") < UNDEFINED
    assert torch.equal(elements(out, "f32")[known], elements(a, "f32")[known])


def test_what_is_not_reached_does_not() -> None:
    a = drawn("f32", 15)
    text = "mov.f32 {d0}, {s0}; setp.eq.u32 %p9, %r62, 0; @%p9 cvt.rni.f32.f32 {d0}, {s0};"
    [out] = run_lanes(text, ["f32"], ["f32"], [a], exact=True)
    assert torch.equal(elements(out, "f32"), elements(a, "f32"))
