"""Notes beside a verdict: what does not fail, and words for the error of a result that does."""

from __future__ import annotations

import json

import noted_ops

import workbench as wb
from workbench.judge import Judgement
from workbench.judge.notes import notes_on_code
from workbench.toolchain import compile_cuda

WORDS = "float32 is summed in float16 at source.cu:5, which keeps 10 of its 23 bits"


def test_a_sum_in_float16_explains_a_wrong_result():
    found = wb.check(noted_ops.squares, seeds=1)
    assert {one.variant: one.outcome for one in found} == {"half": "wrong_result", "float": "ok"}
    assert [one.variant for one in found if WORDS in one.message] == ["half"]
    assert all(one.notes == () for one in found)
    compared = wb.compare(noted_ops.squares)
    assert [trial.variant for trial in compared.trials if WORDS in trial.message] == ["half"]


def test_an_open_order_of_additions_is_noted():
    found = wb.check(noted_ops.total, cases=["line", "ones"], seeds=1)
    assert found.ok
    line, ones = found
    (note,) = line.notes
    assert "the result depends on the order of these additions" in note
    assert "of out" in note
    assert f"note: {note}" in str(found)
    assert ones.notes == ()
    assert Judgement.from_dict(json.loads(found.to_json())) == found


def test_what_ptxas_ignores_is_noted():
    source = """extern "C" __global__ void __launch_bounds__(BOUNDS) k(float *x) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); x[threadIdx.x] = 1; }"""
    texts = [
        compile_cuda(source, "k", arch="sm_90a", macros={"BOUNDS": bounds}).ptx for bounds in ("128", "128, 1")
    ]  # fmt: skip
    assert [["'setmaxnreg' ignored" in note for note in notes_on_code([text], False)] for text in texts] == [[True], []]
