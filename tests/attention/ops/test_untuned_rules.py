"""Untuned rules that fill a GPU: they count its multiprocessors, and say so where nobody knows them."""

from __future__ import annotations

import dataclasses
import pickle
import warnings
from types import SimpleNamespace

import pytest
import torch

import workbench as wb
from workbench.analysis import device_models
from workbench.analysis.device_models import device_model, placed
from workbench.attention import paged_attention
from workbench.attention.ops.copy_blocks import case as copying
from workbench.attention.ops.paged_attention import OP, case
from workbench.attention.ops.paged_attention.rules import balanced_partition_size, multiprocessors, partition_size
from workbench.errors import UnknownDeviceWarning
from workbench.launch import devices
from workbench.ops.dispatch import multiprocessors_of
from workbench.ops.tuned import problem_record

SIZES = (128, 256, 512, 1024)
LONG = case("llama-3-8b", num_seqs=1, context=16384, layout="nhd")
PROBLEM = LONG.problem()


def on(count: int | None, arch: str = "sm_80"):
    return dataclasses.replace(PROBLEM, arch=arch, multiprocessors=count)


@pytest.mark.parametrize("rule", [
    lambda problem: partition_size(problem, SIZES, blocks_per_multiprocessor=4),
    lambda problem: balanced_partition_size(problem, SIZES, resident=2),
    lambda problem: OP.variant("cuda_grouped_mma").default_config(problem)["PARTITION_SIZE"],
    lambda problem: OP.variant("triton_grouped").default_config(problem)["PARTITION_SIZE"],
    lambda problem: OP.variant("triton_partitioned").default_config(problem)["PARTITION_SIZE"],
    lambda problem: OP.variant("cuda_partitioned").default_config(problem)["PARTITION_SIZE"],
])  # fmt: skip
def test_fewer_multiprocessors_longer_partitions(rule):
    """The architecture is the same: an H200 cut into seven has 16."""
    sizes = [rule(on(count, "sm_90")) for count in (16, 132)]
    assert sizes[0] > sizes[1]


def test_where_nobody_names_a_gpu_the_first_recorded_one_stands_for_its_architecture():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert multiprocessors(on(None)) == 108
        assert multiprocessors(on(None, "sm_90a")) == 132
        assert multiprocessors(on(None, "sm_89")) == device_model("l4").multiprocessors
        assert multiprocessors(on(48, "sm_120")) == 48


def test_an_architecture_that_nothing_is_known_of_is_said():
    with pytest.warns(UnknownDeviceWarning, match=r"sm_121 .* takes the 108 of A100-SXM4-80GB\. .*tune"):
        assert multiprocessors(on(None, "sm_121")) == 108
    with pytest.warns(UnknownDeviceWarning):
        wb.compile("paged_attention", variant="cuda_partitioned", arch="sm_121")


def test_a_tensor_s_gpu_is_asked(monkeypatch):
    counts = {0: 132, 1: 46}
    properties = lambda device: SimpleNamespace(multi_processor_count=counts[device.index])  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert multiprocessors_of(torch.zeros(1)) is None
    assert multiprocessors_of(SimpleNamespace(is_cuda=True, device=SimpleNamespace(index=1))) == 46


def test_the_op_asks_for_the_gpu_of_its_tensors(monkeypatch):
    from workbench.attention.ops.paged_attention import api
    from workbench.ops import dispatch

    seen = []
    monkeypatch.setattr(api, "multiprocessors_of", lambda tensor: 46)
    choose = dispatch.choose
    monkeypatch.setattr(dispatch, "choose", lambda op, problem, *rest, **more: seen.append(problem) or choose(
        op, problem, *rest, **more))  # fmt: skip
    small = case("small")
    tensors = small.inputs(small.problem())
    paged_attention(*list(vars(tensors).values())[:5], layout="x")
    assert [problem.multiprocessors for problem in seen] == [46]


def test_placed(monkeypatch):
    sim = devices.get("sim")
    assert placed(PROBLEM, sim).multiprocessors is None
    assert placed(PROBLEM, sim, device_model("rtx-4090")).multiprocessors == 128
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(
        multi_processor_count={0: 132, 1: 46}[index]))  # fmt: skip
    assert placed(PROBLEM, SimpleNamespace(name="cuda"), device_model()).multiprocessors == 46, "not the model's"
    other = copying("small").problem()
    assert placed(other, sim, device_model()) is other, "an op whose rules do not ask"


def test_tables_and_processes_know_the_same_problem():
    problem = on(132)
    assert problem_record(problem) == problem_record(PROBLEM), "a table is one GPU's"
    assert pickle.loads(pickle.dumps(problem)) == problem
    assert len({problem, PROBLEM, on(108)}) == 3, "default configurations are remembered by it"


@pytest.mark.parametrize("model", ["l4", "rtx-4090"])
def test_a_run_starts_from_the_rule_for_its_model(model, monkeypatch, tmp_path):
    """Two GPUs of one architecture."""
    from workbench.tuning import searching

    starts = []
    monkeypatch.setattr(searching, "drive", lambda attempts, variant, space, start, *rest: starts.append(start))
    run = wb.tune(
        "paged_attention", LONG, "triton_grouped", "sim", model=model, store=tmp_path / "store.sqlite", record=False
    )
    variant, sm_89 = OP.variant("triton_grouped"), dataclasses.replace(PROBLEM, arch="sm_89")
    count = int(device_models.device_model(model).multiprocessors)
    assert starts == [variant.default_config(dataclasses.replace(sm_89, multiprocessors=count))]
    others = {"l4": 128, "rtx-4090": 58}
    assert starts != [variant.default_config(dataclasses.replace(sm_89, multiprocessors=others[model]))]
    assert run.trials == ()
