"""``workbench bench tune``: it counts what it says, and ours is first on the shipped sweeps."""

from __future__ import annotations

import json
import math
import random
import re
import warnings

import pytest

from benchmarks import tuner_speed
from workbench.tuning.bench import tune
from workbench.tuning.recorded.replay import space_of
from workbench.tuning.recorded.sweep import load, shipped
from workbench.tuning.search import strategies as search
from workbench.tuning.search.ranking import holm, rank_sum


@pytest.fixture(autouse=True)
def _own_home(fresh_home):
    return fresh_home


def test_evaluations_count_until_one_is_good_enough():
    sweep = load(shipped()[0])
    space = space_of(sweep)
    seconds = {tuple(config.values()): 2.0 + at for at, config in enumerate(space)}
    last = tuple(space[len(space) - 1].values())
    count = tune.evaluations(space, seconds | {last: 1.0}, search.exhaustive, None, random.Random(0))
    assert count == len(space)
    near = tuple(space[4].values())
    within = seconds | {last: 1.0, near: 1.019}
    assert tune.evaluations(space, within, search.exhaustive, None, random.Random(0)) == 5
    assert tune.evaluations(space, seconds | {near: None}, search.exhaustive, space[4], random.Random(0)) == 2

    def gives_up(space, start, rng):
        yield [space[4]]

    assert tune.evaluations(space, seconds | {near: None}, gives_up, None, random.Random(0)) is None


def test_bayesian_meets_the_aim_and_beats_the_others_on_the_shipped_sweeps():
    result = tune.run(seeds=10, peers=False)
    names = [name for name, *_ in result.overall]
    largest = {name: share for name, _, share in result.overall}
    assert names.index("bayesian") < names.index("random")
    assert names.index("bayesian") < names.index("greedy")
    assert largest["bayesian"] <= 0.10
    text = str(result)
    for sweep, label in result.labels.items():
        assert sweep in text
        assert label in text
    assert "simulator sweep" in text, "a prediction is labelled"
    assert re.search(
        r"bayesian evaluates \d\.\d% of a sweep at most .aim 10%. and is first or tied on 4 of 4 .* anywhere$",
        text,
        re.M,
    )
    assert len(json.loads(result.to_json())["searches"]) == len(result.searches)


def test_kernel_tuner_stands_in_the_same_table(monkeypatch):
    pytest.importorskip("kernel_tuner")
    monkeypatch.setattr(tune.kernel_tuner_strategies, "NAMES", ("genetic_algorithm", "mls"))
    result = tune.run(shipped()[:1], seeds=3)
    assert {one.strategy for one in result.of(shipped()[0])} >= {"bayesian", "kernel_tuner:mls"}
    monkeypatch.setattr(tune.kernel_tuner_strategies, "available", lambda: False)
    assert "not installed" in str(tune.run(shipped()[:1], seeds=1))


def test_a_search_that_ends_early_is_charged_the_whole_space():
    one = tune.Searched("a sweep", "a strategy", 100, (1, None, None))
    assert (one.share, one.worst_tenth, one.found, one.median) == (1.0, 1.0, 1, math.inf)
    assert tune.Searched("a sweep", "a strategy", 100, (1, 3, None)).share == 0.03


def test_the_tuner_s_costs_are_measured(tmp_path):
    figures = [tuner_speed.enumeration(4), tuner_speed.overhead(tmp_path, count=3), *tuner_speed.store(tmp_path, 500)]
    figures += [tuner_speed.call_path(50), *tuner_speed.compilation(1), *tuner_speed.simulation(tmp_path, 1)]
    figures += [tuner_speed.large_problem(tmp_path, 1)]
    for figure in figures:
        assert figure.value > 0
        assert f"aim {figure.aim:g}" in str(figure)
    assert "500 rows" in figures[2].what
    assert "MISSED" in str(tuner_speed.Figure("a cost", 2.0, "s", 1.0))


def verdict(bayesian, others):
    shares = {"bayesian": bayesian, "random": others, "greedy, from the untuned rule": [1] * 20}
    searches = (tune.Searched("a", name, 200, tuple(counts)) for name, counts in shares.items())
    return tune.TunerBenchmark({"a": "label"}, tuple(searches)).verdict


def test_a_strategy_that_another_one_precedes_or_that_takes_more_than_the_aim_has_missed_it():
    early, late = range(3, 13), range(9, 19)
    assert verdict(early, late).endswith("first or tied on 1 of 1 among those that start anywhere")
    assert verdict(early, range(4, 14)).endswith("anywhere"), "a tie"
    assert verdict(late, early).startswith("a: sooner than bayesian: random\n")
    assert verdict(late, early).endswith("MISSED")
    assert verdict(range(21, 31), range(50, 60)).endswith("MISSED"), "more than a tenth"
    assert "sooner" not in verdict(range(21, 31), [None] * 10)


