"""Tuning on a GPU: measured times from processes of their own, and kernels that make such a process useless."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import workbench as wb
from workbench import ops
from workbench.attention.ops.paged_attention import case
from workbench.launch import devices
from workbench.ops.variant import CudaStep, CudaVariant
from workbench.tuning.measuring.gpu_state import gpu_lost
from workbench.tuning.measuring.measure import DeviceLostError, InProcess, evaluate

pytestmark = pytest.mark.gpu
SMALL = case("small", num_seqs=1, context=20)


@pytest.mark.long
def test_every_configuration_gets_a_measured_time(tmp_path):
    names = ["cuda_thread_group", "triton_online_softmax"]
    run = wb.tune(
        "paged_attention", SMALL, names, device="cuda", strategy="random", budget=2, store=tmp_path / "a.sqlite"
    )
    assert {trial.outcome for trial in run.trials} == {"ok"}, run
    assert {trial.variant for trial in run.trials} == set(names)
    for trial in run.trials:
        assert trial.measured_seconds > 0
        assert trial.predicted_seconds is None
        assert len(trial.samples) >= 10
    again = wb.tune(
        "paged_attention", SMALL, names, device="cuda", strategy="random", budget=2, store=tmp_path / "a.sqlite"
    )
    assert all(trial.reused for trial in again.trials)


WILD = """extern "C" __global__ void paged_attention_wild(float *out)
{ if (STRAY) out[1ll << 40] = 1; else *out = __int_as_float(0x7fc00000); }"""


@pytest.fixture
def wild(tmp_path):
    """A variant that with STRAY=1 writes where nothing is, and else a wrong result."""
    source = tmp_path / "wild.cu"
    source.write_text(WILD)
    like = ops.get("paged_attention").variant("cuda_thread_group")
    values = {field.name: getattr(like, field.name) for field in dataclasses.fields(like) if field.init}
    values |= {
        "name": "wild",
        "source": source,
        "steps": (CudaStep(kernel="paged_attention_wild", grid=lambda *_: (1,), block=lambda *_: (1,)),),
        "space": {"STRAY": (0, 1)},
        "restrictions": (),
        "defaults": lambda problem: {"STRAY": 0},
        "macros": lambda config, problem: dict(config),
        "workspace": None,
    }
    return CudaVariant(**values)


def test_a_kernel_that_spoils_the_context_costs_its_row(wild, tmp_path):
    run = wb.tune("paged_attention", SMALL, [wild], device="cuda", strategy="exhaustive", store=tmp_path / "a.sqlite")
    assert {trial.config["STRAY"]: trial.outcome for trial in run.trials} == {0: "wrong_result", 1: "launch_error"}
    assert not gpu_lost(), "the context of this process is another one"


def lose_the_context(wild) -> None:
    """Runs in a process of its own: nothing works there afterwards."""
    with pytest.raises(DeviceLostError, match="wild STRAY=1"):
        evaluate(wild, {"STRAY": 1}, SMALL, devices.get("cuda"))
    assert gpu_lost()
    with pytest.raises(RuntimeError):
        torch.zeros(1, device="cuda").add_(1).cpu()


def test_without_a_process_of_its_own_the_run_ends_and_says_so(wild):
    from workbench.base.processes.worker import Worker
    from workbench.tuning.measuring.shipping import Shipments

    worker = Worker(["test_tuning_gpu"])
    try:
        worker.call(_lose, Shipments().of(wild).packed(), seconds=300)
    finally:
        worker.close()


def _lose(wild) -> None:
    lose_the_context(wild.value)


def test_leaders_are_timed_in_turns():
    op = ops.get("paged_attention")
    variant = op.variant("cuda_thread_group")
    measurer = InProcess(devices.get("cuda"), None)
    config = variant.default_config(SMALL.problem(arch=devices.get("cuda").arch))
    found = measurer.time_again([(variant, config), (variant, {**config, "NUM_THREADS": 64})], SMALL, 3)
    assert [len(samples) for samples in found] == [3, 3]
    assert all(sample > 0 for samples in found for sample in samples)
