"""Kernel Tuner: its files are written and read, and its strategies search with our measurements."""

from __future__ import annotations

import json
import random
import sys
import warnings

import numpy as np
import pytest
import toy
from driven import asked_by
from toy import ALL_ENDS, tune_steps

from workbench.errors import MissingToolError, StoreError, UnknownNameError, WorkbenchError
from workbench.tuning import Space, tune
from workbench.tuning.recorded.kernel_tuner_files import export, from_cache
from workbench.tuning.recorded.sweep import load, sweep_of
from workbench.tuning.search import kernel_tuner_strategies

FOREIGN = {
    "device_name": "NVIDIA RTX A4000",
    "kernel_name": "convolution",
    "problem_size": [4096, 4096],
    "tune_params_keys": ["block_size_x", "layout"],
    "tune_params": {"block_size_x": [16, 32, 64], "layout": ["row", "column"]},
    "objective": "time",
    "cache": {
        "16,row": {
            "block_size_x": 16,
            "layout": "row",
            "time": 2.0,
            "times": [2.0, 2.5, 1.5],
            "timestamp": "2024-05-06T07:08:09+00:00",
        },
        "32,row": {"block_size_x": 32, "layout": "row", "time": 1.0, "times": [1.0]},
        "64,row": {"block_size_x": 64, "layout": "row", "time": "RuntimeFailedConfig"},
        "16,column": {"block_size_x": 16, "layout": "column", "__error__": "CompilationFailedConfig"},
    },
}


@pytest.fixture
def sweep():
    return sweep_of(tune_steps(toy.steps_variant(values=ALL_ENDS, behaviour=toy.fail_by_value), record=False))


# -- files ------------------------------------------------------------------------------------------------------


def test_a_cache_of_kernel_tuner_s_is_replayed_and_labelled(tmp_path):
    path = tmp_path / "convolution.json"
    path.write_text(json.dumps(FOREIGN))
    run = tune("convolution", device=f"replay:{path}")
    assert run.best.config == {"block_size_x": 32, "layout": "row"}
    assert run.best.seconds == pytest.approx(1e-3)
    assert run.outcomes == {"ok": 2, "compile_error": 1, "launch_error": 1}
    assert "measured on NVIDIA RTX A4000; recorded 2024-05-06 with Kernel Tuner" in run.time_label
    assert run.best.basis == "measured"


@pytest.mark.parametrize("cut", ["}}", "}\n}"])
def test_a_cache_of_a_run_that_goes_on_lacks_its_end(cut):
    text = json.dumps(FOREIGN)
    assert text.endswith("}}")
    assert len(from_cache(text[:-2] + ",").trials) == 4
    assert len(from_cache(text[:-2] + cut).trials) == 4


def test_a_cache_of_another_objective_is_refused(tmp_path):
    path = tmp_path / "energy.json"
    rows = {key: {**row, "energy": 1.0} for key, row in FOREIGN["cache"].items()}
    path.write_text(json.dumps({**FOREIGN, "objective": "energy", "cache": rows}))
    with pytest.raises(StoreError, match="only times"):
        load(path)


def test_an_exported_cache_comes_back_with_its_label(sweep, tmp_path):
    back = load(export(sweep, tmp_path / "cache.json", "kernel-tuner"))
    assert back.label == sweep.label
    assert [trial.config for trial in back.trials] == [trial.config for trial in sweep.trials]
    for old, new in zip(sweep.trials, back.trials, strict=True):
        assert (new.seconds or 0) == pytest.approx(old.seconds or 0)
        assert new.ok == old.ok
        assert new.measured_seconds is None, "a prediction stays one"


def test_kernel_tuner_replays_the_exported_cache(sweep, tmp_path):
    kernel_tuner = pytest.importorskip("kernel_tuner")
    path = export(sweep, tmp_path / "cache.json", "kernel-tuner")
    results, environment = kernel_tuner.tune_cache(str(path), quiet=True, verbose=False)
    assert len(results) == 3, "it leaves failed configurations out of the space"
    assert environment["best_config"]["STEPS"] == 1
    seconds = {trial.config["STEPS"]: trial.seconds for trial in sweep.trials if trial.ok}
    assert {row["STEPS"]: row["time"] / 1e3 for row in results} == pytest.approx(seconds)


