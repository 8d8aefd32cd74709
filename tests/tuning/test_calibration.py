"""A calibration finds out how wrong a device model is, and says how well it does on what it has not seen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from workbench.analysis.prediction.predict import predict_counts
from workbench.cli import main
from workbench.errors import ArgumentError
from workbench.tuning import device_model
from workbench.tuning.bench import predict as bench_predict
from workbench.tuning.recorded.calibration import GROUPS, Parts, calibrate, calibrated_model, joined, scaled
from workbench.tuning.recorded.sweep import load, shipped
from workbench.tuning.search.ranking import agreement, kendall, spearman

A100 = device_model()
TRUTH = {"launch": 1.5, "latency": 0.7, "memory": 1.3, "caches": 1.0, "shared": 1.0, "instructions": 2.0}
NOISE = 0.03


@pytest.fixture(scope="module")
def counted():
    """A simulator sweep, every fourth row of it."""
    sweep = load(next(name for name in shipped() if "thread_group" in name))
    return replace(sweep, trials=sweep.trials[::4])


@pytest.fixture(scope="module")
def measured(counted):
    """What a GPU might have measured whose figures differ from the published ones by known factors."""
    truth = scaled(A100, TRUTH, "the truth")
    rng = np.random.default_rng(1)
    trials = [
        replace(
            trial,
            counts={},
            predicted_seconds=None,
            measured_seconds=predict_counts(trial.counts, truth).seconds * math.exp(rng.normal(0, NOISE)),
        )
        for trial in counted.trials
    ]
    gpu = {"device": "NVIDIA A100-SXM4-80GB", "machine": "NVIDIA A100-SXM4-80GB", "predicted_for": None}
    return replace(counted, basis="measured", trials=tuple(trials), **gpu)


def test_parts_sum_to_the_prediction_under_any_factors(counted):
    counts = [trial.counts for trial in counted.trials[:20]]
    counts.append({**counts[0], "parts": [counts[0], counts[1], counts[2]]})
    parts = Parts(counts, A100)
    for factors in (dict.fromkeys(GROUPS, 1.0), TRUTH):
        model = scaled(A100, factors, "another")
        expected = [predict_counts(each, model).seconds for each in counts]
        assert parts.seconds(np.log([factors[group] for group in GROUPS])) == pytest.approx(expected)


def test_it_explains_what_was_measured_and_is_judged_on_rows_left_out(measured, counted):
    found = calibrate(measured, A100, counted)
    assert found.rows == len(measured.trials)
    assert found.published.error > 5 * NOISE
    assert NOISE / 3 < found.calibrated.error < 2 * NOISE
    assert found.calibrated.kendall > found.published.kendall
    assert found.factors["latency"] == pytest.approx(TRUTH["latency"], rel=0.15)
    assert found.factors["launch"] == pytest.approx(TRUTH["launch"], rel=0.15)
    unseen = Parts([trial.counts for trial in counted.trials], A100)
    free = [group for group in GROUPS if not _bounds(unseen, group)]
    assert all(found.factors[group] == pytest.approx(1, abs=1e-3) for group in free), "nothing says otherwise"
    model = found.apply()
    assert "calibrated on" in str(model)
    counts, seconds = joined(measured, counted)
    errors = [abs(predict_counts(each, model).seconds / true - 1) for each, true in zip(counts, seconds, strict=True)]
    assert np.median(errors) < 2 * NOISE


def _bounds(parts: Parts, group: str) -> bool:
    """Whether a group's factor changes any time, at published figures or the true ones."""
    at = list(GROUPS).index(group)
    for factors in (dict.fromkeys(GROUPS, 1.0), TRUTH):
        theta = np.log([factors[name] for name in GROUPS])
        if not np.array_equal(parts.seconds(theta), parts.seconds(theta + 0.3 * np.eye(len(GROUPS))[at])):
            return True
    return False


def test_what_cannot_calibrate_is_refused(measured, counted):
    with pytest.raises(ArgumentError, match="measured on a GPU"):
        calibrate(counted, A100)
    with pytest.raises(ArgumentError, match="0 rows with counts"):
        calibrate(measured, A100)
    assert calibrated_model(A100) is A100, "no GPU sweep is shipped"


def test_rank_correlations_by_hand():
    one, other = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])
    assert spearman(one, other) == pytest.approx(0.8)
    assert kendall(one, other) == pytest.approx(4 / 6)
    assert spearman(one, -one) == kendall(one, -one) == pytest.approx(-1)
    tied = np.array([1.0, 1.0, 2.0, 2.0])
    assert kendall(one, tied) == pytest.approx(4 / math.sqrt(6 * 4))
    assert spearman(one, tied) == pytest.approx(np.corrcoef([1, 2, 3, 4], [1.5, 1.5, 3.5, 3.5])[0, 1])
    assert math.isnan(spearman(one, np.ones(4)))
    found = agreement(np.array([1.0, 1.0, 2.0]), np.array([3.0, 5.0, 2.0]))
    assert found.regret == pytest.approx(4 / 2 - 1)
    assert found.error == pytest.approx(2 / 3)


def test_without_a_measured_sweep_the_benchmark_says_so_and_gives_no_such_number():
    result = bench_predict.run(shipped()[:1], draws=20)
    assert not result.calibrations
    text = str(result)
    assert "No sweep measured on a GPU has been recorded yet" in text
    assert "against measured" not in text
    (stability,) = result.stabilities
    assert 0 < stability.spearman[1] <= stability.spearman[0] <= 1
    assert 0 <= stability.regret[0] <= stability.regret[1]
    assert stability.label in text


def test_with_one_it_compares(measured, counted, tmp_path):
    files = [str(sweep.save(tmp_path / f"{at}.json")) for at, sweep in enumerate((measured, counted))]
    done = CliRunner().invoke(main, ["bench", "predict", "--sweep", files[0], "--sweep", files[1]])
    assert done.exit_code == 0, done.output
    assert "predicted against measured" in done.output
    assert "calibrated, rows left out" in done.output
    assert "No sweep measured" not in done.output
    unknown = replace(measured, device="a GPU nobody knows")
    result = bench_predict.run([unknown.save(tmp_path / "unknown.json")], draws=2)
    assert "no published figures" in str(result)
