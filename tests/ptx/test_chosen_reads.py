"""Reads of unwritten memory whose values only selects use are notes; all others are findings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import workbench as wb

NOTE, FINDING = "unwritten values before a select", "uninitialised global read"


@triton.jit
def lower(out, x, KIND: tl.constexpr, N: tl.constexpr):
    """Read a square of which the upper half may be unwritten."""
    rows, cols = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    v = tl.load(x + rows * N + cols)
    if KIND == "masked":
        v = tl.where(rows >= cols, v, 0.0)
    elif KIND == "computed":
        v = tl.where(rows >= cols, -tl.exp(v.to(tl.float32)) * 2, 0.0)
    elif KIND == "deciding":
        v = tl.where(v > 0, v, 0.0)
    elif KIND == "used twice":
        v = tl.where(rows >= cols, v, 0.0) + v
    tl.store(out + rows * N + cols, v.to(tl.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("kind", "found"),
    [("masked", NOTE), ("computed", NOTE), ("deciding", FINDING), ("used twice", FINDING), ("plain", FINDING)],
)
def test_a_tile_that_a_mask_cuts_is_a_note(kind, found, dtype):
    out, x = torch.zeros(16, 16), torch.ones(16, 16, dtype=dtype)
    report = wb.check_kernel(lower, grid=1, args=[out, x], kwargs={"KIND": kind, "N": 16}, uninitialised=[1])
    kinds = {one.kind for one in report.findings}, {one.kind for one in report.launch.notes}
    assert kinds == (({FINDING}, set()) if found == FINDING else (set(), {NOTE})), report
    assert {one.buffer for one in (*report.findings, *report.launch.notes)} == {"x"}


CHOICE = """extern "C" __global__ void k(float *out, const float *x, const float *z, int n)
{
    int i = threadIdx.x;
    float v = x[i], w = z[i];
    out[i] = CHOICE;
}"""


@pytest.mark.parametrize(
    ("choice", "finding"), [("i < n ? v : w", False), ("v < w ? v : w", True), ("i < n ? v : v + w", False)]
)
def test_a_choice_of_cuda(choice, finding):
    kernel = wb.load_cuda(CHOICE.replace("CHOICE", choice)).k
    arrays = [np.zeros(32, np.float32), np.ones(32, np.float32), np.ones(32, np.float32)]
    report = wb.check_kernel(kernel, grid=1, block=32, args=[*arrays, 8], uninitialised=[1])
    assert [one.kind for one in report.findings] == [FINDING] * finding, report
    assert [one.kind for one in report.launch.notes] == [NOTE] * (not finding), report
