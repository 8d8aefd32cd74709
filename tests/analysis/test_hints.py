"""What to try next, from kernels with one thing each that is worth trying."""

from __future__ import annotations

import json

import numpy as np
import pytest

import workbench as wb

SOURCE = """\
__global__ void copy(float *out, const float *in) {
  int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = in[i];
}
__global__ void column(float *out, const float *in) {
  int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = in[i % 32 * 1024 + i / 32];  // hint
}
__global__ void banks(float *out, const float *in) {
  __shared__ float tile[32 * 256];
  tile[32 * threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];  // hint
  out[blockIdx.x * 256 + threadIdx.x] = tile[32 * threadIdx.x];  // hint
}
__global__ void late(float *out, const float *in) {
  float sum = 0;
  if (threadIdx.x < 32)
    for (int i = 0; i < 64; ++i) sum += in[i] * sum;
  __syncthreads();  // hint
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}
__global__ void first_lane(float *out, const float *in) {
  float sum = in[threadIdx.x];
  if (threadIdx.x % 32 == 0)
    for (int i = 0; i < 64; ++i) sum = sum * sum + 1;  // hint
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}
__global__ void single(float *out, const float *in) {
  float sum = 0;
  for (int i = 0; i < 64; ++i) sum += in[blockIdx.x * 64 + i];  // hint
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}
__global__ void zeros(float *out, const float *in) {
  float x = in[threadIdx.x], sum = x;
  for (int i = 0; i < 64; ++i) sum += (sum - 1) / x;  // hint
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}
"""
FEW = "few bytes in flight"


@pytest.fixture(scope="module")
def module():
    return wb.load_cuda(SOURCE, device="sim")


def trace(module, name, blocks):
    arrays = [np.zeros(256 * blocks, np.float32), np.ones(max(256 * blocks, 32 * 1024), np.float32)]
    return wb.trace_kernel(module[name], grid=blocks, block=256, args=arrays)


def marked(name):
    start = SOURCE.index(f"void {name}(")
    lines = SOURCE[: SOURCE.find("__global__", start) % len(SOURCE)].splitlines()
    return [at for at, text in enumerate(lines, 1) if "// hint" in text and at > SOURCE[:start].count("\n")]


def test_a_kernel_that_wastes_nothing_gets_no_hint(module):
    found = trace(module, "copy", 128 * 8)
    assert found.hints("a100-sxm-80gb") == ()
    assert "what to try next" not in str(found)
    assert "What to try next" not in found._repr_html_()


@pytest.mark.parametrize(("name", "what", "evidence"), [
    ("column", "bytes moved for nothing", "18 sectors a request where 4 would do, 22% of their bytes used"),
    ("single", "bytes moved for nothing", "1 sectors a request, 12% of their bytes used"),
    ("banks", "bank conflicts", "wavefronts where 64 would do"),
    ("late", "a barrier that everyone waits at", "of the time of all warps"),
    ("first_lane", "idle lanes", "1 of 32 lanes at work"),
    ("zeros", "slow paths of divisions and roots", "4,096 warp instructions have a lane with operands"),
])  # fmt: skip
def test_each_waste_is_named_with_its_line_and_evidence(module, name, what, evidence):
    found = trace(module, name, 8)
    hints = [hint for hint in found.hints() if hint.name == what]
    assert hints
    for hint in hints:
        assert hint.line.line in marked(name)
        assert evidence in hint.evidence
        assert hint.cost >= 0.1
        shown = " ".join(str(found).split())
        assert " ".join(str(hint).split()) in shown
        assert hint.remedy in found._repr_html_()
    assert [hint["what"] for hint in json.loads(found.to_json())["hints"]] == [hint.name for hint in found.hints()]


def test_a_grid_that_leaves_multiprocessors_idle_has_few_bytes_in_flight(module):
    (few,) = [hint for hint in trace(module, "copy", 4).hints() if hint.name == FEW]
    assert "4 blocks" in few.evidence
    assert "108 multiprocessors" in few.remedy
    assert few.line is None


def test_the_predicted_time_stands_beside_the_facts(module):
    found = trace(module, "copy", 64)
    predicted = found.prediction()
    assert found.summary()["predicted µs"].value == pytest.approx(1e6 * predicted.seconds)
    assert str(predicted) in " ".join(str(found).split())
    assert "not measured" in found.summary()["predicted µs"].meaning
    other = found.prediction("h200")
    assert other.device != predicted.device
    assert other.seconds != predicted.seconds
