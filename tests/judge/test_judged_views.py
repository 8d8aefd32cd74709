"""The judge gives a declared op's kernels views of each case's inputs, where their declaration takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.judge.buffers import Buffers
from workbench.ops import registry
from workbench.ops.declared.views import ViewedCase, views_of


@pytest.fixture(autouse=True)
def _ops_of_a_test() -> Iterator[None]:
    before = dict(registry.OWN)
    yield
    registry.OWN.clear()
    registry.OWN.update(before)


SUM = r"""
extern "C" __global__ void add_rows(float *out, const float *x, const float *y, int cols, int row, int column) {
    for (int c = threadIdx.x; c < cols; c += 32)
        out[blockIdx.x * cols + c] = X + y[blockIdx.x * cols + c];
}
"""

SHIFT = r"""
extern "C" __global__ void shift_rows(float *x, int cols, int row) {
    for (int c = threadIdx.x; c < (LAST); c += 32) x[(size_t)blockIdx.x * row + c] += 1;
}
"""


def added(index: str, **declared: Any) -> Any:
    @wb.op(name="added")
    def reference(x, y):
        return x + y

    reference.case("small", x=wb.randn(3, 40), y=wb.randn(3, 40))
    strides = {"row": "x.stride(0)", "column": "x.stride(1)", "cols": "x.shape[1]"} | declared.pop("args", {})
    reference.cuda(SUM.replace("X", index), grid="x.shape[0]", block=32, args=strides, **declared)
    return reference


def shifted(last: str, **declared: Any) -> Any:
    @wb.op(name="shifted", in_place=("x",))
    def reference(x):
        x += 1

    reference.case("small", x=wb.randn(3, 40))
    sizes = {"row": "x.stride(0)", "cols": "x.shape[1]"}
    reference.cuda(SHIFT.replace("LAST", last), grid="x.shape[0]", block=32, args=sizes, **declared)
    return reference


STRIDED = "x[(size_t)blockIdx.x * row + c * column]"
COPY_Y = {"contiguous": ("y",)}


@pytest.mark.parametrize(
    ("op", "outcome", "told"),
    [
        (lambda: added(STRIDED, **COPY_Y), "ok", ""),
        (lambda: added(STRIDED), "ok", ""),  # y is refused: no view of both is left
        (lambda: added("x[blockIdx.x * cols + c]", contiguous=True), "ok", ""),
        (lambda: added("x[blockIdx.x * row + c]", **COPY_Y), "wrong_result", "(with its inputs transposed)"),
        (lambda: added("x[blockIdx.x * cols + c * column]", **COPY_Y), "out_of_bounds", "(with its inputs transposed)"),
        (lambda: added("x[row ? blockIdx.x * row + c * column : 0]", **COPY_Y), "wrong_result",
         "(with its inputs expanded)"),
        (lambda: shifted("cols"), "ok", ""),
        (lambda: shifted("blockIdx.x < 2 ? row : cols"), "guard_written", "(with its inputs sliced)"),
        (lambda: shifted("row", contiguous="x"), "ok", ""),
    ],
)  # fmt: skip
def test_views_of_a_cases_inputs(op: Any, outcome: str, told: str):
    (verdict,) = wb.check(op(), seeds=1)
    assert (verdict.outcome, told in verdict.message) == (outcome, True), verdict


def test_each_view_is_another_layout():
    op = added(STRIDED)
    case = op.case("small")
    laid = {name: dict(one.arguments)["x"].strides for name, one in views_of(case.problem(), ()).items()}
    assert laid == {"transposed": (1, 3), "sliced": (56, 1), "expanded": (0, 1)}
    for name, problem in views_of(case.problem(), ()).items():
        given = Buffers(ViewedCase(case, problem).inputs(problem), (), 0).tensors
        repeated = torch.equal(given["x"][0], given["x"][1])
        assert (given["x"].stride(), repeated) == (laid[name], name == "expanded")
        assert name == "expanded" or torch.equal(given["x"], case.arguments()["x"])
    assert "expanded" not in views_of(case.problem(), ("x", "y"))