def test_t4_results_and_metadata_keep_to_the_published_schema(sweep, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    files = pytest.importorskip("kernel_tuner.file_utils")
    for kind, name in (("t4", "results"), ("t4-metadata", "metadata")):
        version, schema = files.output_file_schema(name)
        record = json.loads(export(sweep, tmp_path / f"{name}.json", kind).read_text())
        assert record["schema_version"] == version
        jsonschema.validate(record, schema)
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert {row["configuration"]["STEPS"]: row["invalidity"] for row in results} == {
        **dict.fromkeys((1, 2, 3), "correct"),
        13: "compile",
        14: "runtime",
        15: "timeout",
        16: "runtime",
    }
    assert {row["correctness"] for row in results if row["invalidity"] == "correct"} == {1.0}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"results": [{**results[0], "invalidity": "slow"}]}, files.output_file_schema("results")[1])


# -- strategies -------------------------------------------------------------------------------------------------


@pytest.fixture
def space():
    return Space({"A": (1, 2, 4, 8, 16), "B": (1, 2, 4, 8), "C": ("row", "column")})


def cost(config) -> float:
    return 1 + abs(config["A"] - 4) + abs(config["B"] - 2) + (config["C"] == "row")


def drive(plan, space, score=cost, count=20, **options):
    return asked_by(plan, space, score, count=count, **options)


@pytest.mark.parametrize("name", ["random_sample", "genetic_algorithm", "simulated_annealing", "hybrid_vndx"])
def test_a_strategy_asks_for_legal_configurations_once_each_and_repeats_itself(name, space):
    pytest.importorskip("kernel_tuner")
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist()
    plan = kernel_tuner_strategies.strategy(name)
    asked = drive(plan, space)
    assert all(config in space for config in asked)
    assert len({tuple(config.values()) for config in asked}) == len(asked)
    assert len(asked) >= 10
    assert drive(plan, space) == asked
    assert drive(plan, space, seed=1) != asked
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before, "the program's own random numbers"


def test_a_strategy_that_knows_everything_already_ends():
    pytest.importorskip("kernel_tuner")
    tiny = Space({"A": (1, 2), "B": (1, 2)})
    for name in ("hybrid_vndx", "simulated_annealing", "genetic_algorithm"):
        plan = kernel_tuner_strategies.strategy(name)
        assert len(drive(plan, tiny, count=5, score=lambda config: config["A"] + config["B"])) <= 4


def test_failures_and_a_start_are_understood(space):
    pytest.importorskip("kernel_tuner")
    start = {"A": 16, "B": 8, "C": "row"}
    plan = kernel_tuner_strategies.strategy("genetic_algorithm")
    asked = drive(plan, space, start=start, score=lambda c: float("inf") if c["A"] == 1 else cost(c))
    assert asked[0] == start


def test_its_bayesian_optimiser_knows_a_failure_from_a_time(monkeypatch):
    pytest.importorskip("kernel_tuner")
    pytest.importorskip("sklearn")
    wide = Space({"A": tuple(range(16)), "B": tuple(range(8))})

    def score(config):
        return float("inf") if config["B"] % 2 else 1 + abs(config["A"] - 11) + config["B"]

    plan = kernel_tuner_strategies.strategy("bayes_opt")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert min(map(score, drive(plan, wide, score=score, count=50))) == 1
    monkeypatch.setattr(kernel_tuner_strategies, "_FAILED_FOR_BAYES_OPT", sys.float_info.max)
    with pytest.warns(RuntimeWarning, match="overflow"):
        drive(plan, wide, score=score, count=30)


def test_a_live_search_with_a_strategy_of_kernel_tuner_s():
    pytest.importorskip("kernel_tuner")
    variant = toy.steps_variant(values=tuple(range(1, 13)), pages=(8, 16))
    run = tune_steps(variant, strategy="kernel_tuner:greedy_ils", budget=15)
    assert len(run.trials) == 15
    assert run.best.config["STEPS"] <= 4


def test_an_error_inside_a_strategy_names_it(space, monkeypatch):
    pytest.importorskip("kernel_tuner")
    from kernel_tuner.strategies import mls

    def broken(*_):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(mls, "tune", broken)
    with pytest.raises(WorkbenchError, match="mls: ZeroDivisionError: planted"):
        drive(kernel_tuner_strategies.strategy("mls"), space)


def test_unknown_names_and_a_missing_package(monkeypatch):
    with pytest.raises(UnknownNameError, match="kernel_tuner:pso"):
        kernel_tuner_strategies.strategy("guess")
    monkeypatch.setattr(kernel_tuner_strategies, "available", lambda: False)
    with pytest.raises(MissingToolError, match="kernel-tuner"):
        tune_steps(strategy="kernel_tuner:pso")
