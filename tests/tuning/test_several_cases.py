"""Several cases tuned at once: the fastest of each, what the best single configuration costs there, what is legal."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

import workbench as wb
from workbench.errors import ArgumentError
from workbench.ops.declared.op import DeclaredOp
from workbench.ops.tuned import lookup

KERNEL = """
extern "C" __global__ void twice(float *out, const float *x, int n)
{ for (int i = threadIdx.x; i < n; i += THREADS) out[i] = 2 * x[i]; }
"""
_N = {"n": "x.numel()"}


def doubled(name: str, *rules: str) -> DeclaredOp:
    @wb.op(name=f"several_{name}")
    def function(x):
        return 2 * x

    for case, size in (("narrow", 64), ("wide", 2048)):
        function.case(case, x=wb.randn(size))
    function.cuda(KERNEL, tune={"THREADS": (32, 64, 1024)}, where=list(rules), grid=1, block="THREADS", args=_N)
    return function


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    store = tmp_path_factory.mktemp("several") / "store.sqlite"
    return wb.tune(doubled("run"), ["narrow", "wide"], device="sim", record=False, store=store)


def with_times(run, **micro: tuple[float, float, float]):
    """The run with these times of THREADS = 32, 64 and 1024 on each case; None for a wrong result."""
    trials = []
    for trial in run.trials:
        time = micro[trial.case][(32, 64, 1024).index(trial.config["THREADS"])]
        outcome = "wrong_result" if time is None else "ok"
        trials.append(dataclasses.replace(trial, predicted_seconds=time and time * 1e-6, outcome=outcome))
    return dataclasses.replace(run, trials=tuple(trials))


@pytest.mark.parametrize(
    ("narrow", "wide", "single", "expected"),
    [
        ((1, 2, 4), (8, 4, 2), 32, {"narrow": (32, 1.0), "wide": (1024, 4.0)}),
        ((4, 3, 6), (8, 4, 4), 64, {"narrow": (64, 1.0), "wide": (64, 1.0)}),
        ((1, 1.5, 4), (8, 3, 2), 64, {"narrow": (32, 1.5), "wide": (1024, 1.5)}),
        ((1, 2, None), (8, 3, 1), 64, {"narrow": (32, 2.0), "wide": (1024, 3.0)}),
        ((1, 2, None), (None, None, 1), None, {"narrow": (32, None), "wide": (1024, None)}),
    ],
)
def test_each_case_has_its_fastest_and_the_cost_of_the_single_best(run, narrow, wide, single, expected):
    timed = with_times(run, narrow=narrow, wide=wide)
    assert (timed.best and timed.best.config["THREADS"]) == single
    found = {one.fastest.case: (one.fastest.config["THREADS"], one.cost) for one in timed.by_case}
    assert found == {case: (threads, cost and pytest.approx(cost)) for case, (threads, cost) in expected.items()}
    told, page, document = str(timed), timed._repr_html_(), json.loads(timed.to_json())["by_case"]
    for (case, (threads, cost)), record in zip(expected.items(), document, strict=True):
        (line,) = [line for line in told.splitlines() if line.startswith(f"{case} ")]
        assert f"twice THREADS={threads}" in line
        assert line.split()[-1] == ("–" if cost is None else f"{cost:.2f}x")
        assert f"twice THREADS={threads}" in page
        assert (record["case"], record["config"]) == (case, {"THREADS": threads})
        assert record["best_cost"] == (cost and pytest.approx(cost))


def test_one_case_has_no_table_of_cases(run):
    narrow = [trial for trial in run.trials if trial.case == "narrow"]
    one = dataclasses.replace(run, cases=run.cases[:1], trials=tuple(narrow))
    assert "single best" in str(run)
    assert "single best" not in str(one)


def test_what_is_legal_on_one_case_only_is_noted(fresh_home):
    op = doubled("noted", "THREADS <= x.numel()")
    run = wb.tune(op, ["narrow", "wide"], device="sim", record=False)
    (note,) = [note for note in run.notes if "every case" in note]
    assert note.startswith("twice: candidates are the configurations that are legal on every case, 2; ")
    assert note.endswith("a case that is tuned alone has 1 more on wide.")


def test_what_a_case_has_had_alone_stays_its_fastest(fresh_home):
    op = doubled("apart", "THREADS <= x.numel()")
    alone = wb.tune(op, "wide", device="sim", record=False)
    assert alone.best.config == {"THREADS": 1024}
    run = wb.tune(op, ["narrow", "wide"], device="sim")
    assert {one.fastest.case: one.fastest.config["THREADS"] for one in run.by_case} == {"narrow": 64, "wide": 1024}
    assert run.best.config == {"THREADS": 64}
    assert [trial.config for trial in run.apart] == [{"THREADS": 1024}]
    answer = lookup(op, None, op.case("wide").problem())
    assert answer is not None
    assert answer.entry.config == {"THREADS": 1024}


@pytest.mark.parametrize("named", [True, False])
def test_nothing_legal_for_all_cases_says_how_many_each_has_and_the_rule_that_forbids_most(named: bool):
    op = doubled(f"none_{named}", "THREADS * 2 <= x.numel()", "THREADS >= x.numel() / 2 or THREADS < 1")
    with pytest.raises(ArgumentError) as caught:
        wb.tune(op, ["narrow", "wide"], "twice" if named else None, device="sim")
    told = str(caught.value)
    assert "no configuration is legal for all of these cases" in told
    assert re.search(r"narrow alone has 1 of 3 \([^;]*THREADS \* 2 <= x\.numel\(\)\) forbids most: 2\)", told), told
    assert re.search(r"wide alone has 1 of 3 \([^;]*THREADS < 1\) forbids most: 2\)", told), told
    assert "points are restricted" not in told


def test_a_variant_without_a_legal_configuration_is_restricted_and_hides_no_other(fresh_home):
    op = doubled("hidden")
    op.cuda(KERNEL, name="few", tune={"THREADS": (32,)}, where=["x.numel() < 100"], grid=1, block="THREADS", args=_N)
    found = wb.compare(op, "wide", ["twice", "few"], device="sim")
    assert [trial.outcome for trial in found.trials] == ["ok", "restricted"]
    assert "none is legal for x float32[2048]" in found["few"].message
    assert [trial.variant for trial in wb.compare(op, "wide", device="sim").trials] == ["torch", "twice"]
    answer = lookup(op, None, op.case("wide").problem())
    assert answer is not None
    assert answer.variant == "twice", "few is last, and has no legal configuration at this size"
