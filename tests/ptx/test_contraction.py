"""Products and sums that the assembler fuses: the machine rounds where the machine code does."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from contraction_cases import BYTES, INPUTS, THREADS, draw_expressions
from ptx_float_cases import NAN, flush, operate
from ptx_support import FORMATS, WIDTHS, module, round_float
from sass_values import SassRun, Values, machine_code

from workbench import ptx
from workbench.ptx.machine import OPCODES

ARCHS = {"f32": "sm_80", "f64": "sm_100", "f16x2": "sm_80", "bf16x2": "sm_90"}
WORDS = {4: np.uint32, 8: np.uint64}
EXPRESSIONS = 300


def _inputs(kind: str, seed: int) -> list[Values]:
    """Operands in [1/4, 4) of both signs, some of them equal: their products and sums seldom overflow."""
    draw, lanes = random.Random(seed), THREADS * (2 if kind.endswith("x2") else 1)
    scalar = kind.removesuffix("x2")
    precision, _, bias = FORMATS[scalar]

    def one() -> int:
        exponent, mantissa = draw.randint(-2, 1) + bias, draw.getrandbits(precision - 1)
        return draw.getrandbits(1) << WIDTHS[scalar] - 1 | exponent << precision - 1 | mantissa

    return [[one() for _ in range(lanes)] for _ in range(INPUTS)]


def _words(values: Values, kind: str) -> np.ndarray:
    if kind.endswith("x2"):
        low, high = np.array(values, np.uint32).reshape(2, THREADS)
        return low | high << 16
    return np.array(values, WORDS[BYTES[kind]])


def _values(words: np.ndarray, kind: str) -> Values:
    return [*(words & 0xFFFF).tolist(), *(words >> 16).tolist()] if kind.endswith("x2") else words.tolist()


def _is_nan(bits: int, kind: str) -> bool:
    precision = FORMATS[kind][0]
    infinity = (1 << WIDTHS[kind] - 1) - (1 << precision - 1)
    return bits & (1 << WIDTHS[kind] - 1) - 1 > infinity


def _different(kind: str, fmad: bool, machine_fmad: bool, folder: Path) -> list[str]:
    """The stores whose values differ between the assembler's code and the machine."""
    scalar = kind.removesuffix("x2")
    drawn = draw_expressions(7, kind, ARCHS[kind], EXPRESSIONS)
    code = machine_code(drawn.ptx, folder, ARCHS[kind], f"--fmad={str(fmad).lower()}")
    program, found = ptx.Program(drawn.ptx), []
    for seed, (name, count) in enumerate(drawn.stored.items()):
        inputs = _inputs(kind, seed)
        run = SassRun(scalar, kind.endswith("x2"), inputs, BYTES[kind] * THREADS)
        expected = run.run(code[name])
        given = np.concatenate([_words(each, kind) for each in inputs])
        out = np.zeros((count, THREADS), given.dtype)
        program[name].launch(1, THREADS, [given, out], fmad=machine_fmad)
        assert sorted(expected) == list(range(count))
        for place in range(count):
            pairs = zip(_values(out[place], kind), expected[place], strict=True)
            if not all(a == b or (_is_nan(a, scalar) and _is_nan(b, scalar)) for a, b in pairs):
                found.append(f"{name}, value {place}")
    return found


@pytest.mark.parametrize("fmad", [True, False])
@pytest.mark.parametrize("kind", ARCHS)
def test_values_are_those_of_the_machine_code(kind, fmad, tmp_path):
    assert _different(kind, fmad, fmad, tmp_path) == []


def test_the_comparison_sees_code_that_is_not_contracted(tmp_path):
    assert len(_different("f32", False, True, tmp_path)) > EXPRESSIONS / 4


