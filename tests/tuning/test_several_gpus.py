"""A machine of several GPUs: what is asked of torch's current one, or of a tensor's, is not answered by another."""

from __future__ import annotations

import importlib
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
import toy
from toy import tune_steps

from workbench.launch import devices
from workbench.ops import dispatch, tuned
from workbench.ops.op import Op
from workbench.ops.tuned import TunedEntry, lookup, problem_record
from workbench.tuning import device_model, searching
from workbench.tuning.measuring import cluster, gpu_choice, isolation, tasks
from workbench.tuning.measuring.attempt import Attempt
from workbench.tuning.result import table

NAMES = {0: "NVIDIA H100 80GB HBM3", 1: "NVIDIA H200"}
VARIANT = toy.steps_variant()
OP = Op("steps", (VARIANT,), {"small": toy.ToyCase(count=64)}, function=lambda: None)
PROBLEM = toy.ToyProblem(64, arch="sm_90")


@pytest.fixture
def current(monkeypatch):
    """The number of torch's current GPU, which a test may change."""
    state = SimpleNamespace(number=0)
    name = lambda device=None: NAMES[state.number if device is None else device.index]  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_device_name", name)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: state.number)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: setattr(state, "number", number))
    return state


@pytest.fixture
def two_tables(tmp_path, monkeypatch, fresh_home):
    """The best has one step on GPU 0 and two on GPU 1; the architecture is the same."""
    monkeypatch.setattr(tuned, "recorded_folders", lambda kind: (tmp_path / "shipped",))
    tuned.forget()
    facts = {"seconds": 1e-6, "basis": "measured", "source_hash": VARIANT.source_hash, "recorded": "2026-01-02"}
    for number, name in NAMES.items():
        entry = TunedEntry("steps", "steps", problem_record(PROBLEM), {"STEPS": number + 1}, **facts)
        table.record([entry], name=tuned.slug(name), arch="sm_90", description=name)
    yield
    tuned.forget()


def test_a_lookup_is_for_the_gpu_that_is_current_then(current, two_tables):
    assert lookup(OP, None, PROBLEM, "cuda").config == {"STEPS": 1}
    current.number = 1
    assert lookup(OP, None, PROBLEM, "cuda").config == {"STEPS": 2}, "not the other's answer, remembered"


def test_an_op_looks_in_the_table_of_its_tensors_gpu(current, two_tables, monkeypatch):
    monkeypatch.setattr(tuned, "get", lambda op: OP)
    on_gpu_1 = SimpleNamespace(is_cuda=True, device=torch.device("cuda", 1))
    name = dispatch.table_of(on_gpu_1)
    for variant in ("auto", "tuned", "steps"):
        assert dispatch.choose(OP, PROBLEM, variant, None, device=name) == (VARIANT, {"STEPS": 2})
    assert dispatch.table_of(torch.zeros(1)) == "sim"


class Gpu:
    """Stands for the device "cuda"."""

    name, arch, description = "cuda", "sm_90", "a GPU"


class WorkerHere:
    """A process that begins with GPU 0 as its current one, in this one."""

    def __init__(self, imports): ...
    def start(self): ...
    def close(self): ...

    def call(self, function, *arguments, seconds=None):
        torch.cuda.set_device(0)
        return function(*arguments)


def test_a_process_measures_on_the_gpu_of_its_caller(current, monkeypatch):
    monkeypatch.setattr(isolation, "Worker", WorkerHere)
    monkeypatch.setattr(devices, "get", lambda name: Gpu())
    used = []
    monkeypatch.setattr(isolation.InProcess, "measured", lambda *_: used.append(current.number))
    current.number = 1
    measurer = isolation.InWorker(Gpu(), device_model())
    monkeypatch.setattr(measurer, "_replace_worker", lambda: None)
    with pytest.raises(AttributeError):  # what it returned is no attempt
        measurer.measured(Attempt.of(VARIANT, {"STEPS": 1}, toy.ToyCase(count=64), Gpu()))
    assert used == [1]
    isolation._measurer.cache_clear()


@pytest.fixture
def told(monkeypatch):
    """(thread, number) of each call that chooses a GPU, in a run that believes to be on GPU 3."""
    calls = set()
    for module in (searching, isolation, tasks, cluster):
        monkeypatch.setattr(module, "use_gpu", lambda n, m=module: calls.add((threading.current_thread().name, n)))
    monkeypatch.setattr(importlib.import_module("workbench.tuning.tuner"), "current_gpu", lambda device: 3)
    return calls


def test_threads_of_a_run_use_the_gpu_of_its_caller(told, tmp_path):
    tune_steps(background=True, store=tmp_path / "a.sqlite").result()
    assert ("tuning", 3) in told
    assert any(name.startswith("compile") and number == 3 for name, number in told)
    with ThreadPoolExecutor(1, thread_name_prefix="executor") as threads:
        tune_steps(executor=threads, store=tmp_path / "b.sqlite")
    assert ("executor_0", 3) in told


def test_a_run_knows_the_gpu_that_is_current_where_it_is_called(current):
    current.number = 1
    assert gpu_choice.current_gpu(Gpu()) == 1
    assert gpu_choice.current_gpu(devices.get("sim")) is None
    gpu_choice.use_gpu(0)
    assert current.number == 0
    gpu_choice.use_gpu(None)
    assert current.number == 0
