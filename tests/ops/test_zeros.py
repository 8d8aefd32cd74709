"""Zeros that kernels find and leave: kept for each device and stream, but not for a graph or in host memory."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

import workbench.ops.tensors.zeros as module
from workbench import ops
from workbench.attention.ops.paged_attention import case
from workbench.launch import devices
from workbench.ops.tensors.zeros import forget_kept_zeros, kept_zeros
from workbench.tuning.measuring.measure import evaluate


class Gpu:
    """What `kept_zeros` asks of torch, of tensors on the host that count as some on a GPU."""

    int32 = torch.int32

    def __init__(self):
        self.stream, self.capturing, self.filled = 0, False, []
        self.cuda = SimpleNamespace(
            is_current_stream_capturing=lambda: self.capturing,
            current_stream=lambda device: SimpleNamespace(cuda_stream=self.stream),
        )

    def zeros(self, count, dtype, device):
        self.filled.append(count)
        return torch.zeros(count, dtype=dtype)


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr(module, "torch", gpu)
    monkeypatch.setattr(module, "_kept", {})
    return gpu


FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)


def test_filled_once_for_each_device_and_stream(gpu):
    zeros = kept_zeros(40, FIRST)
    assert zeros.dtype == torch.int32
    assert kept_zeros(7, FIRST) is zeros
    assert kept_zeros(40, SECOND) is not zeros
    gpu.stream = 77
    assert kept_zeros(40, FIRST) is not zeros
    assert len(gpu.filled) == 3


def test_longer_ones_replace_shorter_ones(gpu):
    short = kept_zeros(40, FIRST)
    long = kept_zeros(100_000, FIRST)
    assert long.numel() >= 100_000 > short.numel() >= 40
    assert kept_zeros(40, FIRST) is long


def test_a_graph_has_its_own(gpu):
    zeros = kept_zeros(40, FIRST)
    gpu.capturing = True
    first, second = kept_zeros(40, FIRST), kept_zeros(40, FIRST)
    assert first is not second
    assert zeros is not first
    gpu.capturing = False
    assert kept_zeros(40, FIRST) is zeros


def test_none_are_not_filled_on_a_gpu(gpu):
    assert kept_zeros(0, FIRST).numel() == 0
    assert not module._kept


def test_forgotten_ones_are_not_given_again(gpu):
    zeros = kept_zeros(40, FIRST)
    zeros[3] = 1  # what a wrong kernel may leave
    forget_kept_zeros()
    assert not kept_zeros(40, FIRST).any()


def test_host_memory_is_not_kept():
    host = torch.device("cpu")
    assert kept_zeros(40, host) is not kept_zeros(40, host)
    assert kept_zeros(40, host).tolist() == [0] * 40


def test_a_wrong_result_gives_them_up(gpu):
    right = ops.variant("paged_attention", "torch")
    wrong = dataclasses.replace(right, compute=lambda problem, tensors: tensors.out.zero_())
    zeros = kept_zeros(40, FIRST)
    assert evaluate(right, {}, case("small"), devices.get("sim")).outcome == "ok"
    assert kept_zeros(40, FIRST) is zeros
    assert evaluate(wrong, {}, case("small"), devices.get("sim")).outcome == "wrong_result"
    assert kept_zeros(40, FIRST) is not zeros
