"""Measuring in another process: the same results, and whatever a configuration does to it costs one row."""

from __future__ import annotations

import linecache
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import toy
from toy import tune_steps

from workbench.base import by_value
from workbench.errors import ArgumentError, WorkbenchError
from workbench.launch import devices
from workbench.tuning import Limits, Trial, device_model
from workbench.tuning.measuring import isolation
from workbench.tuning.measuring.attempt import Attempt


def misbehave(config) -> None:
    """One value that ends its process, and one that stops it."""
    if config["STEPS"] == 3:
        signal.raise_signal(signal.SIGSEGV)
    if config["STEPS"] == 5:
        signal.pause()
    toy.fail_by_value(config)


def test_what_ends_or_hangs_the_process_costs_one_row_and_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(isolation, "BESIDE_SECONDS", 0.0)
    variant = toy.steps_variant(values=(1, 2, 3, 4, 5, 6, 13, 14), behaviour=misbehave, log=tmp_path / "log")
    run = tune_steps(variant, isolation="process", limits=Limits(seconds=5.0))
    found = {trial.config["STEPS"]: trial for trial in run.trials}
    assert {steps: trial.outcome for steps, trial in found.items()} == {
        1: "ok",
        2: "ok",
        3: "crash",
        4: "ok",
        5: "timeout",
        6: "ok",
        13: "compile_error",
        14: "launch_error",
    }
    assert "SIGSEGV" in found[3].message
    assert "after 5 s" in found[5].message
    assert run.best.config == {"STEPS": 1}
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    pids = {int(words[1]): words[-1] for words in lines if words[0] == "run"}
    assert pids[14] == pids[1] == pids[2] == pids[3], "it stays until it is ended"
    assert pids[4] == pids[5] != pids[6], "and then another one takes over"
    assert len({*pids.values(), str(os.getpid())}) == 4
    again = tune_steps(variant, isolation="none")
    assert (again.new, again.reused) == (0, 8), "the outcomes stand"
    here = tune_steps(toy.steps_variant(values=(1, 14), behaviour=misbehave), store="another.sqlite")
    for trial in here.trials:
        there = found[trial.config["STEPS"]]
        assert (trial.outcome, trial.message, trial.seconds) == (there.outcome, there.message, there.seconds)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_ctrl_c_ends_the_process_and_keeps_what_is_finished(tmp_path, capsys):
    log = tmp_path / "log"

    def hang_at_3(config):
        if config["STEPS"] == 3:
            signal.pause()

    def interrupt():
        while not log.exists() or "run 3 " not in log.read_text():
            time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    run = tune_steps(toy.steps_variant(behaviour=hang_at_3, log=log), isolation="process")
    assert run.interrupted
    assert len(run.trials) == 3, "the default, 1 and 2"
    pid = int(next(line.split()[-1] for line in log.read_text().splitlines() if line.startswith("run 3")))
    assert not Path(f"/proc/{pid}").exists()


def test_a_lost_gpu_context_costs_one_row_and_a_new_process(monkeypatch):
    lost = Trial("steps", "steps", "cuda", "small", {"STEPS": 1}, "cuda", "sm_90", "launch_error", "sticky")
    monkeypatch.setattr(isolation, "Worker", WorkerHere)
    measurer = isolation.InWorker(devices.get("sim"), device_model())
    attempt = Attempt.of(toy.steps_variant(), {"STEPS": 1}, toy.ToyCase(count=64), devices.get("sim"))
    attempt = measurer.compiled(measurer.legal(attempt))
    assert measurer.measured(attempt).trial.ok
    with monkeypatch.context() as patch:
        patch.setattr(isolation.InProcess, "measured", lambda self, one: replace(one, trial=lost, lost=True))
        found = measurer.measured(attempt)
        assert (found.trial, found.ended, found.lost) == (lost, True, False), "the next process has another context"
    assert measurer.measured(attempt).trial.ok
    assert measurer._worker.did == ["start", "call", "call", "close", "start", "call"]


class WorkerHere:
    """A worker whose process is this one."""

    def __init__(self, imports):
        self.did = []

    def start(self):
        self.did.append("start")

    def close(self):
        self.did.append("close")

    def call(self, function, *arguments, seconds=None):
        self.did.append("call")
        return function(*arguments)


FIRST_CELL = """
import triton

@triton.jit
def doubled(x):
    return x * 2
"""

SECOND_CELL = """
import triton.language as tl
from workbench.ops.variant import TritonStep, TritonVariant

@triton.jit
def double(out, x, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, doubled(tl.load(x + at, mask=at < count)), mask=at < count)

VARIANT = TritonVariant(
    op="double",
    name="of_a_cell",
    idea="written in a notebook",
    space={"BLOCK": (64, 128), "num_warps": (1,), "num_stages": (1,)},
    restrictions=(),
    layouts=("flat",),
    dtypes=("float32",),
    defaults=lambda problem: {"BLOCK": 64, "num_warps": 1, "num_stages": 1},
    steps=(
        TritonStep(
            function=double,
            grid=lambda config, problem: (problem.count // config["BLOCK"],),
            types=lambda problem: {"out": "*fp32", "x": "*fp32", "count": "i32"},
        ),
    ),
)
"""


def run_cells(*texts: str) -> dict:
    """What IPython does with cells: their text is where ``inspect`` looks for it, and in no file."""
    names = {"__name__": "__main__"}
    for text in texts:
        name = f"/tmp/ipykernel_{os.getpid()}/{abs(hash(text))}.py"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        exec(compile(text, name, "exec"), names)
    return names


@pytest.mark.long
def test_a_kernel_of_a_notebook_s_cells_is_compiled_and_measured_in_a_process():
    from workbench.ops.op import Op
    from workbench.tuning import tune

    variant = run_cells(FIRST_CELL, SECOND_CELL)["VARIANT"]
    op = Op("double", (variant,), {"small": toy.ToyCase(count=256)}, function=lambda: None)
    run = tune(op, device="sim", isolation="process", record=False)
    assert [trial.outcome for trial in run.trials] == ["ok", "ok"], [trial.message for trial in run.trials]
    changed = run_cells(FIRST_CELL.replace("x * 2", "x * 1"), SECOND_CELL)["VARIANT"]
    assert changed.source_hash != variant.source_hash, "a cell that it only calls into"
    wrong = Op("double", (changed,), op.cases, function=lambda: None)
    assert {trial.outcome for trial in tune(wrong, device="sim", isolation="none").trials} == {"wrong_result"}


def test_a_variant_is_made_of_the_cells_of_its_functions_too():
    cells = [f"def macros(config, problem):\n    return dict(config, MODE={mode})\n" for mode in (0, 1)]
    variants = [replace(toy.scale_variant(), macros=run_cells(cell)["macros"]) for cell in cells]
    assert len({variant.source_hash for variant in variants}) == 2


def test_what_cannot_be_sent_is_an_error_that_names_the_way_out():
    lock = threading.Lock()
    with pytest.raises(WorkbenchError, match='isolation="none"'):
        tune_steps(toy.steps_variant(behaviour=lambda config: lock.locked()), isolation="process")
    with pytest.raises(ArgumentError, match="auto, process, none"):
        tune_steps(isolation="docker")


def test_values_travel_with_what_only_this_process_has():
    def local(x):
        return x + offset

    offset = 2
    assert by_value.loads(by_value.dumps(local))(3) == 5
    assert by_value.loads(by_value.dumps(toy.fail_by_value)) is toy.fail_by_value, "what can be imported goes by name"