# Bodies over the inputs %r0 to %r4; %r9 is stored.
CORNERS = {
    "a product with another use": "mul.f32 %r5, %r0, %r1; add.f32 %r6, %r5, %r2; mul.f32 %r9, %r5, %r6;",
    "two sums of one product": (
        "mul.f32 %r5, %r0, %r1; add.f32 %r6, %r5, %r2; sub.f32 %r7, %r3, %r5; mul.rn.f32 %r9, %r6, %r7;"
    ),
    "a product added to itself": "mul.f32 %r5, %r0, %r1; add.f32 %r9, %r5, %r5;",
    "the sum of equal products": "mul.f32 %r5, %r0, %r1; mul.f32 %r6, %r1, %r0; add.f32 %r9, %r5, %r6;",
    "the difference of equal products": "mul.f32 %r5, %r0, %r1; mul.f32 %r6, %r0, %r1; sub.f32 %r9, %r5, %r6;",
    "equal products, a sum and another sum": (
        "mul.f32 %r5, %r0, %r1; mul.f32 %r6, %r0, %r1; add.f32 %r7, %r5, %r6; add.f32 %r8, %r5, %r2;"
        "mul.rn.f32 %r9, %r7, %r8;"
    ),
    "a neg between": "mul.f32 %r5, %r0, %r1; neg.f32 %r6, %r5; add.f32 %r9, %r6, %r2;",
    "two products with a sign": (
        "mul.f32 %r5, %r0, %r1; neg.f32 %r6, %r5; mul.f32 %r7, %r2, %r3; sub.f32 %r9, %r6, %r7;"
    ),
    "an abs between": "mul.f32 %r5, %r0, %r1; abs.f32 %r6, %r5; add.f32 %r9, %r6, %r2;",
    "the abs of a square": "mul.f32 %r5, %r0, %r0; abs.f32 %r6, %r5; add.f32 %r9, %r6, %r2;",
    "the abs of a square with a sign": (
        "mul.f32 %r5, %r0, %r0; neg.f32 %r7, %r5; abs.f32 %r6, %r7; add.f32 %r9, %r6, %r2;"
    ),
    "an addend's abs": "mul.f32 %r5, %r0, %r1; abs.f32 %r6, %r2; add.f32 %r9, %r6, %r5;",
    "a sum of 1 a and c d": "mul.f32 %r5, %r0, 0f3F800000; mul.f32 %r6, %r2, %r1; add.f32 %r9, %r5, %r6;",
    "a sum of 2 a and c d": "mul.f32 %r5, %r0, 0f40000000; mul.f32 %r6, %r2, %r1; add.f32 %r9, %r5, %r6;",
    "a product times -1": "mul.f32 %r5, %r0, %r1; mul.f32 %r6, %r5, 0fBF800000; add.f32 %r9, %r6, %r2;",
    "constants": "mul.f32 %r5, %r0, 0f3F8CCCCD; add.f32 %r9, %r5, 0f3FCCCCCD;",
    "a constant less a product": "mul.f32 %r5, %r0, %r1; sub.f32 %r9, 0f3F8CCCCD, %r5;",
    "a register that is written again": (
        "mul.f32 %r5, %r0, %r1; add.f32 %r0, %r0, %r1; add.f32 %r6, %r5, %r2; mul.rn.f32 %r9, %r6, %r0;"
    ),
    "a product in its own factor": "mul.f32 %r0, %r0, %r1; sub.f32 %r0, %r0, %r2; mul.f32 %r9, %r0, %r3;",
    "a product that is written again": (
        "mul.f32 %r5, %r0, %r1; add.f32 %r6, %r5, %r2; mul.f32 %r5, %r6, %r3; sub.f32 %r9, %r5, %r4;"
    ),
    "a chain": (
        "mul.f32 %r5, %r0, %r1; mul.f32 %r6, %r2, %r3; mul.f32 %r7, %r4, %r0; add.f32 %r8, %r5, %r6;"
        "add.f32 %r9, %r8, %r7;"
    ),
    "a product as addend of fma": "mul.f32 %r5, %r0, %r1; fma.rn.f32 %r9, %r2, %r3, %r5;",
    "mul.rn": "mul.rn.f32 %r5, %r0, %r1; add.f32 %r9, %r5, %r2;",
    "add.rn": "mul.f32 %r5, %r0, %r1; add.rn.f32 %r9, %r5, %r2;",
    ".ftz on both": "mul.ftz.f32 %r5, %r0, %r1; sub.ftz.f32 %r9, %r5, %r2;",
    ".ftz on the product": "mul.ftz.f32 %r5, %r0, %r1; sub.f32 %r9, %r5, %r2;",
    ".ftz on the sum": "mul.f32 %r5, %r0, %r1; sub.ftz.f32 %r9, %r5, %r2;",
    ".ftz and a neg without": "mul.ftz.f32 %r5, %r0, %r1; neg.f32 %r6, %r5; sub.ftz.f32 %r9, %r6, %r2;",
    "a neg.ftz between": "mul.f32 %r5, %r0, %r1; neg.ftz.f32 %r6, %r5; add.f32 %r9, %r6, %r2;",
    ".sat on the sum": "mul.f32 %r5, %r0, %r1; add.sat.f32 %r9, %r5, %r2;",
    ".sat on the product": "mul.sat.f32 %r5, %r0, %r1; add.f32 %r9, %r5, %r2;",
    "a label between": "mul.f32 %r5, %r0, %r1; NEXT: sub.f32 %r9, %r5, %r2;",
    "a jump that leads on": "mul.f32 %r5, %r0, %r1; bra NEXT; LAST: ret; NEXT: sub.f32 %r9, %r5, %r2;",
    "two uses in conflict": (
        "mul.f32 %r5, %r0, %r0; mul.f32 %r6, %r2, %r2; add.f32 %r7, %r1, %r6; sub.f32 %r8, %r5, %r6;"
        "mul.rn.f32 %r9, %r7, %r8;"
    ),
}  # fmt: skip


