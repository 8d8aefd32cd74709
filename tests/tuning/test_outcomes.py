"""What goes wrong on the way from a configuration to its time is an outcome with a message, not the end of a run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import small_ops as own
import torch
import toy

import workbench as wb
from workbench import ops
from workbench.base.trials.trial import Trial
from workbench.errors import CompileError, CompileTimeout, ConfigurationError, MissingToolError, WorkbenchError
from workbench.launch import devices
from workbench.launch.sim import Simulator
from workbench.tuning import device_model, evaluate
from workbench.tuning.measuring.attempt import Attempt
from workbench.tuning.measuring.inputs import Inputs, available_bytes, enough_memory
from workbench.tuning.measuring.isolation import InWorker
from workbench.tuning.measuring.measure import InProcess, with_prediction

ILLEGAL = ConfigurationError("config", {"STEPS": 7}, "other ones", "Choose one.")


class TritonsOwn(Exception):
    __module__ = "triton.compiler.errors"


class Raising:
    """A variant that raises when it is compiled, or when it runs."""

    def __init__(self, compiling: Exception | None = None, running: Exception | None = None):
        self.variant, self.compiling, self.running = toy.steps_variant(), compiling, running

    def __getattr__(self, name: str):
        return getattr(self.variant, name)

    def kernels(self, *arguments, **options) -> tuple:
        if self.compiling:
            raise self.compiling
        return self.variant.kernels(*arguments, **options)

    def run(self, *arguments, **options):
        raise self.running


def attempt_of(variant, **config) -> Attempt:
    return Attempt.of(variant, config, toy.ToyCase(count=64), Simulator())


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (CompileTimeout("too slow"), "timeout"),
        (ILLEGAL, "restricted"),
        (CompileError("refused"), "compile_error"),
        (WorkbenchError("cannot be read"), "compile_error"),
        (TritonsOwn("no such type"), "compile_error"),
        (ZeroDivisionError("division by zero"), "crash"),
    ],
)
def test_what_compiling_raises(error, outcome):
    measurer = InProcess(Simulator(), device_model())
    compiled = measurer.compiled(measurer.legal(attempt_of(Raising(error), STEPS=1)))
    assert (compiled.ended, compiled.kernels, compiled.trial.outcome) == (True, (), outcome)
    assert str(error).splitlines()[0] in compiled.trial.message
    assert compiled.trial.compile_seconds >= 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ILLEGAL, "restricted"), (CompileError("refused"), "compile_error"), (KeyError("x"), "crash")],
)
def test_what_a_run_raises(error, outcome):
    trial = evaluate(Raising(running=error), {"STEPS": 1}, toy.ToyCase(count=64), Simulator())
    assert (trial.outcome, trial.seconds) == (outcome, None)


def test_a_missing_tool_ends_the_run():
    with pytest.raises(MissingToolError):
        evaluate(Raising(running=MissingToolError("no compiler")), {"STEPS": 1}, toy.ToyCase(count=64), Simulator())


def test_a_check_that_fails_is_a_crash(monkeypatch):
    monkeypatch.setattr(toy.ToyCase, "check", lambda case, out: 1 / 0)
    trial = evaluate(toy.steps_variant(), {"STEPS": 1}, toy.ToyCase(count=64), Simulator())
    assert (trial.outcome, trial.message) == ("crash", "ZeroDivisionError: division by zero")


def test_what_no_multiprocessor_takes_has_no_time():
    trial = evaluate(toy.steps_variant(), {"STEPS": 1}, toy.ToyCase(count=64), Simulator())
    assert trial.ok
    counts = trial.counts | {"shared_bytes": 10**9}
    found = with_prediction(Trial(**{**vars(trial), "counts": counts}), device_model("h200"))
    assert (found.outcome, found.predicted_seconds) == ("launch_error", None)


def test_memory_that_nobody_can_tell_is_enough(monkeypatch):
    def unreadable(path, *arguments, **options):
        raise PermissionError(path)

    monkeypatch.setattr(Path, "read_text", unreadable)
    assert available_bytes("cpu") == float("inf")


def test_nothing_is_compiled_for_a_configuration_that_has_no_rules():
    measurer = InProcess(Simulator(), device_model())
    attempt = measurer.legal(attempt_of(Raising(AssertionError("compiled")), LOOPS=1))
    assert (attempt.ended, attempt.trial.outcome) == (True, "restricted")
    assert measurer.measured(measurer.compiled(attempt)).trial.outcome == "restricted"


def test_kernels_are_compiled_once_for_the_compilation_and_the_run(monkeypatch):
    variant, compiled = toy.steps_variant(), []
    original = type(variant).kernels

    def counted(self, *given, **options):
        compiled.append(given)
        return original(self, *given, **options)

    monkeypatch.setattr(type(variant), "kernels", counted)
    assert evaluate(variant, {"STEPS": 1}, toy.ToyCase(count=64), Simulator()).ok
    assert len(compiled) == 1


@pytest.mark.long
def test_a_compiler_that_dies_costs_its_configuration(fresh_cache):
    here = os.getpid()
    run = wb.tune(own.doubling("lives"), device="sim", isolation="process", record=False)
    assert run.outcomes == {"ok": 1}
    op = own.doubling("dies", sizes=lambda x: {"n": x.numel() if os.getpid() == here else os._exit(3)})
    run = wb.tune(op, device="sim", isolation="process", record=False)
    assert run.outcomes == {"compile_error": 1}
    assert "the compiler crashed" in run.trials[0].message
    assert "status 3" in run.trials[0].message


@pytest.mark.gpu
def test_a_result_that_goes_wrong_after_a_while_has_no_time():
    op, calls = own.doubling("tires"), []

    def doubled(x):
        calls.append(x)
        return 2 * x + (len(calls) > 3)

    variant = op.torch(doubled)
    trial = evaluate(variant, {}, op.case("small"), devices.get("cuda"))
    assert (trial.outcome, trial.seconds) == ("wrong_result", None)
    assert re.search(r"after \d+ repeated runs", trial.message)


@pytest.mark.gpu
def test_what_is_written_in_place_begins_anew_for_the_last_check():
    op = own.counting()
    trial = evaluate(op.variant("count"), {}, op.case("small"), devices.get("cuda"))
    assert trial.ok, trial.message
    assert trial.measured_seconds > 0


@pytest.mark.gpu
def test_leaders_are_timed_again_in_a_process(fresh_home):
    op, device = own.counting(), devices.get("cuda")
    measurer = InWorker(device, device_model("h200"))
    try:
        samples = measurer.time_again([(op.variant("count"), {})] * 2, op.case("small"), 3)
    finally:
        measurer.close()
    assert [len(one) for one in samples] == [3, 3]


@pytest.mark.gpu
def test_a_constant_is_copied_on_the_device_in_a_graph_too():
    op = own.scaled_by_constants()
    x, factors = torch.arange(8, device="cuda", dtype=torch.float32), torch.tensor([2.0, 3.0], device="cuda")
    graph, out = torch.cuda.CUDAGraph(), torch.empty_like(x)
    assert torch.equal(op(x, factors, variant="scale").cpu(), x.cpu() * 6)
    with torch.cuda.graph(graph):
        out.copy_(op(x, factors, variant="scale"))
    factors.mul_(2)
    graph.replay()
    assert torch.equal(out.cpu(), x.cpu() * 24)


def test_inputs_of_the_latest_problems_are_kept():
    small = ops.get("paged_attention").case("small", num_seqs=1, context=20)
    inputs = Inputs(small, "sim", keep=2, room=0)
    problems = [small.problem({"BLOCK_SIZE": size}) for size in (8, 16, 32)]
    first = [inputs.of(problem).out for problem in problems]
    assert inputs.of(problems[2]).out is first[2]
    assert inputs.of(problems[0]).out is not first[0], "the oldest made room"


def test_an_error_that_is_not_about_memory_is_its_own():
    small = ops.get("paged_attention").case("small", num_seqs=1, context=20)
    with pytest.raises(RuntimeError, match="another"), enough_memory(small, "cpu", 1):
        raise RuntimeError("another")
