"""Other values than a case declares, and bounds that follow a sum: wrong kernels are found, right ones pass."""

from __future__ import annotations

import pytest
import torch
from sampling import long_if

import workbench as wb
from workbench.judge import Judge
from workbench.ops.declared.arithmetic import unit
from workbench.ops.declared.case import DeclaredCase
from workbench.ops.declared.elsewhere import CHANGES, Elsewhere, Meaningless

ROWS, COLS = 4, 40
HEAD = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"


def judged(reference, source: str, *, args=("out", "x"), block=ROWS, **options):
    """An op with a kernel of one block, and the judgement of it."""
    inputs = options.pop("inputs", {"x": wb.randn(ROWS, COLS)})
    op = wb.op(reference, name="judged_values", **options)
    op.case("small", **inputs)
    op.cuda(HEAD + f'extern "C" __global__ void f{source}', kernel="f", grid=1, block=block, args=args)
    return wb.check(op, seeds=1)


LOOP = f"float *out, const float *x) {{ x += threadIdx.x * {COLS}; float r = START; for (int i = 0; i < N; ++i) STEP; "
STORE = "out[threadIdx.x] = r; }"


def loop(step: str, start: str = "0", n: int = COLS, end: str = "") -> str:
    return "(" + LOOP.replace("STEP", step).replace("START", start).replace("N;", f"{n};") + end + STORE


def soft_cap(x):
    return 5 * torch.tanh(x / 5)


CAP = "(float *out, const float *x) { float s = x[threadIdx.x] / 5; out[threadIdx.x] = CAPPED; }"
EVERYWHERE = {
    "a maximum": (lambda x: x.amax(-1), loop("r = x[i] > r || x[i] != x[i] ? x[i] : r", "x[0]")),
    "a sum": (lambda x: x.sum(-1), loop("r += x[i]")),
    "a mean of squares": (lambda x: x.square().mean(-1), loop("r += x[i] * x[i]", end=f"r /= {COLS}; ")),
    "a root": (lambda x: x.mean(-1).sqrt(), loop("r += x[i]", end=f"r = sqrtf(r / {COLS}); ")),
    "a sum of exponentials": (lambda x: x.exp().sum(-1), loop("r += expf(x[i])")),
    "powers": (lambda x: (x**8).sum(-1), loop("r += powf(x[i], 8)")),
    "indices": (
        lambda x: x.gather(-1, (x[:, :1].abs() * 9).long()).squeeze(-1),
        loop("", end="r = x[(int)(fabsf(x[0]) * 9)]; "),
    ),
}
INPUTS = {"a root": {"x": wb.rand(ROWS, COLS)}, "indices": {"x": wb.rand(ROWS, COLS)}}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_right_kernel_is_right_wherever_the_reference_has_a_meaning(name: str):
    reference, source = EVERYWHERE[name]
    judgement = judged(reference, source, inputs=INPUTS.get(name, {"x": wb.randn(ROWS, COLS)}))
    assert judgement.ok, judgement
    (verdict,) = judgement
    meant = {"a root": {"x100", "x10000"}, "indices": {"negative"}, "a sum of exponentials": {"x100", "negative"}}
    assert set(verdict.elsewhere) >= meant.get(name, set(CHANGES) - {"repeated", "skewed", "extreme"}), judgement


