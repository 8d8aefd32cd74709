"""Tuning in the background: looked at, stopped, awaited."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import TimeoutError as WaitedTooLong

import pytest
import toy
from toy import tune_steps

from workbench.errors import ArgumentError, MissingToolError
from workbench.tuning import Store, tune


@pytest.fixture
def gate():
    """What `held` waits for; opened at the end in any case, so that no thread stays behind."""
    made = threading.Event()
    yield made
    made.set()


def held(gate, at=3, reached=None):
    """A slow kernel without a clock: the configuration ``at`` is not finished before the gate opens."""

    def behaviour(config):
        if config["STEPS"] == at:
            if reached:
                reached.set()
            assert gate.wait(60)

    return toy.steps_variant(behaviour=behaviour)


def test_the_result_is_that_of_a_run_in_the_foreground(tmp_path):
    expected = tune_steps(store=tmp_path / "a.sqlite")
    told = []
    live = tune_steps(store=tmp_path / "b.sqlite", background=True, progress=told.append)
    run = live.result(60)
    assert [(trial.config, trial.seconds) for trial in run.trials] == [
        (trial.config, trial.seconds) for trial in expected.trials
    ]
    assert (live.phase, run.interrupted, live.progress.done, len(told)) == ("done", False, 12, 12)
    assert run.recorded == 0, "what the first run recorded"
    assert live.snapshot() is run
    assert repr(live) == "<tuning of steps, done: 12 of at most 12 attempts>"

    async def awaited():
        return await live

    assert asyncio.run(awaited()) is run


def test_while_it_runs_the_caller_goes_on_and_sees_what_there_is(gate, tmp_path):
    reached = threading.Event()
    live = tune_steps(held(gate, reached=reached), store=tmp_path / "store.sqlite", background=True)
    assert reached.wait(60)
    assert live.phase == "running"
    assert live.total == 12
    seen = live.snapshot()
    assert [trial.config["STEPS"] for trial in seen.trials] == [1, 2, 12], "the default, then in order"
    assert seen.best.config == {"STEPS": 1}
    with pytest.raises(WaitedTooLong):
        live.result(0.001)
    gate.set()
    assert len(live.result(60).trials) == 12


def test_stop_keeps_every_row_and_the_next_run_goes_on(gate, tmp_path, capsys):
    reached = threading.Event()
    with Store(tmp_path / "store.sqlite") as store:
        live = tune_steps(held(gate, reached=reached), store=store, background=True)
        assert reached.wait(60)
        live.stop()
        assert live.phase == "stopping"
        gate.set()
        run = live.result(60)
        assert (live.phase, run.interrupted) == ("stopped", True)
        assert [trial.config["STEPS"] for trial in run.trials] == [1, 2, 3, 12], "the one under way came to its end"
        assert capsys.readouterr().err == "", "nobody typed Ctrl-C"
        rest = tune_steps(store=store)
        assert (rest.reused, rest.new) == (4, 8)


def test_it_scouts_in_the_background_too_and_can_be_stopped_there(gate, tmp_path):
    reached = threading.Event()
    op = toy.two_sizes(held(gate, reached=reached))
    options = {"device": "sim", "strategy": "predicted", "background": True, "store": tmp_path / "store.sqlite"}
    live = tune(op, "large", **options)
    assert reached.wait(60)
    assert (live.phase, live.scouting, live.trials) == ("running", "steps on small", ())
    assert repr(live) == "<tuning of steps, running: scouting steps on small, 3 of at most 12 attempts>"
    assert live.snapshot().rows == []
    assert live.seconds_left > 0
    live.stop()
    gate.set()
    run = live.result(60)
    assert (live.phase, run.interrupted, run.trials, run.scouted) == ("stopped", True, (), 4)
    live = tune(op, "large", **options)
    run = live.result(60)
    assert (live.phase, live.scouting, live.seconds_left) == ("done", "", None)
    assert (run.scouted, run.new, len(live.trials)) == (12, 12, 12)
    assert any("on small" in note for note in run.notes)


def test_what_ends_a_foreground_run_ends_this_one_and_arguments_are_refused_at_once(monkeypatch):
    with pytest.raises(ArgumentError):
        tune_steps(cases=[], background=True)

    def no_compiler(*_, **options):
        raise MissingToolError("no compiler here")

    monkeypatch.setattr(toy.StepsVariant, "kernels", no_compiler)
    live = tune_steps(background=True)
    with pytest.raises(MissingToolError, match="no compiler"):
        live.result(60)
    assert live.phase == "failed"
    assert isinstance(live.error, MissingToolError)
    assert live.snapshot().best is None