def test_corners_are_those_of_the_machine_code(tmp_path):
    texts = {f"k{number}": body for number, body in enumerate(CORNERS.values())}
    loads = "".join(f"ld.global.f32 %r{i}, [%d0+{4 * THREADS * i}];" for i in range(INPUTS))
    head = "mov.u32 %r60, %tid.x; ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];"
    head += "mad.wide.u32 %d0, %r60, 4, %d0; mad.wide.u32 %d1, %r60, 4, %d1;" + loads
    parts = [
        module(name, ".param .u64 in, .param .u64 out", f"{head} {body} st.global.f32 [%d1], %r9;")
        for name, body in texts.items()
    ]
    whole = parts[0] + "".join(part.partition(".address_size 64\n")[2] for part in parts[1:])
    code, program = machine_code(whole, tmp_path, "sm_80"), ptx.Program(whole)
    wrong, kept = [], []
    for name, what in zip(texts, CORNERS, strict=True):
        inputs = _inputs("f32", 3)
        expected = SassRun("f32", False, inputs, 4 * THREADS).run(code[name])[0]
        out, plain = np.zeros((2, THREADS), np.uint32)
        for array, fmad in ((out, True), (plain, False)):
            program[name].launch(1, THREADS, [np.array(inputs, np.uint32), array], fmad=fmad)
        wrong += [what] if out.tolist() != expected else []
        kept += [what] if out.tolist() == plain.tolist() else []
    assert wrong == []
    assert {"a product with another use", "mul.rn", ".ftz on the sum", "the sum of equal products"} <= set(kept)
    assert {"constants", "a label between", "a register that is written again"} & set(kept) == set()


