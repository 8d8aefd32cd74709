"""A tuning run keeps every outcome, does nothing twice, stays within its budget and chooses the same each time."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import toy
import warm
from toy import ALL_ENDS, ENDS, WrongCase, tune_steps

from workbench import ops
from workbench.errors import ArgumentError, MissingToolError, UnknownNameError, WorkbenchError
from workbench.tuning import Store, device_model, evaluate
from workbench.tuning.called_with import model_for
from workbench.tuning.measuring.attempt import Attempt
from workbench.tuning.measuring.inputs import Inputs
from workbench.tuning.measuring.measure import InProcess
from workbench.tuning.search.budget import budget_of


def logged(log: Path, what: str = "run") -> Counter:
    """How often each configuration was run, or compiled, in whatever process."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return Counter(line[1] for line in lines if line[0] == what)


# -- outcomes ---------------------------------------------------------------------------------------------------


def test_every_attempt_is_a_row_with_its_outcome():
    run = tune_steps(toy.steps_variant(values=ALL_ENDS, behaviour=toy.fail_by_value))
    outcomes = {trial.config["STEPS"]: trial.outcome for trial in run.trials}
    assert outcomes == {1: "ok", 2: "ok", 3: "ok", **ENDS}
    assert run.best.config == {"STEPS": 1}
    assert all(trial.message for trial in run.trials if not trial.ok)
    assert all((trial.seconds is not None) == trial.ok for trial in run.trials)
    assert run.outcomes == {"ok": 3, "compile_error": 1, "launch_error": 1, "timeout": 1, "crash": 1}


def test_a_wrong_result_has_no_time_and_wins_nothing():
    run = tune_steps(cases=WrongCase("wrong", 64))
    assert {trial.outcome for trial in run.trials} == {"wrong_result"}
    assert {trial.seconds for trial in run.trials} == {None}
    assert all(trial.max_error == 1 and trial.error_bound == 1e-6 for trial in run.trials)
    assert run.best is None
    assert "no winner" in str(run)
    assert run.table_path is None


def test_a_restricted_configuration_names_its_rule_and_is_not_compiled(tmp_path):
    variant = toy.steps_variant(pages=(8, 16), log=tmp_path / "log")
    trial = evaluate(variant, {"STEPS": 1, "PAGE": 12}, _PagedCase(count=64), _sim())
    assert trial.outcome == "restricted"
    assert "page size: PAGE == page" in trial.message
    assert evaluate(variant, {"STEPS": 1}, toy.ToyCase(), _sim()).outcome == "restricted", "a parameter is missing"
    assert not (tmp_path / "log").exists()


def test_a_strategy_of_one_s_own_may_leave_the_space_and_gets_a_row_that_says_so():
    def own(space, start, rng):
        scores = yield [{"STEPS": 3, "PAGE": 8}, {"STEPS": 3, "PAGE": 16}]
        assert scores[0] == float("inf") > scores[1] > 0

    cases = _PagedCase("paged", 64)
    run = tune_steps(toy.steps_variant(pages=(8, 16)), cases=cases, strategy=own)
    assert [(trial.config["PAGE"], trial.outcome) for trial in run.trials] == [(16, "ok"), (8, "restricted")]
    assert run.best.config == {"STEPS": 3, "PAGE": 16}


class _PagedCase(toy.ToyCase):
    """A case whose page is fixed."""

    def problem(self, config=None, arch="sm_80"):
        return toy.ToyProblem(self.count, page=16, arch=arch)


def _sim():
    from workbench.launch import devices

    return devices.get("sim")


def test_what_fits_no_multiprocessor_is_a_launch_error_although_the_simulator_would_run_it(monkeypatch):
    monkeypatch.setattr(toy, "FakeKernel", lambda **_: _too_big())
    trial = evaluate(toy.steps_variant(), {"STEPS": 1}, toy.ToyCase(count=64), _sim())
    assert trial.outcome == "launch_error", trial.message
    assert "shared memory" in trial.message


def _too_big():
    from workbench.toolchain.occupancy import occupancy

    figures = {"registers": 32, "spill_bytes": 0, "stack_bytes": 0, "static_shared_bytes": 10**6, "key": "0"}
    figures |= {"dynamic_shared_bytes": 0, "threads_per_block": 128, "compiler": "none", "from_cache": False}
    return SimpleNamespace(**figures, remarks=(), ptx="", occupancy=occupancy("sm_80", 128, 32, 10**6))


def test_no_compiler_ends_the_run_and_is_no_outcome(monkeypatch):
    def missing(self, config, problem, arch="sm_80", *, machine_code=True):
        raise MissingToolError("no compiler; install one")

    monkeypatch.setattr(toy.StepsVariant, "kernels", missing)
    with pytest.raises(MissingToolError):
        tune_steps()
    with Store() as store:
        assert len(store) == 0


