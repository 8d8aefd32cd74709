"""Bad input and faults of the machine: a clear error each, and never a finished row lost."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import toy
from toy import tune_steps

from workbench.errors import ArgumentError, CaseTooLargeError, StoreError, UnknownNameError
from workbench.ops.variant import Restriction
from workbench.tuning import Store

# -- spaces, devices, cases -------------------------------------------------------------------------------------


def test_an_empty_space_says_which_parameter_has_no_values():
    with pytest.raises(ArgumentError, match="STEPS"):
        tune_steps(replace(toy.steps_variant(), space={"STEPS": ()}))


def test_a_space_whose_every_point_is_restricted_says_by_which_rules():
    rules = (
        Restriction("even", "STEPS % 2 == 0", lambda c, p: c["STEPS"] % 2 == 0),
        Restriction("odd", "STEPS % 2 == 1", lambda c, p: c["STEPS"] % 2 == 1),
    )
    with pytest.raises(ArgumentError, match=r"(?s)even.*odd"):
        tune_steps(replace(toy.steps_variant(), restrictions=rules))


def test_an_unknown_device_lists_those_there_are():
    from workbench.tuning import tune

    with pytest.raises(UnknownNameError, match=r"device: got 'tpu'.*sim"):
        tune(toy.steps_op(), device="tpu")


class NeedsMoreThanItSays(toy.ToyCase):
    """Finds out only when it allocates."""

    def minimum_bytes(self, problem) -> int:
        return 0


@pytest.mark.parametrize("kind", [toy.ToyCase, NeedsMoreThanItSays])
def test_a_case_that_does_not_fit_memory_ends_the_run_and_keeps_what_is_finished(kind, tmp_path):
    store = tmp_path / "store.sqlite"
    assert tune_steps(store=store).new == 12
    with pytest.raises(CaseTooLargeError, match=r"case huge does not fit into memory.*smaller"):
        tune_steps(cases=kind("huge", 1 << 50), store=store)
    assert tune_steps(store=store).reused == 12
    with Store(store) as opened:
        assert len(opened) == 12


# -- the disk ---------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_HOME", "/proc/self/nothing")  # not even root can write there
    with pytest.raises(StoreError, match=r"/proc/self/nothing.*WORKBENCH_HOME"):
        tune_steps(record=False)
    with pytest.raises(StoreError, match=r"tuned table /proc/self/nothing.*WORKBENCH_HOME"):
        tune_steps(store=tmp_path / "store.sqlite", background=True)
    assert not (tmp_path / "store.sqlite").exists(), "known before the search"
    run = tune_steps(store=tmp_path / "store.sqlite", record=False)
    assert len(run.trials) == 12, "a store elsewhere is enough"


def test_a_full_disk_ends_the_run_and_the_next_one_goes_on(tmp_path):
    path = tmp_path / "store.sqlite"
    many = toy.steps_variant(values=tuple(range(1, 61)))
    with Store(path) as store:
        pages = store._file.connection.execute("PRAGMA page_count").fetchone()[0]
        store._file.connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(StoreError, match=r"full.*has space"):
            tune_steps(many, store=store, record=False)
    with Store(path) as store:
        finished = len(store)
    assert 0 < finished < 60
    run = tune_steps(many, store=path)
    assert (run.reused, run.new) == (finished, 60 - finished)


# -- kill -9 ----------------------------------------------------------------------------------------------------


class Tuners:
    """Tuners of the same store, one after the other, which can be killed at any moment."""

    def __init__(self, store: Path, log: Path, values: int):
        command = [sys.executable, toy.__file__, "serve", str(store), str(log), str(values)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, bufsize=1)

    def one(self, seconds: float | None) -> set[int]:
        """Let one tune and kill it after ``seconds`` (None: never); what it reported as finished."""
        self.process.stdin.write("go\n")
        pid = int(self.process.stdout.readline().split()[1])
        if seconds is not None:
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):  # it was done before
                os.kill(pid, signal.SIGKILL)
        reported = set()
        while (words := self.process.stdout.readline().split())[0] == "done":
            reported.add(int(words[1]))
        assert words[0] == "ended"
        return reported


@pytest.mark.long
@pytest.mark.parametrize(
    ("kills", "values"), [(6, 30), pytest.param(150, 400, marks=pytest.mark.long)], ids=["some", "many"]
)
def test_kill_9_at_any_moment_loses_nothing_that_was_reported_and_repeats_nothing(tmp_path, kills, values):
    store, log = tmp_path / "store.sqlite", tmp_path / "log"
    tuners, random_ = Tuners(store, log, values), random.Random(9)
    reported: set[int] = set()
    runs_when_finished: dict[int, int] = {}
    delays = [*(random_.uniform(0, 0.5) for _ in range(kills)), None]
    for delay in delays:
        reported |= tuners.one(delay)
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        runs = Counter(int(words[1]) for words in lines if words[0] == "run")
        with Store(store) as opened:
            finished = {trial.config["STEPS"]: trial for trial in opened.trials()}
        assert reported <= set(finished)
        for steps in finished:
            assert runs_when_finished.setdefault(steps, runs[steps]) == runs[steps], "it was finished, and run again"
    tuners.process.stdin.close()
    assert tuners.process.wait() == 0
    assert len(finished) == values
    # Who is killed three times in the same configuration has had a hand in it, as far as the store can know.
    ended = {(trial.outcome, trial.message[:29]) for steps, trial in finished.items() if steps != 13}
    assert ended <= {("ok", ""), ("crash", "the process that measured it ")}
    assert sum(runs.values()) <= values + kills, "at most the one that was running is repeated"
