"""Device tensors that calls share: a captured graph never reads one that was freed, or that nobody filled.

Capture is played on the CPU: ``capturing`` says when, and what is made then may only be made by kernels.
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest
import torch

from workbench.attention import contiguous_attention, copy_blocks, swap_blocks
from workbench.attention.ops import constants
from workbench.attention.ops.constants import constant
from workbench.attention.ops.copy_blocks.problem import memory_of
from workbench.errors import ArgumentError

CPU = torch.device("cpu")


@pytest.fixture
def capturing(monkeypatch):
    """Whether a graph is captured: ``now`` is what a test sets."""
    state = SimpleNamespace(now=False)
    monkeypatch.setattr(constants, "_remembered", type(constants._remembered)())
    monkeypatch.setattr(constants, "_kept", {})
    monkeypatch.setattr(constants, "under_capture", lambda device: state.now)

    def tensor(*args, **options):
        assert not state.now, "a copy from pageable host memory"
        return torch.tensor(*args, **options)

    allowed = {name: getattr(torch, name) for name in ("empty", "arange", "cuda")}
    monkeypatch.setattr(constants, "torch", SimpleNamespace(tensor=tensor, **allowed))
    return state


@pytest.mark.parametrize("values", [(3, 0, 2**40), (), range(5), range(0)], ids=str)
@pytest.mark.parametrize("now", [False, True])
def test_the_values(capturing, values, now):
    capturing.now = now
    found = constant(values, torch.int64, CPU)
    assert found.dtype == torch.int64
    assert found.tolist() == list(values)


def test_what_a_graph_reads_is_never_freed(capturing):
    captured, other = constant((1, 2), torch.int64, CPU), constant((3,), torch.int64, CPU)
    capturing.now = True
    assert constant((1, 2), torch.int64, CPU) is captured
    capturing.now = False
    seen = weakref.ref(captured), weakref.ref(other)
    place = captured.data_ptr()
    del captured, other
    for number in range(constants.MOST_REMEMBERED + 1):
        constant((number, 7), torch.int64, CPU)
    assert seen[0]() is not None
    assert seen[1]() is None, "no graph reads it"
    assert len(constants._remembered) == constants.MOST_REMEMBERED
    assert constant((1, 2), torch.int64, CPU).data_ptr() == place


def test_what_a_capture_makes_is_the_graph_s_alone(capturing):
    """Until a replay nothing has filled it."""
    capturing.now = True
    inside = constant((1, 2), torch.int64, CPU)
    assert constant((1, 2), torch.int64, CPU) is not inside, "two captures, two graphs"
    capturing.now = False
    outside = constant((1, 2), torch.int64, CPU)
    assert outside is not inside
    assert constant((1, 2), torch.int64, CPU) is outside


def test_the_last_used_stay(capturing):
    first = constant((0, 7), torch.int64, CPU)
    for number in range(1, constants.MOST_REMEMBERED):
        constant((number, 7), torch.int64, CPU)
    assert constant((0, 7), torch.int64, CPU) is first
    constant((9, 9), torch.int64, CPU)
    assert constant((0, 7), torch.int64, CPU) is first


def test_the_tables_of_caches_survive_a_capture(capturing):
    caches = torch.zeros(3, 4, 64)
    before = memory_of(list(caches)).places
    capturing.now = True
    assert memory_of(list(caches)).places is before
    assert memory_of(list(caches[1:])).places.tolist() == [0, 64], "made inside"


@pytest.mark.parametrize("warm", [False, True])
def test_ops_run_under_a_capture(capturing, warm):
    """Without a copy from the host, whether they have run before or not."""
    arguments = torch.randn(2, 4, 64), torch.randn(2, 2, 2, 16, 64), torch.tensor([5, 16], dtype=torch.int32)
    keys, values = torch.randn(2, 1, 5, 4, 16)
    target, pairs = torch.zeros_like(keys), torch.tensor([[0, 1], [2, 4]])
    expected = contiguous_attention(*arguments, variant="torch")
    for now in (False, True) if warm else (True,):
        capturing.now = now
        found = contiguous_attention(*arguments, variant="triton_online_softmax")
        torch.testing.assert_close(found, expected)
        copy_blocks(keys, values, pairs, variant="cuda_vectors")
        swap_blocks(list(keys), list(target), pairs, variant="cuda_vectors")
    assert torch.equal(keys[0, 1], keys[0, 0])
    assert torch.equal(target[0, 4], keys[0, 2])


def test_pairs_in_host_memory_under_a_capture_are_refused(capturing, monkeypatch):
    from workbench.attention.ops.swap_blocks import api

    monkeypatch.setattr(api, "under_capture", lambda device: True)
    caches = [torch.zeros(4, 16), torch.zeros(4, 16)]
    with pytest.raises(ArgumentError, match="under graph capture") as refused:
        api.problem_of(
            api.SwapBlocksCaches(caches[:1], caches[1:], torch.zeros(1, 2, dtype=torch.int64, device="meta"))
        )
    assert refused.value.argument == "pairs"
    assert "before the capture" in refused.value.remedy
