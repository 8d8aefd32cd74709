"""The view of a tuning run, through its traits; the kernels of the runs are Python and wait at gates, not on clocks."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("anywidget", reason='no widgets: python -m pip install -e ".[lab]"')
sys.path.append(str(Path(__file__).parents[1] / "tuning"))

import toy
from toy import tune_steps

from workbench.errors import ArgumentError
from workbench.tuning import tune
from workbench.tuning.result.view import TuningView, _duration, _Throttle


@pytest.fixture(autouse=True)
def _own_home(fresh_home):
    return fresh_home


@pytest.fixture
def held():
    """Tunes ``steps`` in the background up to the configuration at which the kernel waits; yields (live, gate)."""
    gate, reached = threading.Event(), threading.Event()

    def behaviour(config):
        if config == {"STEPS": 14, "PAGE": 8}:
            reached.set()
            assert gate.wait(60)
        toy.fail_by_value(config)

    variants = [toy.steps_variant(values=(3, 2, 1, 13, 14), pages=(8, 16), behaviour=behaviour, name="paged")]
    variants.append(toy.steps_variant(values=(5, 6), name="plain"))
    live = tune_steps(*variants, background=True, strategy=_in_order)
    assert reached.wait(60)
    yield live, gate
    gate.set()
    live.stop()
    live.result(60)


def _in_order(space, start, rng):
    yield list(space)


def test_it_shows_what_there_is_and_follows(held):
    live, gate = held
    view = live.widget()
    assert (view.phase, view.done, view.total) == ("running", 8, 12)
    assert view.headline.startswith("8 of 12 attempts, about ")
    assert view.headline.endswith(" left")
    assert view.best.startswith("best 3602.58 µs predicted: paged STEPS=1 PAGE=8")
    assert (view.variant, view.x, view.y) == ("paged", "STEPS", "PAGE")
    assert view.variants == {"paged": {"STEPS": (3, 2, 1, 13, 14), "PAGE": (8, 16)}, "plain": {"STEPS": (5, 6)}}
    assert [(number, outcome, values) for number, _, outcome, values in view.points[4:7]] == [
        (5, "ok", [1, 8]), (6, "ok", [1, 16]), (7, "compile_error", [13, 8]),
    ]  # fmt: skip
    eights, sixteens = view.heat
    assert [cell[1] for cell in eights] == ["ok", "ok", "ok", "compile_error", "untried"]
    assert eights[2] == [view.points[4][1], "ok", 1, 1]
    assert sixteens[4] == [None, "untried", 0, 1]
    assert repr(view) == (
        "<tuning of steps, running: 6 ok, 2 compile_error; best 3602.58 µs predicted: paged STEPS=1 PAGE=8>"
    )
    gate.set()
    live.result(60)
    assert (view.phase, view.done, view.headline) == ("done", 12, "12 of 12 attempts")
    assert (view.variant, view.x, view.y, view.heat) == ("plain", "STEPS", "", []), "it went on with the next variant"
    view.variant = "paged"
    assert (view.x, view.y) == ("STEPS", "PAGE")
    assert view.heat[1][4][1] == view.points[9][2] == "launch_error"


def test_a_choice_is_kept_while_the_run_goes_on(held):
    live, gate = held
    view = live.widget()
    view.set_state({"variant": "plain"})  # as from the browser
    assert view.points == []
    view.variant = "paged"
    view.x = "PAGE"
    assert (view.x, view.y) == ("PAGE", "STEPS"), "they change places"
    assert len(view.heat) == 5
    assert len(view.heat[0]) == 2
    view.selected = 7
    assert view.detail == "7. paged STEPS=13 PAGE=8: compile_error: planted\ntoy.py(13): error"
    assert view.selected_trial.config == {"STEPS": 13, "PAGE": 8}
    gate.set()
    live.result(60)
    assert (view.variant, view.x, view.selected, len(view.points)) == ("paged", "PAGE", 7, 10)


def test_stop_keeps_everything(held):
    live, gate = held
    view = live.widget()
    view._handle_custom_msg({"action": "stop"}, [])  # the button
    assert view.phase == "stopping"
    assert "stopping after the present attempt" in view.headline
    gate.set()
    run = live.result(60)
    assert run.interrupted
    assert (view.phase, view.done, len(run.trials)) == ("stopped", 9, 9)
    assert "everything finished is kept" in view.headline


def test_it_says_that_it_scouts():
    gate, reached = threading.Event(), threading.Event()

    def behaviour(config):
        if config["STEPS"] == 2:
            reached.set()
            assert gate.wait(60)

    op = toy.two_sizes(toy.steps_variant(values=(1, 2, 3), behaviour=behaviour))
    live = tune(op, "large", device="sim", strategy="predicted", background=True)
    try:
        assert reached.wait(60)
        view = live.widget()
        assert (view.phase, view.done, view.total, view.points) == ("running", 2, 3, [])
        assert view.headline.startswith("scouting steps on small: 2 of 3 attempts, about ")
    finally:
        gate.set()
    live.result(60)
    assert (view.phase, view.headline, len(view.points)) == ("done", "3 of 3 attempts", 3)


def test_a_failed_run_says_why(monkeypatch):
    def no_compiler(*_, **options):
        raise RuntimeError("no compiler <b>here</b>")

    monkeypatch.setattr(toy.StepsVariant, "source_hash", property(no_compiler))
    live = tune_steps(background=True)
    view = live.widget()
    with pytest.raises(RuntimeError):
        live.result(60)
    view.refresh()
    assert (view.phase, view.best) == ("failed", "nothing correct")
    assert view.headline.endswith("failed: no compiler <b>here</b>")


def test_a_finished_run_has_the_view_too_and_it_repeats_itself():
    variant = toy.steps_variant(values=(1, 2), pages=(8, 16))
    cases = [toy.ToyCase("one", 64), toy.ToyCase("two", 128)]
    run = tune_steps(variant, cases=cases)
    view, again = run.widget(), tune_steps(variant, cases=cases).widget()
    assert repr(view) == repr(again)
    assert (view.phase, view.headline) == ("done", "8 of 8 attempts")
    assert again.headline == "8 of 8 attempts, 8 from the store"
    view.case = "two"
    assert len(view.points) == 4
    view.stop()  # there is nothing to stop
    assert view.phase == "done"
    data, _ = view._repr_mimebundle_()
    assert data["text/plain"] == repr(view)
    assert "data:image/svg+xml," in data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in data


@pytest.mark.parametrize("name", ["variant", "case", "x", "y"])
def test_names_that_the_run_does_not_have_are_refused(name):
    view = tune_steps(toy.steps_variant(values=(1, 2), pages=(8, 16))).widget()
    before = view.get_state()
    with pytest.raises(ArgumentError, match="other"):
        setattr(view, name, "other")
    assert view.get_state() == before


def test_a_view_that_fails_does_not_end_the_search(held, caplog):
    live, gate = held
    view = live.widget()
    view.hold_sync = None  # as if its connection were gone
    gate.set()
    assert len(live.result(60).trials) == 12
    assert "is not called any more" in caplog.text


def test_updates_are_throttled_and_the_last_one_is_made_up_for():
    now, calls = [0.0], []
    throttle = _Throttle(lambda: calls.append(now[0]), lambda: 1000.0, lambda: now[0])
    for now[0] in (0.0, 1.0, 2.0):
        throttle()
    assert calls == [0.0]
    assert throttle._timer.interval == 999.0
    throttle._timer.cancel()
    throttle._later()
    assert calls == [0.0, 2.0]
    throttle()
    throttle.end()
    assert calls == [0.0, 2.0, 2.0]
    assert throttle._timer is None


def test_durations():
    assert [_duration(seconds) for seconds in (0.4, 59.6, 3700)] == ["0 s", "1 min 00 s", "1 h 01 min"]
    assert isinstance(tune_steps().widget(), TuningView)
