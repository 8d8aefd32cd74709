"""Proofs in the judge: what is proved or unknown is told, and what is refuted fails with sizes and lines."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest
import torch

import workbench as wb
from workbench.judge import SCHEMA_FILE, Judge
from workbench.judge.on_the_way import listening

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

SOURCE = r"""
extern "C" __global__ void shifted(float *out, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + 1;
}
"""
PICKED = r"""
extern "C" __global__ void picked(float *out, const float *x, const int *index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[index[i]];
}
"""


def op_of(name, function, source, facts=None, **inputs):
    op = wb.op(function, name=name, facts=facts)
    op.case("small", **inputs)
    args = ("out", *(name for name, one in inputs.items() if not isinstance(one, int)))
    op.cuda(source, grid=f"cdiv({args[-1]}.shape[0], 64)", block=64, args=(*args, f"{args[-1]}.shape[0]"))
    return op


@pytest.fixture(scope="module")
def shifted():
    return op_of("shifted", lambda x: x + 1, SOURCE, x=wb.randn("n"), n=90)


@pytest.fixture(scope="module")
def judge(shifted):
    with Judge(shifted, seeds=1, prove=True) as made:
        yield made


def test_a_proved_kernel_passes_and_the_verdict_says_for_which_sizes(judge):
    heard = []
    with listening(lambda *told: heard.append(told)):
        judgement = judge.check()
    (verdict,) = judgement
    assert verdict.ok
    assert [stage for stage, _ in heard] == ["compiles", "right", "elsewhere", "proved"]
    assert heard[-1][1].stage_seconds == verdict.stage_seconds
    (proof,) = verdict.proofs
    assert (proof.kernel, proof.status, proof.scope) == ("shifted", "proved", "all sizes")
    assert "proved for all n >= 1, grid (cdiv(n, 64), 1, 1)" in str(judgement)
    assert {*verdict.stage_seconds} == {"compiles", "launches", "clean", "right", "elsewhere", "proved"}
    jsonschema.validate(json.loads(judgement.to_json()), json.loads(SCHEMA_FILE.read_text()))
    assert type(judgement).from_dict(json.loads(judgement.to_json())) == judgement


@pytest.mark.parametrize(("wrong", "line"), [
    ("i < n + (n % 7 == 5)", 4),  # n is 90, 1 and 91 in the cases
    ("i < n || n == 33", 4),
])  # fmt: skip
def test_a_kernel_that_fails_at_sizes_that_no_case_has_is_refuted(judge, wrong, line):
    judgement = judge.check(SOURCE.replace("i < n", wrong))
    right, refuted = judgement
    assert right.ok
    assert right.proofs[0].status == "refuted"
    assert (judgement.outcome, judgement.exit_status) == ("refuted", 28)
    assert f"shifted: line {line} reads x out of bounds (n = " in refuted.message
    assert refuted.case == "small, proof"


@pytest.mark.long
def test_one_launch_alone_refutes_nothing_by_a_formula(shifted):
    """Sizes without a name are those of the case: whether others occur, nobody has said."""
    op = op_of("shifted", lambda x: x + 1, SOURCE.replace("i < n", "i < n || n == 33"), x=wb.randn(90))
    (verdict,) = wb.check(op, seeds=1, prove=True)
    assert verdict.proofs[0].scope == "sizes like those launched"
    assert "beyond that refuted: line 4 reads x out of bounds (n = 33" in str(verdict)


def test_what_cannot_be_proved_is_told_and_passes(judge):
    deep = "__device__ __noinline__ float deep(int k, float x) { return k > 0 ? deep(k - 1, x) : x; }"
    judgement = judge.check(deep + SOURCE.replace("x[i] + 1", "deep(n & 1, x[i]) + 1"))
    (verdict,) = judgement
    assert verdict.ok
    assert verdict.proofs[0].status == "unknown"
    assert "call is not modelled" in str(judgement)


def test_a_kernel_that_is_wrong_keeps_its_outcome(judge):
    judgement = judge.check(SOURCE.replace("+ 1", "+ 2"))
    assert judgement.outcome == "wrong_result"
    assert judgement.verdicts[0].proofs[0].status == "proved"


@pytest.mark.parametrize(("facts", "status"), [
    ({"index": "0 <= v < x.shape[0]"}, "proved"),
    pytest.param(None, "unknown", marks=pytest.mark.long),
])  # fmt: skip
def test_facts_of_the_op_are_those_of_the_proof(facts, status):
    def reference(x, index):
        return x[index.long()]

    op = op_of("picked", reference, PICKED, facts, x=wb.randn(30), index=wb.randint(0, 30, 70))
    (verdict,) = wb.check(op, seeds=1, prove=True, elsewhere=False)
    assert verdict.ok, verdict
    assert verdict.proofs[0].status == status, verdict


@pytest.mark.long
def test_triton_is_proved_with_its_own_block():
    import triton
    import triton.language as tl

    op = wb.op(lambda x: x * 2, name="doubled")
    op.case("small", x=wb.randn(96))

    @triton.jit
    def doubled(out, x, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

    constexprs = {"BLOCK": 64}
    op.triton(doubled, grid="cdiv(x.shape[0], 64)", args=("out", "x", "x.shape[0]"), constexprs=constexprs)
    (verdict,) = wb.check(op, seeds=1, prove=True)
    assert verdict.ok, verdict
    assert {one.status for one in verdict.proofs} == {"proved"}, verdict
    assert torch.equal(op(torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.parametrize(("guard", "ok", "line"), [
    ("i < n || n == 130", True, "proved for all n >= 1, n % 4 == 0, grid (cdiv(n, 64), 1, 1), block (64, 1, 1) ("),
    ("i <= n", False, "refuted: line 4 reads x out of bounds"),
])  # fmt: skip
def test_the_report_on_a_launch_has_its_proof_in_one_line(guard, ok, line):
    kernel = wb.load_cuda(SOURCE.replace("i < n", guard), device="sim").shifted
    x = torch.ones(100)
    report = wb.check(kernel, grid=2, block=64, args=(torch.empty_like(x), x, 100), prove=True)
    assert report.ok is replace(report, findings=()).ok is ok
    (proof,) = report.proofs
    assert proof.line.startswith(line), proof.line
    assert f"  proof: {proof.line}" in str(report).splitlines()
    assert "proof: " in report._repr_html_()
    if "130" in guard:
        assert "beyond that refuted: line 4 reads x out of bounds (n = 130" in proof.line


def test_without_z3_the_judge_says_how_to_get_it(shifted, monkeypatch):
    from workbench.proof import solver

    monkeypatch.setattr(solver, "z3", None)
    with pytest.raises(wb.WorkbenchError, match=r"pip install .*proof"):
        Judge(shifted, prove=True)
