"""What a prediction says of itself: the spread that comparisons with measured times showed for its bound."""

from __future__ import annotations

import json

import pytest
import toy
from toy import tune_steps

from workbench.analysis.device_models import device_model
from workbench.analysis.prediction import confidence
from workbench.analysis.prediction.predict import predict_counts
from workbench.tuning.result.tuning_result import PREDICTED_TIE


def entry(
    source: str = "its published source", bounds: dict | None = None, order: dict | None = None, **others
) -> dict:
    found = {"source": source, "bounds": bounds or {}, "order": order or {}, "space": "steps", "model": "rtx-3090"}
    return found | {"rankings": {"prediction": {"spearman": 0.9}}, "ratio": [1.0, 0.8, 1.2]} | others


@pytest.fixture
def record(tmp_path, monkeypatch):
    def write(*entries: dict) -> None:
        path = tmp_path / "predictions.json"
        path.write_text(json.dumps({"format": 1, "spaces": entries}))
        monkeypatch.setattr(confidence, "RECORD", path)
        forget()

    def forget() -> None:
        for known in (confidence.spreads, confidence.in_order, confidence.comparisons):
            known.cache_clear()

    yield write
    monkeypatch.undo()
    forget()


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


def test_level_and_ranking_are_told_apart_by_architecture(record):
    a100 = {"model": "a100-pcie-40gb", "clock_mhz": 765.0, "ratio": [0.9, 0.7, 1.1]}
    record(
        entry(), entry(ratio=[1.1, 0.9, 1.3], clock_mhz=1695.0), entry(**a100), entry("our kernel", ratio=[1, 0.1, 9])
    )
    rtx_3090, a6000, l4, b200 = (device_model(key) for key in ("rtx-3090", "rtx-a6000", "l4", "b200"))
    assert confidence.level(rtx_3090) == (
        "predicted / measured was 0.80 to 1.30 on sm_86 (steps on GeForce RTX 3090); for 1,695 MHz, up to 1.22 times "
        "as long at the base clock"
    )
    assert "0.80 to 1.30 on sm_86" in confidence.level(a6000)
    assert "for 1,800 MHz" in confidence.level(a6000)
    assert "0.70 to 1.10 on sm_80 (steps at 765 MHz on A100-PCIE-40GB)" in confidence.level(device_model())
    assert confidence.level(l4).startswith("not compared with measured times on sm_89; for 2,040 MHz")
    assert confidence.level(b200).endswith("for 1,850 MHz, no base clock is published")
    assert confidence.ranking(rtx_3090) == "Spearman 0.90 to 0.90 on sm_86 (steps on GeForce RTX 3090)"
    assert confidence.ranking(l4) == "not compared on sm_89; Spearman 0.90 to 0.90 on sm_80, sm_86"
    counts = {"block_threads": 128, "grid_blocks": 1, "registers": 32, "shared_bytes": 1 << 20}
    prediction = predict_counts(counts, l4)
    assert (prediction.level, prediction.ranking) == (confidence.level(l4), confidence.ranking(l4))
    assert "not compared with measured times on sm_89" in repr(prediction)
    assert "not compared with measured times on sm_89" in prediction._repr_html_()
    assert "not compared" not in str(prediction.to_dict())
    record()
    assert confidence.ranking(l4) == "not compared with measured times on sm_89"


def test_a_tuning_run_says_what_its_predictions_are_worth(record):
    record(entry(order={"to 1%": [100, 0.52]}))
    run = tune_steps(toy.steps_variant(pages=(8, 16)))
    bound = run.best.trials[0].prediction["bound_by"]
    told = str(run).splitlines()
    at = told.index(f"winner: {run.best}")
    assert told[at + 1] == f"  {confidence.trust(bound)}"
    assert run.rows[0]["expected_low_us"] is None
    near = "of two that are predicted so near, the first was the faster in 52% of cases"
    assert told[at + 2] == f"  1 more may be as fast: {near}:"
    about = run.about()
    assert about["level of the times"] == confidence.level(device_model())
    assert about["ranking by them"] == confidence.ranking(device_model())
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
