"""Variants, configurations and kernels compared with each other without a tolerance, where no reference is needed."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

import workbench as wb
from workbench.cli import main

SOURCE = r"""
extern "C" __global__ void row_softmax(float* out, const float* x, int n) {
  __shared__ float part[THREADS];
  const int row = blockIdx.x, thread = threadIdx.x;
  float sum = 0;
  for (int i = thread; i < n; i += THREADS) sum += __expf(x[row * n + i]);
  part[thread] = sum;
  __syncthreads();
  sum = EPS;
  for (int other = 0; other < THREADS; ++other) sum += part[other];
  for (int i = thread; i < n; i += THREADS) out[row * n + i] = __expf(x[row * n + i]) / sum;
}
"""
EPS_TOO_MUCH = "where the inputs are 0, 1, ..., 1 / out[0, 0] is 1e-06 more than the first's"
FAULT = SOURCE.replace("EPS", "THREADS == 64 ? 1e-6f : 0.f")


@wb.op(name="exactly_compared")
def row_softmax(x):
    return torch.softmax(x, -1)


row_softmax.case("short", x=wb.randn(2, 70))
for name, text in {
    "fault": FAULT,
    "by_bits": SOURCE.replace("EPS", "0").replace(
        "/ sum", "/ (__int_as_float(__float_as_int(sum) + (1 << 23)) * 0.5f)"
    ),
}.items():
    row_softmax.cuda(
        text, name=name, kernel="row_softmax", grid="x.shape[0]", block="THREADS", tune={"THREADS": (32, 64, 96)},
        args=("out", "x", "x.shape[1]"), default={"THREADS": 32},
    )  # fmt: skip


def test_variants_are_compared_with_the_first_of_them() -> None:
    found = wb.compare(row_softmax, device="sim", configs={"fault": {"THREADS": 64}}, exact=True)
    assert found.all_correct  # a difference fails nobody
    assert found.facts()["exact"] == ("the others are compared with this", "differs", "no answer")
    text = str(found)
    assert "beside torch: not the same computation: 140 elements differ, first" in text
    assert "\n    every element of out differs\n" in text
    assert "exact: a difference fails nothing by itself" in text
    by_name = {row["variant"]: row for row in json.loads(found.to_json())["variants"]}
    assert by_name["by_bits"]["exact"].startswith("no answer: it ")
    assert EPS_TOO_MUCH in by_name["fault"]["exact_difference"]
    assert by_name["torch"]["exact_difference"] == []
    alone = wb.compare(row_softmax, variants=["by_bits", "fault"], device="sim", exact=True)
    assert alone.facts()["exact"] == ("no answer", "the others are compared with this")  # no reference is needed


def test_without_it_nothing_is_said() -> None:
    found = wb.compare(row_softmax, variants="fault", device="sim")
    assert "exact" not in found.facts()
    assert found.rows[0]["exact"] is None


def test_configurations_are_compared_with_the_untuned_one(fresh_home) -> None:
    run = wb.tune(row_softmax, variants="fault", device="sim", exact=True)
    assert run.outcomes == {"ok": 3}
    briefs = {trial.config["THREADS"]: run.exact_of(trial).brief for trial in run.trials}
    assert briefs == {32: "the others are compared with this", 64: "differs", 96: "the same computation"}
    assert "exact: 1 of 2 differ; first fault THREADS=64, beside fault THREADS=32: not the same" in str(run)
    assert f"\n    {EPS_TOO_MUCH}\n" in str(run)
    assert "exact: a difference fails nothing by itself" in str(run)
    assert EPS_TOO_MUCH in run.rows[1]["exact_difference"]
    assert run.rows[1]["exact"].startswith("beside fault THREADS=32: not the same computation")


def test_two_kernels_of_files_are_launched_with_the_same_arguments(tmp_path) -> None:
    """One sums with 32 threads and one with 64, which the launches say; a third one misses an element."""
    two = SOURCE.replace("EPS", "0").replace("THREADS", "64")
    fault = two.replace("i = thread; i < n;", "i = thread + 1; i < n;", 1)
    texts = {"one": two.replace("64", "32"), "two": two, "fault": fault}
    first, *others = [tmp_path / f"{name}.cu" for name in texts]
    for path, text in zip([first, *others], texts.values(), strict=True):
        path.write_text(text)
    words = ["--exact", "--only", "ptx", "--grid", "2", "--block", "32", "--block", "64"]
    words += ["--arg", "float32[2, 70]", "--arg", "float32[2,70]", "--arg", "70"]
    said = {one.stem: CliRunner().invoke(main, ["compare-code", str(first), str(one), *words]) for one in others}
    assert all(one.exit_code == 0 for one in said.values()), said
    assert "exact: the same computation in 140 of 140 elements" in said["two"].output
    assert "exact: not the same computation: 140 elements differ, first args[0][0, 0]" in said["fault"].output
    assert "args[1][1, 0] is missing from the sum that divides args[0][1, 69]" in said["fault"].output
    assert "a difference fails nothing by itself" in said["fault"].output


def test_configurations_of_a_variant_are_compared_on_a_case() -> None:
    found = wb.compare_code(row_softmax, variants="fault", configs=[{"THREADS": 32}, {"THREADS": 96}], exact=True)
    assert found.exact.same
    assert found.exact.elements == 140


def test_kernels_need_a_launch_with_something_drawn() -> None:
    kernel = wb.load_cuda(SOURCE.replace("EPS", "0").replace("THREADS", "32"), device="sim").row_softmax
    with pytest.raises(wb.WorkbenchError, match="one or more that are drawn"):
        wb.compare_code(kernel, kernel, exact=True, grid=2, block=32, args=[torch.zeros(2, 70)])
    with pytest.raises(wb.WorkbenchError, match="no value with an op"):
        wb.compare_code(row_softmax, variants="fault", configs=[{"THREADS": 32}, {}], exact=True, grid=2)
