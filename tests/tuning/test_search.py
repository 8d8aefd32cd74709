"""Strategies look at little of a space, at nothing twice, and at all of it if they may."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import numpy as np
import pytest
import toy
from driven import asked_by
from toy import tune_steps

from workbench.errors import ArgumentError
from workbench.ops.variant import Restriction
from workbench.tuning import Space, Store, tune
from workbench.tuning.bench import tune as tune_bench
from workbench.tuning.search import strategies as search
from workbench.tuning.search.bayesian import bayesian
from workbench.tuning.search.surrogate import GaussianProcess, coordinates, expected_improvement

SPACE = {"A": (1, 2, 4, 8, 16, 32), "B": (1, 2, 4, 8), "C": (1, 2, 3, 4, 5), "D": ("row", "column", "tile")}


@pytest.fixture
def space():
    return Space(SPACE, [Restriction("area", "A * B <= 64", lambda c, p: c["A"] * c["B"] <= 64)])


def cost(config) -> float:
    """A valley across two parameters, a cliff, and a parameter that does next to nothing."""
    valley = (math.log2(config["A"] * config["B"]) - 4) ** 2 + 0.3 * (math.log2(config["A"]) - 3) ** 2
    return 1 + valley + (2 if config["D"] == "column" else 0) + 0.01 * config["C"]


def evaluations(plan, space, seed, score=cost) -> int:
    seconds = {tuple(c.values()): value if math.isfinite(value := score(c)) else None for c in space}
    return tune_bench.evaluations(space, seconds, plan, None, random.Random(seed))


@pytest.mark.parametrize("plan", [search.exhaustive, search.sampled, search.greedy, bayesian])
def test_everything_once_starting_from_the_start(plan, space):
    small = Space({name: values[:3] for name, values in SPACE.items()}, space.restrictions)
    start = small[7]
    asked = asked_by(plan, small, cost, start=start)
    assert asked[0] == start
    assert sorted(map(str, asked)) == sorted(map(str, small))
    assert asked_by(plan, small, cost) != [] or not len(small)
    assert asked_by(plan, Space({"A": (1,)}, [Restriction("no", "never", lambda c, p: False)]), cost) in ([], [[]])


def test_bayesian_looks_at_a_tenth_and_random_at_more(space):
    ours = statistics.median(evaluations(bayesian, space, seed) for seed in range(25))
    others = statistics.median(evaluations(search.sampled, space, seed) for seed in range(25))
    assert ours <= len(space) / 10
    assert ours < others


def test_bayesian_repeats_itself_and_depends_on_the_seed(space):
    assert asked_by(bayesian, space, cost, count=20) == asked_by(bayesian, space, cost, count=20)
    assert asked_by(bayesian, space, cost, count=20) != asked_by(bayesian, space, cost, seed=1, count=20)


def test_bayesian_keeps_away_from_what_fails(space):
    def failing(config):
        return math.inf if config["D"] == "tile" else cost(config)

    later = asked_by(bayesian, space, failing, count=60)[15:]
    assert sum(config["D"] == "tile" for config in later) < len(later) / 4, "of a third of the space"
    asked = asked_by(bayesian, space, lambda config: math.inf, count=30)
    assert len({str(config) for config in asked}) == 30, "even if everything does"


def test_bayesian_finds_what_lies_beside_failures_and_away_from_what_is_smooth():
    """As on real GPUs: every other size is slow, large tiles fail, and the best is next to both."""
    sizes = tuple(range(16, 257, 16))
    rugged = Space({"X": sizes, "Y": (1, 2, 4, 8, 16), "TX": (1, 2, 3, 4), "TY": (1, 2, 3, 4), "PAD": (0, 1)})

    def score(config):
        threads, tile = config["X"] * config["Y"], config["TX"] * config["TY"]
        if threads * (20 + 4 * tile) > 32768:
            return math.inf
        waste = math.ceil(4096 / (config["X"] * config["TX"])) * config["X"] * config["TX"] / 4096
        slow = 1.4 if config["X"] % 32 and not config["PAD"] else 1.0
        return waste * slow * (1 + 200 / threads) * (1 + 4 / tile) * (1.05 if config["PAD"] else 1.0)

    ours = [evaluations(bayesian, rugged, seed, score) for seed in range(2)]
    others = [evaluations(search.greedy, rugged, seed, score) for seed in range(2)]
    assert max(ours) <= len(rugged) / 20
    assert max(ours) < min(others)


def test_bayesian_in_a_space_larger_than_it_looks_at(monkeypatch, space):
    monkeypatch.setattr("workbench.tuning.search.bayesian._CANDIDATES", 20)
    asked = asked_by(bayesian, space, cost, count=40)
    assert len({str(config) for config in asked}) == 40
    assert min(map(cost, asked)) <= 1.1 * min(map(cost, space))


def test_coordinates_are_places_and_names_are_all_as_far():
    rows = np.array(list(itertools.product(range(2), range(3), range(1))))
    points = coordinates({"A": (8, 2), "B": ("x", "y", "z"), "C": (1,)}, rows)
    assert points.shape == (6, 4)
    assert points[0, 0] == 1, "8 is the larger"
    between = [np.linalg.norm(points[a] - points[b]) for a, b in itertools.combinations(range(3), 2)]
    assert between == pytest.approx([1, 1, 1])


def test_how_often_a_number_is_halved_is_a_coordinate_where_it_goes_up_and_down():
    rows = np.array(list(itertools.product(range(4), range(3), range(3))))
    points = coordinates({"A": (16, 32, 48, 64), "B": (1, 2, 4), "C": (0, 3, 4)}, rows)
    assert points.shape == (36, 4)
    assert [points[rows[:, 0] == at, 1][0] for at in range(4)] == [4, 5, 4, 6]


def _process(points):
    return GaussianProcess(points, points)


def test_the_process_learns_which_parameter_matters():
    points = np.array(list(itertools.product(range(8), repeat=2)), dtype=float)
    known = np.random.default_rng(0).permutation(64)[:40]
    process = _process(np.concatenate([points, [[50.0, 0.0]]]))
    scores = np.sin(points[known, 0])
    process.fit(known.tolist(), scores, np.arange(65), rounds=4)
    assert process.scales[1] > 3 * process.scales[0]
    assert process.mean(scores)[known] == pytest.approx(scores, abs=1e-2)
    assert process.deviation()[known].max() < 0.1
    assert process.deviation()[64] > 0.4, "far away it knows nothing"


def test_one_point_more_is_as_if_it_had_been_there():
    points = np.random.default_rng(1).integers(0, 6, (100, 3)).astype(float) + np.arange(100)[:, None] / 1000
    scores = np.sin(points).sum(axis=1)
    at_once, told = _process(points), _process(points)
    at_once.fit(range(90), scores[:90], np.arange(100), rounds=0)
    told.fit(range(10), scores[:10], np.arange(100), rounds=0)
    for at in range(10, 90):
        told.add(at)
    assert told.mean(scores[:90]) == pytest.approx(at_once.mean(scores[:90]), abs=1e-6)
    assert told.deviation() == pytest.approx(at_once.deviation(), abs=1e-4)


def test_what_has_no_score_is_taken_to_come_out_as_expected():
    points = np.arange(20.0)[:, None]
    process = _process(points)
    scores = np.cos(points[:, 0])
    process.fit([0, 3, 6], scores[[0, 3, 6]], np.arange(20), rounds=0)
    before, doubt = process.mean(scores[[0, 3, 6]], otherwise=0.0), process.deviation()
    process.add(10)
    assert process.mean(np.array([*scores[[0, 3, 6]], math.nan]), otherwise=0.0) == pytest.approx(before)
    assert process.deviation()[10] < 0.1 < doubt[10]


def test_expected_improvement_is_the_integral():
    mean, deviation, best = 1.0, 0.5, 0.8
    drawn = np.random.default_rng(0).normal(mean, deviation, 200_000)
    expected = np.maximum(best - drawn, 0).mean()
    assert expected_improvement(np.array([mean]), np.array([deviation]), best)[0] == pytest.approx(expected, rel=0.02)


# -- predicted --------------------------------------------------------------------------------------------------


def test_predicted_order_goes_by_a_smaller_case():
    op = toy.two_sizes(toy.steps_variant(values=(3, 1, 4, 2)))
    told = []
    options = {"device": "sim", "strategy": "predicted", "record": False}
    run = tune(op, "large", **options, budget=3, progress=told.append)
    assert {trial.config["STEPS"] for trial in run.trials} == {2, 1, 3}, "the default, then what promises most"
    assert (run.scouted, run.new) == (4, 3)
    assert "ordered by the times of steps on small, predicted for A100-SXM4-80GB" in run.notes
    assert [(one.scouting, one.done, one.total) for one in told] == [
        *[("steps on small", done, 4) for done in (1, 2, 3, 4)],
        *[("", done, 3) for done in (1, 2, 3)],
    ]
    with Store() as store:
        assert len(store.trials(case="small")) == 4, "scouting is kept"


@pytest.mark.parametrize("background", [False, True])
def test_what_cannot_be_predicted_is_refused_at_once(background):
    op = toy.two_sizes(toy.steps_variant())
    with pytest.raises(ArgumentError, match="bayesian"):
        tune(op, "small", device="sim", strategy="predicted", background=background)


def test_ctrl_c_while_scouting_keeps_what_is_scouted_and_the_same_call_goes_on(capsys):
    op = toy.two_sizes(toy.steps_variant(values=(1, 2, 3)))
    options = {"device": "sim", "strategy": "predicted", "record": False}

    def interrupt(progress):
        if progress.done == 2:
            raise KeyboardInterrupt

    run = tune(op, "large", **options, progress=interrupt)
    assert (run.interrupted, run.trials, run.scouted, run.best) == (True, (), 2, None)
    assert "after 0 attempts and 2 of scouting" in capsys.readouterr().err
    assert "go on from there" in str(run)
    with Store() as store:
        assert [trial.case for trial in store.trials()] == ["small"] * 2
    told = []
    again = tune(op, "large", **options, progress=told.append)
    assert (again.interrupted, again.scouted, again.new) == (False, 3, 3)
    assert (told[2].reused, told[2].new) == (2, 1), "of the scouting"


def test_predicted_needs_a_prediction(space):
    with pytest.raises(ArgumentError, match="cannot be predicted"):
        asked_by(search.predicted, space, cost)
    space.estimate = lambda config: math.inf if config["D"] == "tile" else cost(config)
    order = asked_by(search.predicted, space, cost, start=space[3])
    assert order[0] == space[3]
    times = [space.estimate(config) for config in order[1:]]
    assert times == sorted(times)
    assert tune_steps(strategy="bayesian", budget=5).best.config["STEPS"] <= 12