A, SQUARE = 0x3F800800, 0x3F801000  # 1 + 2^-12, and its rounded square: the product lacks 2^-24
FUSED, TWICE = 0x33800000, 0
FLOW = {
    "a barrier between": ("mul.f32 %r5, %r0, %r0; bar.sync 0; sub.f32 %r9, %r5, %r1;", FUSED),
    "a guarded sum": ("mul.f32 %r5, %r0, %r0; mov.b32 %r9, %r1; @%p1 sub.f32 %r9, %r5, %r1;", FUSED),
    "a guarded product": ("mov.b32 %r5, %r1; @%p1 mul.f32 %r5, %r0, %r0; sub.f32 %r9, %r5, %r1;", TWICE),
    "a branch between": ("mul.f32 %r5, %r0, %r0; @!%p1 bra LAST; sub.f32 %r9, %r5, %r1; LAST:", TWICE),
    "an exit between": ("mul.f32 %r5, %r0, %r0; @!%p1 ret; sub.f32 %r9, %r5, %r1;", TWICE),
    "both behind a branch": ("@!%p1 bra LAST; mul.f32 %r5, %r0, %r0; sub.f32 %r9, %r5, %r1; LAST:", FUSED),
    "products of two ways": (
        "@%p1 bra OTHER; mul.f32 %r5, %r1, %r0; bra LAST; OTHER: mul.f32 %r5, %r0, %r0; LAST: sub.f32 %r9, %r5, %r1;",
        TWICE,
    ),
    "a use behind a branch": (
        "mul.f32 %r5, %r0, %r0; sub.f32 %r9, %r5, %r1; @%p1 bra LAST; add.f32 %r9, %r5, %r1; LAST:",
        TWICE,
    ),
    "a loop's body": (
        "mov.u32 %r7, 0; LOOP: mul.f32 %r5, %r0, %r0; sub.f32 %r9, %r5, %r1; add.u32 %r7, %r7, 1;"
        "setp.lt.u32 %p2, %r7, 3; @%p2 bra LOOP;",
        FUSED,
    ),
    "a product of the last iteration": (
        "mov.u32 %r7, 0; mov.b32 %r5, %r1; LOOP: sub.f32 %r9, %r5, %r1; mul.f32 %r5, %r0, %r0;"
        "add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 2; @%p2 bra LOOP;",
        TWICE,
    ),
    "a product before a loop": (
        "mul.f32 %r5, %r0, %r0; mov.u32 %r7, 0; LOOP: sub.f32 %r9, %r5, %r1; add.u32 %r7, %r7, 1;"
        "setp.lt.u32 %p2, %r7, 2; @%p2 bra LOOP;",
        TWICE,
    ),
}


@pytest.mark.parametrize("what", FLOW)
def test_control_flow_decides(what):
    body, expected = FLOW[what]
    head = "ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; ld.global.f32 %r0, [%d0]; ld.global.f32 %r1, [%d0+4];"
    head += "setp.ne.u32 %p1, %r0, 0;"
    text = module("k", ".param .u64 in, .param .u64 out", f"{head} {body} st.global.f32 [%d1], %r9;")
    given, out = np.array([A, SQUARE], np.uint32), np.zeros(1, np.uint32)
    ptx.Program(text)["k"].launch(1, 1, [given, out])
    assert out[0] == expected


RESIDUAL = module(
    "k", ".param .u64 in, .param .u64 out",
    "ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; ld.global.f32 %r0, [%d0]; ld.global.f32 %r1, [%d0+4];"
    "mul.f32 %r5, %r0, %r0; sub.f32 %r9, %r5, %r1; st.global.f32 [%d1], %r9;",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (RESIDUAL, {}, FUSED),
        (RESIDUAL, {"fmad": False}, TWICE),
        (RESIDUAL, {"checks": True}, FUSED),
        (RESIDUAL.replace("sm_80\n", "sm_80, debug\n"), {}, TWICE),
        (RESIDUAL + "// ptxas --fmad=false\n", {}, TWICE),
    ],
    ids=("default", "fmad=False", "checks", "debug", "compiled without"),
)
def test_contraction_is_an_option(text, options, expected):
    given, out = np.array([A, SQUARE], np.uint32), np.zeros(1, np.uint32)
    report = ptx.Program(text)["k"].launch(1, 1, [given, out], **options)
    assert out[0] == expected
    assert report.instructions == 8


FORMS = [name for name in OPCODES if name.startswith("contract.")]


