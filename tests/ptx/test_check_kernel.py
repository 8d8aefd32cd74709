"""``workbench.check_kernel``: one call from a kernel to a readable report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench.errors import ArgumentError
from workbench.toolchain import compile_cuda

SOURCE = Path(__file__).parent / "cuda_faults.cu"
LINES = SOURCE.read_text().splitlines()
DATA = np.arange(512, dtype=np.float32)


def line_of(mark: str) -> int:
    return 1 + next(i for i, text in enumerate(LINES) if text.endswith(f"// {mark}"))


def check(name: str, **changes: object) -> object:
    module = wb.load_cuda(SOURCE, device="sim")
    launch = {"grid": 2, "block": 128, "args": [np.zeros(512, np.float32), DATA]} | changes
    return wb.check_kernel(getattr(module, name), **launch)


def test_clean() -> None:
    report = check("tree_sum")
    assert report.ok
    assert bool(report)
    assert len(report) == 0
    assert "tree_sum" in str(report)
    assert str(report).endswith("nothing found")
    assert "nothing found" in report._repr_html_()


def test_race_shows_both_lines() -> None:
    report = check("race")
    assert not report
    finding = next(iter(report))
    assert finding.kind == "shared race"
    assert {finding.line, finding.other_line} == {line_of("race write"), line_of("race read")}
    for text in (str(report), report._repr_html_()):
        assert "shared race" in text
        for mark in ("race write", "race read"):
            assert f"cuda_faults.cu:{line_of(mark)}" in text
            assert LINES[line_of(mark) - 1].strip()[:10] in text


def test_out_of_bounds_names_the_buffer() -> None:
    report = check("past_the_end", args=[np.zeros(256, np.float32), np.zeros(256, np.float32)])
    finding = report.findings[0]
    assert (finding.kind, finding.buffer, finding.count) == ("out-of-bounds", "in", 1)
    assert (finding.block, finding.thread) == ((1, 0, 0), (127, 0, 0))
    assert "past the end of in, which" in finding.message
    assert "(in)" in report._repr_html_()


def test_compiled_kernel() -> None:
    kernel = compile_cuda(SOURCE, "race")
    assert (
        check("race").findings
        == wb.check_kernel(kernel, grid=2, block=128, args=[np.zeros(512, np.float32), DATA]).findings
    )


def test_refuses_what_is_no_kernel() -> None:
    with pytest.raises(ArgumentError, match="kernel"):
        wb.check_kernel("race", grid=1, block=1, args=[])


def test_both_orders_of_the_warps_are_tried_and_leave_one_run_behind(capfd):
    """Warp 0 stores before any other warp loads, as long as it goes first."""
    source = """
    __device__ int runs;
    extern "C" __global__ void prepare(int* out) {
      __shared__ int ready;
      if (threadIdx.x == 0) ready = out[0] + 7, runs += 1, printf("run %d\\n", runs);
      if (threadIdx.x >= 32) out[threadIdx.x] += ready;  // no barrier
    }
    """
    module = wb.load_cuda("#include <cstdio>\n" + source, device="sim")
    out = np.zeros(64, np.int32)
    forward = module.prepare(1, 64, out, checks=True)
    report = wb.check_kernel(module.prepare, grid=1, block=64, args=[out])
    assert {finding.kind for finding in report} >= {finding.kind for finding in forward.findings}
    assert "uninitialised shared read" in {finding.kind for finding in report}
    assert out[32:].tolist() == [14] * 32, "the rehearsal adds nothing"
    assert module.globals["runs"].get() == 2
    assert capfd.readouterr().out.split() == ["run", "1", "run", "2"]


STORED = """
#include "hopper.cuh"
extern "C" __global__ void stored(float* y, float* z, const float* x) {
  __shared__ alignas(16) float tile[32];
  tile[threadIdx.x] = x[threadIdx.x];
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    store(y, tile, 128);
    if (WAITS) wait_for_stores();
    else wait_for_reads();
  }
  __syncthreads();
  z[threadIdx.x] = *(volatile float*)(y + threadIdx.x);  // which no rule about races speaks of
}
"""


@pytest.mark.parametrize("waits", [True, False])
def test_results_that_depend_on_when_a_copy_lands(waits: bool):
    folders, x = [Path(__file__).parent], np.arange(1, 33, dtype=np.float32)
    kernel = wb.load_cuda(STORED, arch="sm_90a", macros={"WAITS": int(waits)}, include_dirs=folders)["stored"]
    y, z = np.zeros_like(x), np.zeros_like(x)
    report = wb.check_kernel(kernel, grid=1, block=32, args=[y, z, x])
    assert y.tolist() == x.tolist()
    assert report.ok == waits
    if not waits:
        (finding,) = report
        assert finding.kind == "results that copies' timing changes"
        assert "bytes of z" in str(report)


TILED = """
extern "C" __global__ void reversed(float* out) {
  __shared__ float tile[256];
  tile[threadIdx.x] = threadIdx.x;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 16; i++) sum += tile[(i * 16 + 255 - threadIdx.x) % 256];
  out[threadIdx.x] = sum;
}
"""


def test_a_missing_barrier_is_one_finding_however_often_its_line_is_unrolled() -> None:
    kernel = compile_cuda(TILED, "reversed")
    report = wb.check_kernel(kernel, grid=1, block=256, args=[np.zeros(256, np.float32)])
    (race,) = [finding for finding in report if finding.kind == "shared race"]
    assert {race.line, race.other_line} == {4, 7}
    assert race.places >= 16
    assert f"; {race.count} times, in {race.places} places of the PTX" in str(report)


def test_names_are_those_of_the_source_and_not_mangled():
    source = (
        "template <int N> __global__ void shift(float *x) {\n  __shared__ float tile[64];\n"
        "  tile[threadIdx.x] = x[threadIdx.x];\n"
        "  float first = tile[0];\n  x[threadIdx.x] = tile[(threadIdx.x + N) % 64] + first;\n}\n"
        "template __global__ void shift<3>(float *);\n"
    )
    report = wb.check_kernel(
        wb.load_cuda(source, device="sim")["shift<3>"], grid=1, block=64, args=[np.ones(64, np.float32)]
    )
    assert not report.ok
    assert {finding.kernel for finding in report} == {"shift<3>"}
    assert "shift<3>::tile" in str(report)
    for text in (str(report), report._repr_html_(), str(report.launch), repr(report.launch), repr(report.findings)):
        assert "_Z" not in text
    assert '<th style="text-align:left">kind</th>' in report._repr_html_(), "heads stand over their columns"


HALVES = """
template <class T> __global__ void fill(T *y, int n) { if (threadIdx.x < n) y[threadIdx.x] = (T)0; }
template __global__ void fill<float>(float *, int);
template __global__ void fill<unsigned char>(unsigned char *, int);
"""


@pytest.mark.parametrize(("kind", "dtype", "partly"), [("float", "f4", True), ("unsigned char", "u1", False)])
def test_elements_that_stay_unwritten_are_a_note(kind: str, dtype: str, partly: bool) -> None:
    kernel = wb.load_cuda(HALVES, device="sim")[f"fill<{kind}>"]

    def notes(written: int) -> tuple[str, ...]:
        y = np.zeros(64, dtype)
        report = wb.check_kernel(kernel, grid=1, block=64, args=[y, written], uninitialised=[0])
        assert report.ok
        return report.notes

    assert notes(64) == ()
    words = "y, which nobody had written, keeps 40 of its 64 elements unwritten, the first of them element 24"
    assert notes(24) == ((words,) if partly else ()), "a byte may be right by chance"
    assert "64 of its 64 elements" in notes(0)[0]
