"""Kernels that are right for the declared sizes alone, or that look at the machine they run on, and right twins."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from workbench.judge import Judge, Judgement
from workbench.judge.outcomes import of_finding
from workbench.ptx.schedules import KIND

SUMS = """extern "C" __global__ void sums(float *out, const float *x, int n) {
  float s = 0;
  for (int c = 0; c < n; ++c) s += x[(long)blockIdx.x * n + c];
  EXTRA
  out[blockIdx.x] = s;
}"""
SIZED = {
    "any size": ("", set()),
    "the declared columns": ("if (n != 48) s = 0;", {"one", "one_more"}),
    "an even number": ("if (n % 2) s -= x[(long)blockIdx.x * n + n - 1];", {"one", "one_more"}),
    "more than one column": ("if (n == 1) return;", {"one"}),
    "at most as many columns as declared": ("if (n > 48) s = 0;", {"one_more"}),
}
TRAITS = {
    "a clock like that of a GPU": "if (clock64() >> 50) s += 1;",
    "the time of day": 'long long t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); if (t >> 50) s += 1;',
    "a clock that begins at 0": "if (clock64() < 1000000) s += 1;",
    "addresses of the machine": "if ((unsigned long long)x >> 40 < 0x7f) s += 1;",
    "addresses of a GPU": "if ((unsigned long long)x >> 40 >= 0x7f) s += 1;",
    "one multiprocessor": 'unsigned m; asm("mov.u32 %0, %nsmid;" : "=r"(m)); if (m == 1) s += 1;',
    "several multiprocessors": 'unsigned m; asm("mov.u32 %0, %nsmid;" : "=r"(m)); if (m > 1) s += 1;',
}


def judged(source: str, exact_sizes: bool = False, columns: int | str = "cols") -> Judgement:
    op = wb.op(lambda x: x.sum(-1), name="row_sums", exact_sizes=exact_sizes)
    op.case("small", x=wb.randn(3, columns), **({"cols": 48} if columns == "cols" else {}))
    op.cuda(source, kernel="sums", grid="x.shape[0]", block=1, args=("out", "x", "x.shape[1]"))
    with Judge(op, seeds=[3]) as judge:
        return judge.check()


@pytest.mark.parametrize("name", SIZED)
def test_a_kernel_for_the_declared_sizes_alone_is_found(name: str):
    extra, expected = SIZED[name]
    usual, *others = judged(SUMS.replace("EXTRA", extra))
    assert usual.ok, usual
    assert {one.case.removeprefix("small, ") for one in others} == expected
    assert {"one", "one_more"} - set(usual.elsewhere) == expected
    for one in others:
        assert one.outcome == "wrong_elsewhere"
        assert "at the same with each size" in one.message
    assert judged(SUMS.replace("EXTRA", extra), exact_sizes=True).ok
    assert judged(SUMS.replace("EXTRA", extra), columns=48).ok


def test_numbers_that_differ_between_cases_may_differ_more():
    op = wb.op(lambda x: x.sum(-1), name="row_sums")
    op.case("small", x=wb.randn(3, 48))
    op.case("large", x=wb.randn(3, 64))
    source = SUMS.replace("EXTRA", "if (n % 16 || gridDim.x != 3) s = 0;")
    op.cuda(source, kernel="sums", grid="x.shape[0]", block=1, args=("out", "x", "x.shape[1]"))
    with Judge(op, seeds=[3]) as judge:
        found = judge.check()
    wrong = [one.case for one in found.verdicts if not one.ok]
    assert wrong == ["small, one", "small, one_more", "large, one", "large, one_more"]


def test_sizes_that_a_declaration_refuses_are_left_out():
    op = wb.op(lambda x: x.sum(-1), name="row_sums")
    op.case("small", x=wb.randn(4, "cols"), cols=64)
    source = SUMS.replace("EXTRA", "if (n % 32) s = 0;")
    op.cuda(
        source, kernel="sums", grid="x.shape[0]", block=1, args=("out", "x", "x.shape[1]"), where="x.shape[1] % 32 == 0"
    )
    with Judge(op, seeds=[3]) as judge:
        found = judge.check()
    assert found.ok, str(found)
    assert not {"one", "one_more"} & set(found.verdicts[0].elsewhere)


def test_sizes_at_which_the_reference_has_no_answer_are_left_out():
    op = wb.op(lambda x, w: x.reshape(4, 16).sum(-1) * w, name="row_sums")
    op.case("small", x=wb.randn("n"), w=wb.full(1.0, 4), n=64)
    source = SUMS.replace("EXTRA", "if (n != 16) s = 0;")
    op.cuda(source, kernel="sums", grid=4, block=1, args=("out", "x", "x.shape[0] // 4"))
    with Judge(op, seeds=[3]) as judge:
        assert judge.check().ok


@pytest.mark.parametrize("name", TRAITS)
def test_a_kernel_that_recognises_the_machine_is_wrong(name: str):
    found = judged(SUMS.replace("EXTRA", TRAITS[name]))
    assert found.outcome == "wrong_result", str(found)


def test_a_kernel_that_reads_the_clock_and_does_nothing_with_it_is_right():
    source = SUMS.replace("EXTRA", "const long long t = clock64(); if (clock64() < t) s += 1;")
    assert judged(source).ok


def test_empty_tensors_and_scalars_have_no_other_sizes():
    op = wb.op(lambda x: x * 2, name="twice")
    case = op.case("scalar", x=wb.randn())
    assert case.reshaped() == {}
    assert torch.equal(case.arguments()["x"], case.arguments()["x"])


LOST = """extern "C" __global__ void sums(float *out, const float *x, int n) {
  float s = 0;
  for (int c = threadIdx.x / 32; c < n; c += 2) s += x[(long)blockIdx.x * n + c];
  if (threadIdx.x == 0) out[blockIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0) ADD;
}"""
ADDED = {
    "atomicAdd(out + blockIdx.x, s)": "ok",
    "{ const float old = atomicAdd(out + blockIdx.x, 0); atomicExch(out + blockIdx.x, old + s); }": "wrong_result",
}


@pytest.mark.parametrize("add", ADDED)
def test_a_schedule_shows_what_the_checks_and_the_two_orders_hide(add: str):
    op = wb.op(lambda x: x.sum(-1), name="row_sums", exact_sizes=True)
    op.case("small", x=wb.randn(3, 48))
    op.cuda(LOST.replace("ADD", add), kernel="sums", grid=3, block=64, args=("out", "x", "x.shape[1]"))
    with Judge(op, seeds=[3]) as judge:
        assert judge.check().ok
    with Judge(op, seeds=[3], schedules=32) as judge:
        found = judge.check()
    assert found.outcome == ADDED[add], str(found)
    assert found.ok or "schedule " in found.verdicts[0].message
    assert of_finding(KIND) == "race"