@pytest.mark.parametrize("name", FORMS)
def test_each_form_rounds_once_with_each_sign(name):
    """``name`` is the core's; the PTX is the sum's, with the product in front of it."""
    operation, kind = name.removeprefix("contract").rpartition(".")[::2]
    scalar = kind.removesuffix("x2")
    lanes = 2 if kind.endswith("x2") else 1
    prefix = {2: "%h", 4: "%r", 8: "%d"}[WIDTHS[scalar] * lanes // 8]
    size, width = WIDTHS[scalar] * lanes // 8, WIDTHS[scalar]
    product = operation.replace(".sat", "")
    draw, forms = random.Random(name), ("add {p}, {c}", "sub {p}, {c}", "sub {c}, {p}", "add {c}, {p}")
    body, stores = [], 0
    for number, form in enumerate(forms):
        text = form.format(p=f"{prefix}5", c=f"{prefix}2").replace(" ", f"{operation}.{kind} {prefix}9, ", 1)
        body.append(f"mul{product}.{kind} {prefix}5, {prefix}0, {prefix}1; {text};")
        body.append(f"st.global.b{8 * size} [%d61+{256 * number}], {prefix}9;")
        stores += 1
    head = f"mov.u32 %r60, %tid.x; ld.param.u64 %d60, [in]; ld.param.u64 %d61, [out]; mul.wide.u32 %d62, %r60, {size};"
    head += "add.u64 %d60, %d60, %d62; add.u64 %d61, %d61, %d62;"
    head += "".join(f"ld.global.b{8 * size} {prefix}{i}, [%d60+{256 * i}];" for i in range(3))
    words = [[[_number(draw, scalar) for _ in range(lanes)] for _ in range(32)] for _ in range(3)]
    given = np.zeros((3, 256), np.uint8)
    for each, row in zip(words, given, strict=True):
        packed = [sum(value << width * lane for lane, value in enumerate(one)) for one in each]
        row[: 32 * size] = np.frombuffer(b"".join(one.to_bytes(size, "little") for one in packed), np.uint8)
    out = np.zeros((4, 256), np.uint8)
    text = module("k", ".param .u64 in, .param .u64 out", head + "\n".join(body))
    text = text.replace("sm_80", "sm_100").replace(".version 8.0", ".version 8.6")
    kernel = ptx.Program(text)["k"]
    assert [step.opcode.name for step in kernel.decoded.code].count(name) == stores
    kernel.launch(1, 32, [given, out])
    for form, row in zip(forms, out, strict=True):
        for lane in range(32 * lanes):
            values = [each[lane // lanes][lane % lanes] for each in words]
            got = int.from_bytes(row[lane * width // 8 : (lane + 1) * width // 8].tobytes(), "little")
            wanted = _once(form, operation, scalar, values)
            assert got == wanted or (_is_nan(got, scalar) and wanted is NAN), (form, list(map(hex, values)))


def _number(draw: random.Random, kind: str) -> int:
    """Any finite number, most of them near 1, or a subnormal one."""
    precision, _, bias = FORMATS[kind]
    exponent = bias + draw.choice((-1, 0, 0, 1)) if draw.random() < 0.8 else 0
    return draw.getrandbits(1) << WIDTHS[kind] - 1 | exponent << precision - 1 | draw.getrandbits(precision - 1)


def _once(form: str, operation: str, kind: str, values: list[int]) -> object:
    """The sum of a product with one rounding."""
    top = 1 << WIDTHS[kind] - 1
    if ".ftz" in operation:
        values = [flush(one, kind) for one in values]
    a, b, c = values
    a = a ^ top if form == "sub {c}, {p}" else a
    c = c ^ top if form == "sub {p}, {c}" else c
    found = operate("fma", kind, "rn", (a, b, c))
    assert isinstance(found, int)
    found = flush(found, kind) if ".ftz" in operation else found
    if ".sat" in operation:
        found = 0 if found & top else min(found, round_float(Fraction(1), kind))
    return found
