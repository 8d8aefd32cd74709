"""What a prediction says of itself: the spread that comparisons with measured times showed for its bound."""

from __future__ import annotations

import json

import pytest
import toy
from toy import tune_steps

from workbench.analysis.prediction import confidence
from workbench.tuning.run import PREDICTED_TIE


def entry(source: str = "its published source", bounds: dict | None = None, order: dict | None = None) -> dict:
    return {"source": source, "bounds": bounds or {}, "order": order or {}}


@pytest.fixture
def record(tmp_path, monkeypatch):
    def write(*entries: dict) -> None:
        path = tmp_path / "predictions.json"
        path.write_text(json.dumps({"format": 1, "spaces": entries}))
        monkeypatch.setattr(confidence, "RECORD", path)
        confidence.spreads.cache_clear()
        confidence.in_order.cache_clear()

    yield write
    monkeypatch.undo()
    confidence.spreads.cache_clear()
    confidence.in_order.cache_clear()


def test_the_widest_spread_of_the_published_kernels_counts(record):
    record(
        entry(bounds={"shared": [100, 1.0, 0.8, 1.25], "issue": [9, 1.0, 0.1, 9.0]}),
        entry(bounds={"shared": [50, 1.0, 0.5, 1.0]}),
        entry("our kernel", bounds={"shared": [50, 1.0, 0.1, 10.0], "l2": [50, 1.0, 0.9, 1.1]}),
    )
    assert confidence.spread_of("shared") == confidence.Spread("shared", 150, 0.8, 2.0)
    assert confidence.trust("shared") == (
        "of 150 comparisons with published times, bound by shared, most were measured at "
        "0.80 to 2.00 times the predicted"
    )
    assert confidence.spread_of("issue") is None, "nine rows are too few"
    assert confidence.trust("l2").startswith("fewer than 10 predictions with the bound 'l2' ")


def test_pairs_are_pooled(record):
    record(entry(order={"to 1%": [100, 0.5]}), entry(order={"to 1%": [300, 0.7], "to 2%": [10, 0.9]}))
    assert confidence.in_order() == pytest.approx({"to 1%": 0.65, "to 2%": 0.9})


def test_a_tuning_run_says_what_its_predictions_are_worth(record):
    record(entry(order={"to 1%": [100, 0.52]}))
    run = tune_steps(toy.steps_variant(pages=(8, 16)))
    bound = run.best.trials[0].prediction["bound_by"]
    told = str(run).splitlines()
    at = told.index(f"winner: {run.best}")
    assert told[at + 1] == f"  {confidence.trust(bound)}"
    assert run.rows[0]["expected_low_us"] is None
    assert "tied with 1 more" in told[at + 2]
    assert "(52% of pairs as near were measured in the predicted order)" in told[at + 2]
    record(entry(bounds={bound: [40, 1.0, 0.5, 2.0]}, order={"to 1%": [100, 0.52]}))
    row = run.rows[0]
    ends = row["expected_low_us"], row["expected_high_us"]
    assert ends == pytest.approx((row["predicted_us"] / 2, row["predicted_us"] * 2))


def test_the_record_says_that_ties_are_ties_and_what_is_far_apart_is_not():
    shares = confidence.in_order()
    assert f"to {PREDICTED_TIE:.0%}" == confidence.TIE
    assert shares[confidence.TIE] < 0.6
    assert shares["above 50%"] > 0.95
    assert {"shared", "issue", "integer"} <= set(confidence.spreads())
