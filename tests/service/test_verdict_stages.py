"""Stages of every outcome, static stages, rewards, and problems behind ids."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fenced import block

from workbench.errors import ArgumentError
from workbench.judge import OUTCOMES, Judgement, Verdict
from workbench.judge.many import JudgingTask
from workbench.judge.on_the_way import tell
from workbench.judge.verdict import KernelProof
from workbench.service import JudgingOptions, Problems, ServiceResult, VerdictStage, judging, staged
from workbench.service.judging import Work
from workbench.service.rewards import CHEATS, WEIGHTS, reward_of
from workbench.service.stages import FAILS, NOT_THE_CANDIDATE, STAGES, stages_of, stages_so_far
from workbench.service.static_stages import FORBIDDEN, static_stages

PAGE = (Path(__file__).parents[2] / "docs" / "SERVICE.md").read_text()
PARSED = (VerdictStage("parses", "passed", 1.0, 0.0), VerdictStage("imports", "passed", 1.0, 0.0))
PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""


def verdict(outcome: str, message: str = "", **more) -> Verdict:
    return Verdict("op", "kernel", "case", {}, outcome, message, seconds=0.5, **more)


def result(*verdicts: Verdict) -> ServiceResult:
    judgement = Judgement("op", "candidate.py", verdicts)
    return ServiceResult("op", judgement.outcome, "", stages_of(PARSED, judgement), judgement)


def test_every_outcome_fails_a_stage_or_reports_about_the_problem():
    assert {*FAILS, *NOT_THE_CANDIDATE, "ok"} == set(OUTCOMES)
    assert set(CHEATS) < set(OUTCOMES)
    assert set(WEIGHTS) == set(STAGES)
    assert sum(WEIGHTS.values()) - WEIGHTS["proved"] == pytest.approx(1)


@pytest.mark.parametrize("outcome", [one for one in FAILS if one not in ("wrong_elsewhere", "refuted")])
def test_stages_before_the_failure_pass_and_those_behind_it_are_not_reached(outcome):
    times = {"compiles": 1.0, "launches": 2.0, "clean": 4.0, "right": 8.0}
    found = result(verdict(outcome, "why", stage_seconds=times))
    at = STAGES.index(FAILS[outcome])
    assert [one.status for one in found.stages if one.name != "proved"] == [
        *["passed"] * at, "failed", *["not_reached"] * (7 - at)
    ]  # fmt: skip
    assert found.stages[at].message == f"{outcome}: why"
    assert sum(one.seconds or 0 for one in found.stages) == 15
    assert {one.status for one in found.stages if one.seconds is None} <= {"not_reached", "skipped"}


def test_a_record_of_an_older_version_has_its_seconds_at_the_last_stage():
    assert [one.seconds for one in result(verdict("race")).stages] == [0, 0, None, None, 0.5, None, None, None, None]


def test_what_ends_while_it_is_loaded_does_not_compile():
    found = result(verdict("timeout", "while it was loaded and described: stopped"))
    assert [one.status for one in found.stages[:4]] == ["passed", "passed", "failed", "not_reached"]


def test_a_part_of_the_cases_gives_a_part_of_the_score():
    found = result(verdict("ok"), verdict("race"), verdict("wrong_result"), verdict("ok"))
    assert [one.score for one in found.stages] == [1, 1, 1, 1, 0.75, 0.5, 0, None, 0]


def test_changed_inputs_and_times_have_scores():
    times = {"predicted_seconds": 4e-6, "torch_compile_seconds": 3e-6}
    own = verdict("ok", elsewhere=("zero", "tied", "nan"), **times)
    right = result(own)
    assert (right.stages[6].score, right.stages[8].score) == (1, 0.75)
    assert "0.75 times as fast" in right.stages[8].message
    wrong = result(own, verdict("wrong_elsewhere", "for -inf"))
    assert (wrong.stages[6].score, wrong.stages[6].message, wrong.stages[8].status) == (0.75, "for -inf", "not_reached")
    assert result(verdict("ok")).stages[6].status == "skipped"


def proof(status: str) -> KernelProof:
    return KernelProof("k", status, "all sizes", f"k: {status}\n  more", f"{status} for all n")


def test_proofs_are_a_stage_of_their_own_with_a_part_for_what_nobody_knows():
    own = [verdict("ok", proofs=(proof("proved"), proof("proved"))), verdict("ok", proofs=(proof("unknown"),))]
    known, unknown = result(own[0]).stages[7], result(*own).stages[7]
    assert (known.status, known.score, known.message) == ("passed", 1, "k: proved for all n")
    assert (unknown.status, unknown.score) == ("passed", pytest.approx(5 / 6))
    assert unknown.message == "k: unknown for all n"
    wrong = result(verdict("ok", proofs=(proof("refuted"),)), verdict("refuted", "at n = 5"))
    assert [one.status for one in wrong.stages[4:]] == ["passed", "passed", "skipped", "failed", "not_reached"]
    assert wrong.stages[7].score == 0
    assert staged(wrong) < staged(result(own[1])) < staged(result(own[0])) == 1
    assert result(verdict("race", proofs=(proof("proved"),))).stages[7].status == "passed"


def test_stages_end_when_all_that_was_heard_has_come_so_far():
    ok, race = verdict("ok", stage_seconds={"compiles": 1.0, "clean": 2.0}), verdict("race")
    assert stages_so_far(PARSED, []) == PARSED
    begun = stages_so_far(PARSED, [("compiles", ok)])
    assert [(one.name, one.status, one.seconds) for one in begun[2:]] == [("compiles", "passed", 1.0)]
    found = stages_so_far(PARSED, [("right", ok), ("compiles", ok)])
    assert [one.name for one in found] == list(STAGES[:6])
    assert [one.status for one in stages_so_far(PARSED, [("right", ok), ("right", race)])][3:] == [
        "passed",
        "failed",
        "failed",
    ]


def test_a_worker_writes_the_stages_of_a_judgement_under_way(tmp_path, monkeypatch):
    told = tmp_path / "told.json"
    seen = []

    def judged(task: JudgingTask) -> Judgement:
        found = [
            verdict("ok", "", seeds=(5,), stage_seconds={"compiles": 1.0}),
            verdict("race", "seed 5, at 0x7f0000000000"),
        ]
        for stage, one in zip(("compiles", "right"), found, strict=True):
            seen.append(json.loads(told.read_text()))
            tell(stage, one)
        return Judgement("op", "", (found[1],))

    monkeypatch.setattr(judging, "judged", judged)
    work = Work("a" * 64, JudgingTask(b"", "", None, {}, {}, 0), "import torch", "python", FORBIDDEN, told)
    result = judging.result_of("op", judging.judge_work(work))
    seen.append(json.loads(told.read_text()))
    assert [[one["name"] for one in stages] for stages in seen] == [
        ["parses", "imports"], ["parses", "imports", "compiles"], list(STAGES[:6])
    ]  # fmt: skip
    assert [VerdictStage(**one) for one in seen[-1]] == list(result.stages[:6])
    assert seen[-1][4]["message"] == "race: a seed, at an address"
    judging.judge_work(replace(work, told=tmp_path / "elsewhere" / "told.json"))  # a worker on another machine


def test_rewards_rise_with_the_stages_and_cheats_get_none():
    order = ["not_loaded", "unsupported", "race", "wrong_result", "wrong_elsewhere"]
    rewards = [
        staged(result(verdict("ok"), verdict(one))) if one == order[-1] else staged(result(verdict(one)))
        for one in order
    ]
    assert rewards == sorted(set(rewards))
    assert staged(result(verdict("ok"))) == 1
    assert all(staged(result(verdict(one))) == 0 for one in CHEATS)


def doubled(found: ServiceResult) -> float:
    return 2.0 * found.ok


def test_a_reward_is_replaced_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "own_rewards", sys.modules[__name__])
    assert reward_of("own_rewards:doubled")(result(verdict("ok"))) == 2
    for wrong in ("own_rewards", "own_rewards:none", "no_such_module:f", "own_rewards:PROBLEM"):
        with pytest.raises(ArgumentError, match="reward: got"):
            reward_of(wrong)


def test_the_page_has_the_weights_and_a_reward_that_works():
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([\d.]+) \|$", PAGE, re.MULTILINE))
    assert {name: float(weight) for name, weight in rows.items()} == WEIGHTS
    names: dict = {}
    exec(block(PAGE, "python", "def speedup"), names)
    times = {"predicted_seconds": 2e-6, "torch_compile_seconds": 3e-6}
    assert names["speedup"](result(verdict("ok", **times))) == pytest.approx(1.5)
    assert names["speedup"](result(verdict("race"))) == 0
    assert all(f"`{one}`" in PAGE for one in CHEATS)


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("import torch, triton\nfrom torch.utils.cpp_extension import load_inline", ""),
        ("import os, ctypes.util", "imports"),
        ("def f():\n    from workbench.judge import outcomes", "imports"),
        ("from workbench import judge", "imports"),
        ("import importlib\nimportlib.import_module('socket')", "imports"),
        ("__import__('gc')", "imports"),
        ("import ctypes_like", ""),
        ("x = (", "parses"),
        ("\0", "parses"),
        ("(" * 5000, "parses"),
    ],
)
def test_static_stages_fail_by_name(text, failed):
    assert [one.name for one in static_stages(text, "python", FORBIDDEN) if one.status == "failed"] == [failed] * bool(
        failed
    )


def test_forbidden_imports_are_replaced():
    assert static_stages("import ctypes, math", "python", ("math",))[1].message == "line 1 imports math"
    assert {one.status for one in static_stages("__global__", "cuda", FORBIDDEN)} == {"skipped"}


def test_problems_of_folders_have_ids_and_only_their_statement_leaves(tmp_path):
    for name in ("level1/relu.py", "level2/norm/problem.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(PROBLEM)
    (tmp_path / "level1" / "relu.md").write_text("Double it.")
    (tmp_path / "level1" / "helper.py").write_text("x = 1")
    found = Problems([str(tmp_path), "puzzles"])
    assert [name for name in found if "puzzle" not in name] == ["level1/relu", "level2/norm"]
    assert (found["level1/relu"].statement, found["level2/norm"].statement) == ("Double it.", "")
    assert len([name for name in found if "puzzle/" in name]) == 12
    first, second = (found["level1/relu"].options(JudgingOptions(), os.urandom(8)) for _ in range(2))
    assert first["seeds"] != second["seeds"]
    one, other = (found["level1/relu"].options(JudgingOptions(), b"secret") for _ in range(2))
    assert one == other


@pytest.mark.parametrize(
    "source", ["nowhere.py:op", "no_such_op", "puzzle:paged_read", "puzzle:none", str(Path(__file__).parent)]
)
def test_what_is_no_problem_is_refused(source):
    with pytest.raises(ArgumentError):
        Problems([source])
    with pytest.raises(ArgumentError, match="two problems"):
        Problems(["puzzle:guard", "puzzle:guard"])