def test_no_strategy_gains_by_the_end_from_which_a_list_is_written():
    """The best is the first in the order of the space; with each seed every list is turned round or not."""
    result = tune.run(shipped()[:1], strategies=["exhaustive"], seeds=20)
    sweep = load(shipped()[0])
    every = {one.strategy: one for one in result.searches}["exhaustive"]
    assert len(set(every.evaluations)) > 4, "one number, were the lists as they are written"
    listed = tune._listed(sweep, 3)
    assert [*listed.parameters] == [*sweep.parameters]
    assert {name: sorted(values) for name, values in listed.parameters.items()} == {
        name: sorted(values) for name, values in sweep.parameters.items()
    }
    assert len(listed) == len(sweep.trials)


def test_a_published_space_is_searched_with_its_failures_until_the_budget_ends(tmp_path):
    rows = {f"{a},{b}": {"a": a, "b": b, "time": 1.0 + (a - 7) ** 2 + b} for a in range(12) for b in range(4)}
    for a in (8, 9):
        rows[f"{a},0"]["time"] = "RuntimeFailedConfig"
    parameters = {"a": list(range(12)), "b": list(range(4))}
    head = {"device_name": "a GPU", "kernel_name": "kernel", "problem_size": 1, "objective": "time"}
    cache = head | {"tune_params_keys": ["a", "b"], "tune_params": parameters, "cache": rows}
    (tmp_path / "space").mkdir()
    (tmp_path / "space" / "GPU.json").write_text(json.dumps(cache))
    options = {"measured": tmp_path, "seeds": 6, "end": tune.SearchEnd(budget=16), "peers": False}
    result = tune.run([], **options)
    found = {one.strategy: one for one in result.searches}
    assert found["exhaustive"].evaluations == (None,) * 6
    assert found["exhaustive"].size == 48
    assert found["bayesian"].found == 6
    assert "in 16 evaluations" in str(result)
    assert re.search(r"exhaustive +0 of 6 +- .*later \(p 0\.0", str(result))
    wide = tune.run([], **options | {"end": tune.SearchEnd(tolerance=60.0, budget=16)})
    assert {count for one in wide.searches for count in one.evaluations} <= {1, 2, 3}, "the first that runs"


def test_one_of_many_strategies_is_not_sooner_for_what_chance_does_to_one_of_so_many():
    bayesian, lucky = [*range(3, 13)] * 3, [*range(1, 11)] * 3
    shares = {"bayesian": bayesian, "kernel_tuner:lucky": lucky}
    names = [f"kernel_tuner:{number}" for number in range(8)]

    def orders(counts):
        searches = (tune.Searched("a", name, 200, tuple(found)) for name, found in counts.items())
        return tune.TunerBenchmark({"a": "label"}, tuple(searches)).beside("a")

    alone, among = orders(shares), orders(shares | dict.fromkeys(names, bayesian))
    assert alone["kernel_tuner:lucky"][0] == "sooner"
    assert among["kernel_tuner:lucky"] == ("tied", pytest.approx(9 * alone["kernel_tuner:lucky"][1]))
    from_the_rule = orders(shares | {"greedy, from the untuned rule": [1] * 20})
    assert from_the_rule["kernel_tuner:lucky"] == alone["kernel_tuner:lucky"], "another question, another family"


def test_chances_are_corrected_as_holm_did():
    assert holm({"a": 0.03, "b": 0.01, "c": 0.04}) == {"b": 0.03, "a": 0.06, "c": 0.06}
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}
    assert holm({}) == {}


def test_warnings_of_strategies_are_told(monkeypatch):
    def warns(space, start, rng):
        warnings.warn("planted", RuntimeWarning, stacklevel=1)
        yield [space[0]]

    monkeypatch.setitem(search.STRATEGIES, "random", warns)
    text = str(tune.run(shipped()[:1], seeds=3, peers=False, strategies=["random"]))
    assert "random warned: RuntimeWarning: planted (3 times)" in text


def test_the_rank_sum_is_that_of_the_tables():
    assert rank_sum([1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16]) == pytest.approx(0.000939, rel=0.01)
    assert rank_sum([1, 1, math.inf], [1, 1, math.inf]) == 1.0
    assert rank_sum([math.inf] * 5, [math.inf] * 5) == 1.0
    assert rank_sum([3, 5, 9], [4, 5, 8]) > 0.5
