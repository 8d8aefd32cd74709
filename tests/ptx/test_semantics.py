"""Every lane-wise instruction against an independent statement of its meaning."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ptx_float_cases import CASES as FLOAT_CASES
from ptx_float_cases import NAN
from ptx_integer_cases import CASES as INTEGER_CASES
from ptx_integer_cases import Case
from ptx_rare_cases import CASES as RARE_CASES
from ptx_small_cases import CASES as SMALL_CASES
from ptx_support import WIDTHS, as_array, decode_float, operand_sets, run_lanes


def identify(case: Case) -> str:
    return case.instruction.split(" ")[0] + ":" + ":".join(case.sources) + ">" + case.destination


def is_nan(bits: int, kind: str) -> bool:
    value = decode_float(bits, kind)
    return isinstance(value, float) and math.isnan(value)


def agrees(got: int, expected: object, kind: str) -> bool:
    if isinstance(expected, tuple):
        half = kind[:-2]
        parts = got & (1 << WIDTHS[half]) - 1, got >> WIDTHS[half]
        return all(agrees(part, e, half) for part, e in zip(parts, expected, strict=True))
    if expected is NAN:
        return is_nan(got, kind)
    if kind in WIDTHS and is_nan(expected, kind):  # an operand's NaN handed on: its payload is not specified
        return is_nan(got, kind)
    return got == expected


@pytest.mark.parametrize("case", INTEGER_CASES + FLOAT_CASES + RARE_CASES + SMALL_CASES, ids=identify)
def test_instruction(case: Case) -> None:
    columns = operand_sets(case.sources, count=40, cap=520)
    (got,) = run_lanes(
        case.instruction,
        [case.destination],
        case.sources,
        [as_array(c, k) for c, k in zip(columns, case.sources, strict=True)],
    )
    wrong = []
    for row, result in zip(zip(*columns, strict=True), got.tolist(), strict=True):
        expected = case.expected(*row)
        if not agrees(result, expected, case.destination):
            wrong.append((tuple(map(hex, row)), hex(result), expected))
    assert not wrong, f"{len(wrong)} of {len(got)}: {wrong[:4]}"


APPROXIMATE = {
    # instruction: (function, largest relative error, argument range); limits from the PTX ISA
    "ex2.approx.f32": (np.exp2, 2.0**-22, (-126, 127)),
    "ex2.approx.ftz.f32": (np.exp2, 2.0**-22, (-126, 127)),
    "lg2.approx.f32": (np.log2, 2.0**-22, (2, 1e30)),
    "lg2.approx.ftz.f32": (np.log2, 2.0**-22, (2, 1e30)),
    "rcp.approx.f32": (lambda x: 1 / x, 2.0**-23, (1e-30, 1e30)),
    "rcp.approx.ftz.f32": (lambda x: 1 / x, 2.0**-23, (1e-30, 1e30)),
    "sqrt.approx.f32": (np.sqrt, 2.0**-22, (0, 1e30)),
    "sqrt.approx.ftz.f32": (np.sqrt, 2.0**-22, (0, 1e30)),
    "rsqrt.approx.f32": (lambda x: x**-0.5, 2.0**-22, (1e-30, 1e30)),
    "rsqrt.approx.ftz.f32": (lambda x: x**-0.5, 2.0**-22, (1e-30, 1e30)),
    "tanh.approx.f32": (np.tanh, 2.0**-11, (-9, 9)),
    "tanh.approx.ftz.f32": (np.tanh, 2.0**-11, (-9, 9)),
    "sin.approx.f32": (np.sin, None, (-math.pi, math.pi)),
    "sin.approx.ftz.f32": (np.sin, None, (-math.pi, math.pi)),
    "cos.approx.f32": (np.cos, None, (-math.pi, math.pi)),
    "cos.approx.ftz.f32": (np.cos, None, (-math.pi, math.pi)),
}


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_function(name: str) -> None:
    function, relative, (low, high) = APPROXIMATE[name]
    rng = np.random.default_rng(0)
    wide = low > 0 and high > 1e6
    x = np.exp(rng.uniform(np.log(low), np.log(high), 4096)) if wide else rng.uniform(low, high, 4096)
    x = x.astype(np.float32)
    (bits,) = run_lanes(f"{name} {{d0}}, {{s0}};", ["f32"], ["f32"], [x.view(np.uint32)])
    got, exact = bits.view(np.float32).astype(np.float64), function(x.astype(np.float64))
    if relative is None:
        assert np.abs(got - exact).max() <= 2.0**-20.9
    else:
        assert (np.abs(got - exact) <= relative * np.abs(exact)).all()


def special(name: str, value: float, kind: str = "f32") -> float:
    types = {"f32": (np.float32, np.uint32), "f64": (np.float64, np.uint64)}[kind]
    x = np.array([value], types[0]).view(types[1])
    (bits,) = run_lanes(f"{name} {{d0}}, {{s0}};", [kind], [kind], [x])
    return float(bits.view(types[0])[0])


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ex2.approx.f32", -math.inf, 0.0),
        ("ex2.approx.f32", math.inf, math.inf),
        ("ex2.approx.f32", 128.0, math.inf),
        ("ex2.approx.f32", -149.0, 2.0**-149),
        ("ex2.approx.f32", -0.0, 1.0),
        ("ex2.approx.ftz.f32", -130.0, 0.0),
        ("ex2.approx.f32", math.nan, math.nan),
        ("lg2.approx.f32", 0.0, -math.inf),
        ("lg2.approx.f32", -1.0, math.nan),
        ("rcp.approx.f32", 0.0, math.inf),
        ("rcp.approx.f32", -math.inf, -0.0),
        ("rsqrt.approx.f32", 0.0, math.inf),
        ("rsqrt.approx.f32", -1.0, math.nan),
        ("sqrt.approx.f32", -0.0, -0.0),
        ("tanh.approx.f32", math.inf, 1.0),
        ("sin.approx.f32", -0.0, -0.0),
        ("cos.approx.f32", math.inf, math.nan),
    ],
)
def test_approximate_edges(name: str, value: float, expected: float) -> None:
    got = special(name, value)
    assert (math.isnan(got) and math.isnan(expected)) or (
        got == expected and math.copysign(1, got) == math.copysign(1, expected)
    )


@pytest.mark.parametrize("name", ["div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"])
def test_division(name: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(0, 100, 4096).astype(np.float32) for _ in range(2))
    (bits,) = run_lanes(
        f"{name} {{d0}}, {{s0}}, {{s1}};", ["f32"], ["f32", "f32"], [a.view(np.uint32), b.view(np.uint32)]
    )
    exact = a.astype(np.float64) / b
    assert (np.abs(bits.view(np.float32) - exact) <= 2 * 2.0**-23 * np.abs(exact)).all()


def test_halves_widen_with_the_payload_of_their_nans() -> None:
    # Warps of numbers, of NaNs (quiet and signalling), and of both.
    x = np.concatenate([np.arange(1 << 16), np.random.default_rng(3).permutation(1 << 16)]).astype(np.uint16)
    (got,) = run_lanes("cvt.f32.f16 {d0}, {s0};", ["f32"], ["f16"], [x])
    number = np.isfinite(x.view(np.float16))
    bits = (x.astype(np.uint32) & 0x8000) << 16 | 0x7F800000 | (x.astype(np.uint32) & 0x3FF) << 13
    with np.errstate(invalid="ignore"):
        expected = np.where(number, x.view(np.float16).astype(np.float32).view(np.uint32), bits)
    assert np.array_equal(got, expected)


def test_division_by_huge_underflows() -> None:
    a, b = np.array([1.0, np.inf, -4.0], np.float32), np.array([2.0**127, 2.0**127, 2.0**127], np.float32)
    (bits,) = run_lanes(
        "div.approx.f32 {d0}, {s0}, {s1};", ["f32"], ["f32"] * 2, [a.view(np.uint32), b.view(np.uint32)]
    )
    got = bits.view(np.float32)
    assert got[0] == 0
    assert np.isnan(got[1])
    assert got[2] == 0


def test_approximate_double() -> None:
    rng = np.random.default_rng(2)
    x = np.exp(rng.uniform(-40, 40, 1000))
    for name, exact in (
        ("rcp.approx.ftz.f64", 1 / x),
        ("rsqrt.approx.ftz.f64", x**-0.5),
        ("rsqrt.approx.f64", x**-0.5),
    ):
        (bits,) = run_lanes(f"{name} {{d0}}, {{s0}};", ["f64"], ["f64"], [x.view(np.uint64)])
        assert (np.abs(bits.view(np.float64) - exact) <= 2.0**-19.9 * exact).all()


@pytest.mark.parametrize("name", ["ex2.approx", "tanh.approx"])
@pytest.mark.parametrize("kind", ["f16", "bf16", "f16x2", "bf16x2"])
def test_approximate_halves(name: str, kind: str) -> None:
    base = kind.removesuffix("x2")
    rng = np.random.default_rng(3)
    x = rng.uniform(-6, 6, 512).astype(np.float32)
    bits = x.astype(np.float16).view(np.uint16) if base == "f16" else (x.view(np.uint32) >> 16).astype(np.uint16)
    ftz = ".ftz" if base == "bf16" and name == "ex2.approx" else ""
    operand = bits if kind == base else bits.astype(np.uint32) << 16 | bits
    (raw,) = run_lanes(f"{name}{ftz}.{kind} {{d0}}, {{s0}};", [kind], [kind], [operand])
    function = np.exp2 if name == "ex2.approx" else np.tanh
    step = 2.0**-9.9 if base == "f16" else 2.0**-7
    for half in [raw & 0xFFFF] if kind == base else [raw & 0xFFFF, raw >> 16]:
        got = np.array([float(decode_float(int(b), base)) for b in half])
        exact = function(np.array([float(decode_float(int(b), base)) for b in bits]))
        assert (np.abs(got - exact) <= step * np.abs(exact) + 1e-7).all()


@pytest.mark.parametrize("case", INTEGER_CASES + FLOAT_CASES + RARE_CASES + SMALL_CASES, ids=identify)
@pytest.mark.sampled(12)
def test_lanes_outside_the_guard_keep_their_value(case: Case) -> None:
    columns = [as_array((c * 32)[:32], k) for c, k in zip(operand_sets(case.sources, 8, 90), case.sources, strict=True)]
    (everywhere,) = run_lanes(case.instruction, [case.destination], case.sources, columns)
    instruction = case.instruction.replace("{d0}", "{{d0}}")
    mask = 0x5A3C_9E01
    # The old value of the destination is that of the guarded-off lanes: it comes in as one more operand.
    old = as_array([1 if case.destination == "pred" else 0x77] * 32, case.destination)
    extra = len(case.sources)
    move = "cvt.u8.u8" if old.itemsize == 1 else f"mov.b{8 * old.itemsize}"  # PTX has no mov.b8
    move = "mov.pred" if case.destination == "pred" else move
    text = (
        f"{move} {{d0}}, {{s{extra}}}; mov.u32 %r50, %laneid; mov.u32 %r51, {mask}; shr.u32 %r51, %r51, %r50; "
        f"and.b32 %r51, %r51, 1; setp.ne.u32 %p50, %r51, 0; @%p50 "
        + instruction.replace("{{d0}}", "{d0}").replace("; ", "; @%p50 ")
    )
    (got,) = run_lanes(text, [case.destination], [*case.sources, case.destination], [*columns, old])
    chosen = (mask >> np.arange(32) & 1).astype(bool)
    assert (got == np.where(chosen, everywhere, old)).all()
