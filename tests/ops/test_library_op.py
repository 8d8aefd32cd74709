"""The ops as torch's: what the first call of one loads."""

from __future__ import annotations

import sys

import pytest
import torch

from workbench.ops.library_op import custom_op


def test_a_call_loads_torchs_compiler_only_for_one_that_did(monkeypatch: pytest.MonkeyPatch):
    @custom_op("workbench_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    doubled.register_fake(torch.empty_like)
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    assert torch.equal(doubled(torch.ones(2)), torch.full((2,), 2.0))
    assert "torch._dynamo" not in sys.modules
    monkeypatch.undo()
    compiled = torch.compile(lambda x: doubled(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert torch.equal(doubled(torch.ones(2)), torch.full((2,), 2.0)), "guarded from now on"