def test_when_everything_crashes_alike_the_run_ends_instead_of_writing_it_down_for_all():
    def broken(config):
        raise AttributeError("a broken installation")

    with pytest.raises(WorkbenchError, match=r"3 configurations.*a broken installation"):
        tune_steps(toy.steps_variant(behaviour=broken))
    assert tune_steps().new == 12, "no result was kept"


def test_one_configuration_that_crashes_alike_on_every_case_is_its_own_doing():
    def broken(config):
        if config["STEPS"] == 12:
            raise AttributeError("its own")

    cases = [toy.ToyCase(name, 64) for name in "abcd"]
    run = tune_steps(toy.steps_variant(behaviour=broken), cases=cases)
    assert run.trials[-1].config == {"STEPS": 12}
    assert run.outcomes == {"ok": 44, "crash": 4}


def test_inputs_are_made_anew_after_a_failure(monkeypatch):
    made, original = [], toy.ToyCase.inputs
    monkeypatch.setattr(toy.ToyCase, "inputs", lambda self, *given: made.append(given) or original(self, *given))
    measurer, variant = InProcess(_sim(), device_model()), toy.steps_variant(behaviour=toy.fail_by_value)
    for steps, expected in ((1, 1), (2, 1), (14, 1), (1, 2), (13, 2), (2, 2)):
        measurer.tried(Attempt.of(variant, {"STEPS": steps}, toy.ToyCase(count=64), _sim()))
        assert len(made) == expected, steps


def test_a_case_without_a_record_is_evaluated_all_the_same():
    class Unrecorded(toy.ToyCase):
        def to_dict(self):
            raise ArgumentError("case", "tensors of a model", "a case drawn from a seed", "Name one.")

    assert evaluate(toy.steps_variant(), {"STEPS": 1}, Unrecorded(count=64), _sim()).ok


def test_outputs_are_poisoned():
    import torch

    inputs = Inputs(toy.ToyCase(count=64), "sim")
    problem = toy.ToyProblem(64)
    tensors = inputs.of(problem)
    tensors.out.zero_()
    assert inputs.of(problem) is tensors
    assert tensors.out.isnan().all()
    whole = toy.ToyTensors(torch.zeros(3), torch.zeros(3, dtype=torch.int32))
    whole.renew()
    assert (whole.out == 2**31 - 1).all()


# -- reuse ------------------------------------------------------------------------------------------------------


def test_the_same_command_again_compiles_and_measures_nothing(tmp_path):
    variant = toy.steps_variant(values=ALL_ENDS, behaviour=toy.fail_by_value, log=tmp_path / "log")
    first, before = tune_steps(variant), (tmp_path / "log").read_text()
    again = tune_steps(variant)
    assert (tmp_path / "log").read_text() == before
    assert (first.new, first.reused, again.new, again.reused) == (7, 0, 0, 7)
    assert [t.config for t in again.trials] == [t.config for t in first.trials]
    assert again.best.seconds == first.best.seconds


def test_adding_a_value_tunes_only_what_is_new(tmp_path):
    log = tmp_path / "log"
    tune_steps(toy.steps_variant(values=(2, 4, 6), log=log))
    log.unlink()
    run = tune_steps(toy.steps_variant(values=(1, 2, 4, 6), log=log))
    assert logged(log) == logged(log, "compile") == {"1": 1}
    assert (run.new, run.reused, len(run.trials)) == (1, 3, 4)


def test_a_changed_source_is_tuned_anew():
    assert tune_steps(toy.steps_variant(text="1")).new == 12
    assert tune_steps(toy.steps_variant(text="2")).new == 12


def test_failed_configurations_are_retried_only_when_asked(tmp_path):
    log = tmp_path / "log"
    variant = toy.steps_variant(values=ALL_ENDS, behaviour=toy.fail_by_value, log=log)
    tune_steps(variant)
    log.unlink()
    mended = toy.steps_variant(values=ALL_ENDS, log=log)
    assert tune_steps(mended).outcomes["ok"] == 3
    assert not logged(log)
    run = tune_steps(mended, retry_failed=True)
    assert logged(log) == {"14": 1, "15": 1, "16": 1}
    assert run.outcomes == {"ok": 6, "compile_error": 1}


def test_another_device_model_needs_no_new_run_of_the_same_architecture(tmp_path):
    a100 = tune_steps()
    ada = tune_steps(model="l4")
    assert (ada.device.arch, ada.new) == ("sm_89", 12)
    faster = tune_steps(model="rtx-4090")
    assert (faster.new, faster.reused) == (0, 12)
    assert faster.best.seconds < ada.best.seconds != a100.best.seconds
    assert {trial.predicted_for for trial in faster.trials} == {"rtx-4090"}
    assert "RTX 4090" in faster.time_label


# -- other processes --------------------------------------------------------------------------------------------


