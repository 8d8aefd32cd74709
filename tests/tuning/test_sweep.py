"""A recorded sweep keeps what was measured, says where and when, and answers instead of a device."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import toy
from toy import ALL_ENDS, tune_steps

from workbench.base.recorded import recorded_folders
from workbench.errors import ArgumentError, StoreError, UnknownNameError
from workbench.tuning import Limits, Store, tune
from workbench.tuning.recorded.replay import space_of
from workbench.tuning.recorded.sweep import load, shipped, sweep_of


@pytest.fixture
def run():
    return tune_steps(toy.steps_variant(values=ALL_ENDS, pages=(8, 16), behaviour=toy.fail_by_value), record=False)


@pytest.fixture(params=[".json", ".json.gz"])
def file(run, tmp_path, request):
    return sweep_of(run).save(tmp_path / f"sweep{request.param}")


def replay(file, **options):
    return tune("steps", device=f"replay:{file}", **options)


def test_a_file_keeps_every_trial(run, file):
    kept = load(file)
    assert [(t.config, t.outcome, t.message) for t in kept.trials] == [
        (t.config, t.outcome, t.message) for t in run.trials
    ]
    for old, new in zip(run.trials, kept.trials, strict=True):
        assert (new.seconds or 0) == pytest.approx(old.seconds or 0, rel=1e-5)
        assert new.counts.get("mix") == old.counts.get("mix")
        assert new.resources.get("registers") == old.resources.get("registers")
    assert kept.parameters == {"STEPS": ALL_ENDS, "PAGE": (8, 16)}
    assert kept.default_config == {"STEPS": 16, "PAGE": 8}
    assert len(space_of(kept)) == 14


def test_the_same_sweep_gives_the_same_bytes(run, tmp_path):
    files = [sweep_of(run).save(tmp_path / f"{at}.json.gz").read_bytes() for at in range(2)]
    assert files[0] == files[1]
    with pytest.raises(ArgumentError, match=r"json\.gz"):
        sweep_of(run).save(tmp_path / "sweep.txt")


def test_it_says_what_its_times_are(file):
    label = load(file).label
    for part in ("simulator sweep", "predicted for A100", "PTX machine", "recorded 20", "workbench 0", "torch 2"):
        assert part in label


def test_a_replay_finds_what_the_run_found(run, file):
    with Store() as store:
        before = len(store)
    again = replay(file)
    assert again.best.config == run.best.config
    assert again.best.seconds == pytest.approx(run.best.seconds, rel=1e-5)
    assert again.outcomes == run.outcomes
    assert (again.new, again.reused, again.interrupted) == (0, 14, False)
    assert again.default_of(again.variants[0]) is None, "the default is one of those that fail"
    assert "replayed: simulator sweep, predicted for A100" in again.time_label
    assert "replayed" in str(again)
    assert "replayed" in again._repr_html_()
    assert again.table_path is None, "nothing that was not found on this machine goes into its table"
    with Store() as store:
        assert len(store) == before
    assert sweep_of(again).label == load(file).label, "a replay's sweep is the one that it was"


def test_a_replay_of_a_replay_stops_at_its_budget_and_when_interrupted(file):
    seen = []

    def interrupt(progress):
        seen.append(progress.done)
        if progress.done == 3:
            raise KeyboardInterrupt

    assert len(replay(file, strategy="random", budget=5).trials) == 5
    run = replay(file, progress=interrupt)
    assert run.interrupted
    assert seen == [1, 2, 3]


def test_a_replay_runs_in_the_background_too(run, file):
    live = replay(file, background=True)
    assert live.result(60).best.config == run.best.config
    assert (live.phase, live.total) == ("done", 14)


def test_a_configuration_that_the_sweep_lacks_is_an_outcome(run, file):
    def own(space, start, rng):
        scores = yield [{"STEPS": 5, "PAGE": 8}, {"STEPS": 2, "PAGE": 8}]
        assert scores[0] == float("inf") > scores[1]

    trials = replay(file, strategy=own).trials
    assert Counter(trial.outcome for trial in trials) == {"ok": 1, "restricted": 1}
    assert "not in the recorded sweep" in next(trial.message for trial in trials if not trial.ok)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cases": "large"}, "cases: got large"),
        ({"variants": ["steps", "other"]}, "variants: got steps, other"),
        ({"model": "l4"}, "model: got l4"),
        ({"executor": ThreadPoolExecutor(1)}, "executor: got ThreadPoolExecutor; allowed: None in a replay"),
        ({"isolation": "docker"}, "isolation: got 'docker'"),
        ({"isolation": "process"}, "isolation: got process; allowed: auto or none in a replay"),
        ({"store": Path("own.sqlite")}, r"store: got own.sqlite; allowed: None in a replay"),
        ({"retry_failed": True}, "retry_failed: got True; allowed: False in a replay"),
        ({"limits": Limits(seconds=1)}, "limits: got Limits; allowed: None in a replay"),
        ({"strategy": "predicted", "background": True}, "Times of this space cannot be predicted"),
    ],
)
def test_what_the_sweep_does_not_hold_is_refused(file, options, message):
    with pytest.raises(ArgumentError, match=message):
        replay(file, **options)
    with pytest.raises(ArgumentError, match="op: got scale"):
        tune("scale", device=f"replay:{file}")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "other"}', '{"kind": "workbench sweep", "format": 1}'])
def test_what_is_no_sweep_is_refused_by_name(tmp_path, text):
    path = tmp_path / "damaged.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"damaged\.json"):
        load(path)
    path.write_bytes(gzip.compress(text.encode())[:-3])
    with pytest.raises(StoreError, match=r"damaged\.json"):
        load(path)


def test_a_newer_format_and_an_unknown_name(file, tmp_path):
    data = file.read_bytes()
    record = json.loads(gzip.decompress(data) if file.suffix == ".gz" else data)
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps({**record, "format": 99}))
    with pytest.raises(StoreError, match="Update the workbench"):
        load(newer)
    with pytest.raises(UnknownNameError, match=shipped()[0]):
        load("no such sweep")


@pytest.mark.long
def test_the_shipped_sweeps_are_exhaustive_small_and_labelled():
    assert sum(path.stat().st_size for folder in recorded_folders("sweeps") for path in folder.iterdir()) < 1_000_000
    for name in shipped():
        recorded = load(name)
        assert recorded.name == name
        assert recorded.versions
        assert recorded.recorded
        assert recorded.default_config in space_of(recorded)
        assert recorded.basis in recorded.label
        assert all(trial.ok for trial in recorded.trials)


def test_several_variants_or_cases_need_a_choice():
    run = tune_steps(toy.steps_variant(values=(1, 2)), toy.steps_variant(values=(1, 2), name="other"), record=False)
    with pytest.raises(ArgumentError, match="one of steps, other"):
        sweep_of(run)
    assert sweep_of(run, "other").variant == "other"
    failed = tune_steps(toy.steps_variant(values=(13,)), record=False)
    with pytest.raises(ArgumentError, match="no correct trial"):
        sweep_of(failed)
