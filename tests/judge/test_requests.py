"""Requests about one case share what they have in common, and nothing else."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.base import by_value
from workbench.judge import describing, running
from workbench.ops.declared.contract import Contract
from workbench.ptx import Program

KERNEL = r"""
extern "C" __global__ void doubled(float *out, const float *x, int n) {
    bool room = malloc(3 << 20) != nullptr;  // of the 8 MiB of a heap, and never given back
    for (int i = 0; i < n; ++i) out[i] = room ? 2 * x[i] : 0;
}
"""


def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_a_case_is_decoded_and_answered_once(monkeypatch: pytest.MonkeyPatch):
    op = wb.op(doubled)
    case = op.case("row", x=wb.randn(40))
    op.cuda(KERNEL, kernel="doubled", grid=1, block=1, sizes=lambda x: {"n": x.numel()}, args=("out", "x", "n"))
    content, told = by_value.dumps(case), []
    variants = [by_value.dumps(one) for one in op.variants if one.name != op.reference]
    request: dict[str, Any] = {"path": list(sys.path), "folder": os.getcwd(), "cases": [("row", content)]}
    describing.describe(request | {"config": None, "variants": variants}, told.append)
    description = next(one for one in told if "launches" in one)

    decoded, answered, found = [], [], []
    answer = Contract.recorded_answer
    monkeypatch.setattr(running, "Program", lambda text: decoded.append(text) or Program(text))
    monkeypatch.setattr(Contract, "recorded_answer", lambda *given: answered.append(given) or answer(*given))
    running._decoded.cache_clear()
    running._recent.clear()
    asked = {"path": list(sys.path), "case": content, "description": description, "config": {}}
    asked |= {"seconds": 60, "memory": 1 << 30, "covered": b""}
    for seeds, change in (([1], None), ([1], "negative"), ([1], None), ([1, 2], None), ([2], None)):
        running.run(asked | {"seeds": seeds, "change": change}, found.append)
    # Each launch takes 3 MiB: a request with two seeds has four of them, one after the other.
    assert [one["outcome"] for one in found] == ["ok", "ok", "ok", "wrong_result", "ok"]
    assert len(decoded) == 1
    assert len(answered) == 2, "once for each seed"
    assert [*running._recent] == [(content, 2)], "no other one is kept"


TAKEN = 'extern "C" __global__ void taken(float *out, const float *x, const int *at) { int i = threadIdx.x; VALUE }'


def taken(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return x[at.long()]


def first(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return x + at


@pytest.mark.parametrize(("reference", "value", "checked"), [
    (taken, "out[i] = x[at[i]];", True), (first, "out[i] = x[i] + at[i];", False),
])  # fmt: skip
def test_changed_values_are_checked_where_they_steer_the_kernel(
    reference: Any, value: str, checked: bool, monkeypatch: pytest.MonkeyPatch
):
    op = wb.op(reference)
    case = op.case("row", x=wb.randn("n"), at=wb.randint(0, 32, "n"), n=32)
    op.cuda(TAKEN.replace("VALUE", value), kernel="taken", grid=1, block="x.shape[0]", args=("out", "x", "at"))
    content, told = by_value.dumps(case), []
    variants = [by_value.dumps(one) for one in op.variants if one.name != op.reference]
    request: dict[str, Any] = {"path": list(sys.path), "folder": os.getcwd(), "cases": [("row", content)]}
    describing.describe(request | {"config": None, "variants": variants}, told.append)
    description = next(one for one in told if "launches" in one)
    orders, found = [], []
    launch = running.launch
    monkeypatch.setattr(
        running, "launch", lambda *given, order, **more: orders.append(order) or launch(*given, order=order, **more)
    )
    asked = {"path": list(sys.path), "case": content, "description": description, "config": {}, "seeds": [1]}
    asked["covered"] = b""
    running.run(asked | {"seconds": 60, "memory": 1 << 30, "changes": ["x100", "repeated", "one_more"]}, found.append)
    assert [found[0][name]["outcome"] for name in ("x100", "repeated", "one_more")] == ["ok"] * 3
    assert [order.options.get("checks", True) for order in orders] == [checked, checked, True]