def start(store: Path, log: Path, seconds: float) -> subprocess.Popen:
    command = [*warm.python(), toy.__file__, str(store), str(log), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for_runs(log: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while sum(logged(log).values()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_kill_9_loses_no_finished_row_and_the_next_run_goes_on(tmp_path):
    store, log = tmp_path / "store.sqlite", tmp_path / "log"
    process = start(store, log, 0.15)
    wait_for_runs(log, 4)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    begun = logged(log)
    with Store(store) as opened:
        finished = {str(trial.config["STEPS"]) for trial in opened.trials()}
    assert len(begun) - 1 <= len(finished) < 12, "at most the one that was running is lost"
    run = tune_steps(toy.steps_variant(log=log), store=store)
    assert (run.reused, run.new, len(run.trials)) == (len(finished), 12 - len(finished), 12)
    again = logged(log)
    assert all(again[steps] == 1 for steps in finished), "what was finished is not run again"
    assert all(again[steps] == begun[steps] + 1 for steps in again if steps not in finished)


@pytest.mark.long
def test_two_tuners_on_one_store_do_no_work_twice(tmp_path):
    store, log = tmp_path / "store.sqlite", tmp_path / "log"
    processes = [start(store, log, 0.1) for _ in range(2)]
    said = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert logged(log) == logged(log, "compile") == {str(steps): 1 for steps in range(1, 13)}
    assert [words[5] for words in said] == ["12", "12"], "each has all the results"
    assert sum(int(words[1]) for words in said) == 12


def test_an_interruption_keeps_what_is_finished_and_says_how_to_go_on(tmp_path, capsys):
    log = tmp_path / "log"

    def interrupt(config):
        if config["STEPS"] == 3:
            raise KeyboardInterrupt

    run = tune_steps(toy.steps_variant(behaviour=interrupt, log=log))
    assert run.interrupted
    assert len(run.trials) == 3, "the default, 1 and 2"
    assert "same command" in capsys.readouterr().err
    assert run.table_path is None
    rest = tune_steps(toy.steps_variant(log=log))
    assert (rest.new, rest.reused) == (9, 3)
    assert logged(log) == {str(steps): 1 for steps in range(1, 13)} | {"3": 2}


# -- strategies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["exhaustive", "random", "greedy"])
def test_each_strategy_starts_from_the_default_and_keeps_to_its_budget(strategy, tmp_path):
    log = tmp_path / "log"
    run = tune_steps(toy.steps_variant(values=tuple(range(1, 31)), log=log), strategy=strategy, budget=7, record=False)
    assert len(run.trials) == 7
    first = next(line for line in log.read_text().splitlines() if line.startswith("run"))
    assert first.startswith("run 30 "), "the untuned rule's"
    assert max(logged(log).values()) == 1
    everything = tune_steps(toy.steps_variant(), strategy=strategy)
    assert len(everything.trials) == 12
    assert everything.best.config == {"STEPS": 1}


def test_greedy_walks_downhill():
    run = tune_steps(toy.steps_variant(values=tuple(range(1, 31))), strategy="greedy", budget=8)
    assert sorted(trial.config["STEPS"] for trial in run.trials) == list(range(23, 31))


def test_a_time_budget_ends_the_search_and_the_next_run_goes_on():
    values = tuple(range(1, 41))
    run = tune_steps(toy.steps_variant(values=values, seconds=0.05), budget="0.3s")
    assert 1 <= len(run.trials) < 12
    more = tune_steps(toy.steps_variant(values=values, seconds=0.05), budget="0.3s")
    assert more.reused >= len(run.trials)
    assert more.new >= 1


def test_quick_takes_a_sample_that_repeats_itself():
    values = tuple(range(1, 101))
    runs = [tune_steps(toy.steps_variant(values=values), quick=True) for _ in range(2)]
    assert [len(run.trials) for run in runs] == [8, 8]
    assert (runs[1].new, runs[1].reused) == (0, 8)
    other = tune_steps(toy.steps_variant(values=values), quick=True, seed=1)
    assert [trial.config for trial in other.trials] != [trial.config for trial in runs[0].trials]


def test_budgets_and_strategies_that_mean_nothing():
    assert budget_of("24").configurations == budget_of(24).configurations == 24
    assert [budget_of(text).seconds for text in ("30s", "5m", "1.5h")] == [30, 300, 5400]
    for bad in ("soon", 0, "-3", "1.5", "0s"):
        with pytest.raises(ArgumentError, match="budget"):
            budget_of(bad)
    with pytest.raises(UnknownNameError, match="greedy"):
        tune_steps(strategy="guess")


def test_variants_that_need_another_gpu_are_predicted_for_one_that_has_what_they_need():
    op = ops.get("causal_attention")
    here, hopper = op.variant("cuda_mma"), op.variant("cuda_wgmma")
    model = model_for([hopper], [op.quick_case])
    assert model is not None
    assert model.arch == "sm_90"
    assert model_for([here], [op.quick_case]) is None
    assert model_for([here, hopper], [op.quick_case]) is None
