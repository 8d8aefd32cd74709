"""Timing the leaders of a case again: in turns, with a limit, and what a run does where it cannot be done."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import replace

import pytest
import toy

from workbench.base.processes.process import ProcessEnded
from workbench.launch import devices
from workbench.tuning import Limits, Trial, device_model
from workbench.tuning.job import Options, TuningJob
from workbench.tuning.measuring import isolation
from workbench.tuning.measuring.attempts import Attempts
from workbench.tuning.measuring.measure import NotTimedError
from workbench.tuning.search import strategies as search
from workbench.tuning.search.budget import Budget
from workbench.tuning.searching import LEADER_ROUNDS, _remeasure

LEADERS = [(toy.steps_variant(), {"STEPS": steps}) for steps in (1, 2)]


class HangingCase(toy.ToyCase):
    def inputs(self, problem, device="cpu"):
        signal.pause()


class HugeCase(toy.ToyCase):
    def inputs(self, problem, device="cpu"):
        raise MemoryError("two at once")


@pytest.mark.long
def test_a_hang_in_a_process_ends_in_time(monkeypatch):
    monkeypatch.setattr(isolation, "BESIDE_SECONDS", 3.0)
    with contextlib.closing(isolation.InWorker(devices.get("sim"), device_model(), Limits(seconds=0.2))) as measurer:
        process = measurer._worker._process._popen
        with pytest.raises(NotTimedError, match=r"stopped after 3\.4 s"):
            measurer.time_again(LEADERS, HangingCase(), LEADER_ROUNDS)
        assert process.returncode == -signal.SIGKILL


class AskedWorker:
    """A worker that writes down what it is asked, and answers with an error."""

    def __init__(self, imports):
        self.asked = []

    def start(self):
        self.asked.append("start")

    def close(self):
        self.asked.append("close")

    def call(self, function, *arguments, seconds=None):
        self.asked.append(seconds)
        raise ProcessEnded("the process that worked on it exited with status 3")


@pytest.mark.parametrize(("limit", "seconds"), [(2.0, 4.0 + isolation.BESIDE_SECONDS), (None, None)])
def test_each_leader_has_the_limit_of_a_measurement_and_a_crash_costs_the_process(monkeypatch, limit, seconds):
    monkeypatch.setattr(isolation, "Worker", AskedWorker)
    measurer = isolation.InWorker(devices.get("sim"), device_model(), Limits(seconds=limit))
    with pytest.raises(NotTimedError, match="exited with status 3"):
        measurer.time_again(LEADERS, toy.ToyCase(), LEADER_ROUNDS)
    assert measurer._worker.asked == ["start", seconds, "close", "start"]


def test_in_this_process_a_failure_is_the_same():
    with pytest.raises(NotTimedError, match="two at once"):
        isolation.InProcess(devices.get("sim"), device_model()).time_again(LEADERS, HugeCase(), LEADER_ROUNDS)


def test_leaders_that_cannot_be_timed_again_keep_their_times_and_the_run_says_so():
    """The next case is timed again all the same."""
    variant, cases = LEADERS[0][0], (toy.ToyCase("small"), toy.ToyCase("large"))
    row = Trial("steps", "steps", "cuda", "small", {"STEPS": 1}, "cuda", "sm_90", "ok", measured_seconds=1e-6)
    trials = [replace(row, case=case.name, config={"STEPS": steps}) for case in cases for steps in (1, 2)]

    def time_again(leaders, case, rounds):
        if case.name == "small":
            raise NotTimedError("stopped after 300 s, in _time_again_there")
        return [(2e-6,) * rounds] * len(leaders)

    sim = devices.get("sim")
    plan, no_limit = search.exhaustive, Budget()
    options = Options(plan, no_limit, None, False, None, False, 0, None, None, "none", None, None)
    job = TuningJob(None, cases, {variant: ()}, (), sim, device_model(), options)
    with Attempts(job) as attempts:
        attempts.trials = dict(enumerate(trials))
        attempts._here.measurer.time_again = time_again
        amended = {}
        attempts._store.amend = amended.__setitem__
        keys = {attempts._attempt(variant, {"STEPS": steps}, cases[1]).identity.key for steps in (1, 2)}
        notes = _remeasure(attempts, [variant], cases)
    assert set(amended) == keys
    assert {trial.measured_seconds for trial in amended.values()} == {2e-6}
    (note,) = notes
    assert note.startswith("small: the 2 fastest could not be timed again in turns (stopped after 300 s")