ELSEWHERE = {
    "a maximum from 0": (lambda x: x.amax(-1), loop("r = fmaxf(r, x[i])"), ["negative"]),
    "a quotient of exponentials": (
        soft_cap,
        CAP.replace("CAPPED", "5 * (expf(s) - expf(-s)) / (expf(s) + expf(-s))"),
        ["x10000"],
    ),
    "a sentinel": (lambda x: x.amin(-1), loop("r = fminf(r, x[i])", "99.f") + "", []),
    "a table of 100": (
        lambda x: x.abs().floor().sum(-1),
        loop("r += min((int)fabsf(x[i]), 99)"),
        ["x100", "x10000"],
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_wrong_only_elsewhere_is_said_to_be_wrong_there(name: str):
    reference, source, where = ELSEWHERE[name]
    options = {"block": ROWS * COLS} if name.startswith("a quotient") else {}
    judgement = judged(reference, source, **options)
    usual, *others = judgement
    assert usual.ok
    found = {one.case.removeprefix("small, ") for one in others}
    assert found & {"x100", "x10000", "negative"} == set(where)
    assert not set(usual.elsewhere) & set(where)
    assert {one.outcome for one in others} <= {"wrong_elsewhere"}
    assert judgement.exit_status == (22 if others else 0)
    assert all("right on the case's own inputs, wrong on the same made" in one.message for one in others)


def test_other_values_can_be_left_out():
    reference, source, _ = ELSEWHERE["a maximum from 0"]
    op = wb.op(reference, name="left_out")
    op.case("small", x=wb.randn(ROWS, COLS))
    op.cuda(f'extern "C" __global__ void f{source}', grid=1, block=ROWS, args=("out", "x"))
    assert not wb.check(op, seeds=1).ok
    with Judge(op, seeds=1, elsewhere=False) as judge:
        (verdict,) = judge.check()
    assert (verdict.outcome, verdict.elsewhere) == ("ok", ())


@pytest.mark.parametrize(
    ("given", "reference", "change", "reason"),
    [
        (wb.randint(0, 9, 8), lambda x: x, "x100", "no input changes"),
        (wb.rand(8, low=-2, high=-1), lambda x: x, "negative", "no input changes"),
        (wb.rand(8, dtype="float16", low=8, high=9), lambda x: x, "x10000", "an input is too large"),
        (wb.rand(8), lambda x: x.log(), "negative", "the reference is not a number"),
        (wb.rand(8, low=1, high=2), lambda x: x.exp().exp(), "x10000", "the reference is infinite"),
        (wb.rand(8), lambda x: torch.arange(8.0)[(x * 8).long()], "x100", "the reference raises IndexError"),
    ],
)
def test_values_without_a_meaning_are_left_out(given, reference, change: str, reason: str):
    case = wb.op(reference, name="without_meaning").case("small", x=given)
    assert isinstance(case, DeclaredCase)
    with pytest.raises(Meaningless, match=reason):
        Elsewhere(case, change).require_meaning()


# -- bounds that follow a sum ---------------------------------------------------------------------------------------


def sums(kept: str, dtype: str, rows: int) -> bool:
    """Return whether column sums that are kept in a type pass."""
    element = {"bfloat16": "__nv_bfloat16", "float16": "half", "float32": "float"}
    source = (
        f"({element[dtype]} *out, const {element[dtype]} *x) {{ int c = threadIdx.x; {element[kept]} sum = 0.f;"
        f"for (int r = 0; r < {rows}; ++r) sum = sum + ({element[kept]})x[r * 64 + c];"
        f"out[c] = ({element[dtype]})sum; }}"
    )
    inputs = {"x": wb.rand(rows, 64, dtype=dtype)}
    return judged(lambda x: x.sum(0), source, inputs=inputs, block=64).ok


@pytest.mark.parametrize("dtype", ["bfloat16", long_if(True, "float16")])
@pytest.mark.parametrize("rows", [8, long_if(True, 64), 400])
def test_a_sum_kept_in_16_bits_is_wrong_and_one_kept_in_float32_is_right(dtype: str, rows: int):
    assert not sums(dtype, dtype, rows)
    assert sums("float32", dtype, rows)


@pytest.mark.parametrize("length", [64, 4096])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["matmul", "two matmuls", "mean", "affine"])
def test_right_results_in_16_bits_have_room(kind: str, dtype: torch.dtype, length: int):
    references = {
        "matmul": lambda x, w: x @ w,
        "two matmuls": lambda x, w: (x @ w).relu() @ w.t(),
        "mean": lambda x, w: x.mean(-1),
        "affine": lambda x, w: (x * 3 + 1).sum(-1),
    }
    name = str(dtype).removeprefix("torch.")
    op = wb.op(references[kind], name="rounded_once")
    case = op.case("drawn", x=wb.randn(9, length, dtype=name), w=wb.randn(length, 7, dtype=name))
    arguments = case.arguments()
    exact = case.reference()["out"]
    once = references[kind](*(one.float() for one in arguments.values())).to(dtype)
    stepwise = references[kind](*arguments.values())
    for found in (once, stepwise):
        check = case.check({"out": found})
        assert check.ok, check
    half = unit(exact, dtype) / 2
    assert bool(((once.double() - exact).abs() <= 1.01 * half + 1e-6 * exact.abs().max()).all())
    beyond = (exact + 3 * half * torch.sign(exact)).to(dtype)
    assert kind != "matmul" or not case.check({"out": beyond}).ok


@pytest.mark.parametrize(("length", "ok"), [(64, False), (4_000_000, True)])
def test_a_longer_sum_in_float32_may_miss_more(length: int, ok: bool):
    op = wb.op(lambda x: x.sum(-1), name="long_sum")
    case = op.case("drawn", x=wb.rand(2, length))
    assert case.check({"out": (case.reference()["out"] * (1 + 1e-4)).float()}).ok is ok


def test_a_stated_tolerance_decides():
    op = wb.op(lambda x: x.sum(0), name="stated_tolerance", tolerance={"bfloat16": 0.1})
    case = op.case("drawn", x=wb.rand(8, 64, dtype="bfloat16"))
    assert case.check({"out": (case.reference()["out"] * 1.09).bfloat16()}).ok


def test_a_function_that_hardware_approximates_keeps_the_wider_bound():
    op = wb.op(lambda x: x.softmax(-1), name="approximate")
    case = op.case("drawn", x=wb.randn(8, 64, dtype="bfloat16"))
    assert case.check({"out": (case.reference()["out"] * (1 + 2**-6)).bfloat16()}).ok
