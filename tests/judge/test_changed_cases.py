"""Changed cases are kept from one candidate to the next, and no run changes what is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import workbench as wb
from workbench.judge import changed_cases
from workbench.judge.changed_cases import ChangedCases
from workbench.ops.declared.elsewhere import Meaningless


def row_sums(x: torch.Tensor) -> torch.Tensor:
    """Compute the reference."""
    return x.sum(-1)


def _case(seed: int) -> Any:
    return wb.op(row_sums).case("small", x=wb.randn(6, 5)).override(seed=seed)


def test_a_case_is_kept_until_another_seed_comes():
    cases = ChangedCases()
    first = cases.get(b"case", _case(1), "sorted")
    assert cases.get(b"case", _case(1), "sorted") is first
    assert cases.get(b"other", _case(2), "sorted") is not first
    assert cases.get(b"case", _case(1), "sorted") is first
    again = cases.get(b"case", _case(2), "sorted")
    assert again is not first
    assert not torch.equal(again.arguments()["x"], first.arguments()["x"])
    for _ in range(2):
        with pytest.raises(Meaningless, match="no input changes"):
            cases.get(b"case", _case(2), "repeated")


def test_what_takes_too_much_memory_is_made_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(changed_cases, "_MOST_BYTES", 300)
    cases = ChangedCases()
    kept, other = (cases.get(b"case", _case(1), name) for name in ("sorted", "zero"))
    assert kept.nbytes <= 300 < kept.nbytes + other.nbytes
    assert cases.get(b"case", _case(1), "sorted") is kept
    assert cases.get(b"case", _case(1), "zero") is not other


def test_a_run_does_not_change_what_is_kept():
    case = _case(1)
    changed = ChangedCases().get(b"case", case, "x100")
    right = 100 * case.arguments()["x"].sum(-1)
    for _ in range(2):
        tensors = changed.inputs(case.problem())
        assert changed.check({"out": right}).ok
        assert not changed.check({"out": right + 1}).ok
        tensors.arguments["x"].zero_()
