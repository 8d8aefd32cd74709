"""``workbench bench tune``: it counts what it says, and ours is first on the shipped sweeps."""

from __future__ import annotations

import json
import random
import re

import pytest

from workbench.bench import tune, tuner_speed
from workbench.tuning import search
from workbench.tuning.replay import space_of
from workbench.tuning.sweep import load, shipped


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
    result = tune.run(seeds=10, peers=False, speed=False)
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
        r"bayesian evaluates \d\.\d% of a sweep at most .aim 10%. and comes in place 1 of the 3 .*1\)\n?$", text
    )
    assert len(json.loads(result.to_json())["searches"]) == len(result.searches)


def test_kernel_tuner_stands_in_the_same_table(monkeypatch):
    pytest.importorskip("kernel_tuner")
    monkeypatch.setattr(tune.kernel_tuner_strategies, "NAMES", ("genetic_algorithm", "mls"))
    result = tune.run(shipped()[:1], seeds=3, speed=False)
    assert {one.strategy for one in result.of(shipped()[0])} >= {"bayesian", "kernel_tuner:mls"}
    monkeypatch.setattr(tune.kernel_tuner_strategies, "available", lambda: False)
    assert "not installed" in str(tune.run(shipped()[:1], seeds=1, speed=False))


def test_a_search_that_ends_early_is_charged_the_whole_space():
    one = tune.Searched("a sweep", "a strategy", 100, (1, None, None))
    assert (one.share, one.worst_tenth, one.unfinished) == (1.0, 1.0, 2)
    assert tune.Searched("a sweep", "a strategy", 100, (1, 3, None)).share == 0.03


def test_the_tuner_s_costs_are_measured(tmp_path):
    figures = [tuner_speed.enumeration(4), tuner_speed.overhead(tmp_path, count=3), *tuner_speed.store(tmp_path, 500)]
    figures += [tuner_speed.call_path(50), *tuner_speed.compilation(1)]
    for figure in figures:
        assert figure.value > 0
        assert f"aim {figure.aim:g}" in str(figure)
    assert "500 rows" in figures[2].what
    assert "MISSED" in str(tuner_speed.Figure("a cost", 2.0, "s", 1.0))


def test_a_strategy_that_is_not_first_or_takes_more_than_the_aim_has_missed_it():
    def verdict(bayesian, random_):
        shares = {"bayesian": bayesian, "random": random_, "greedy, from the untuned rule": 1}
        return tune.TunerBenchmark(
            {"a": "label"}, tuple(tune.Searched("a", name, 100, (count,)) for name, count in shares.items())
        ).verdict

    assert "place 1 of the 2" in verdict(4, 5)
    assert "MISSED" not in verdict(4, 5)
    assert verdict(6, 5).endswith("MISSED")
    assert verdict(11, 50).endswith("MISSED")
