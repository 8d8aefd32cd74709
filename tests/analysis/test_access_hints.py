"""Hints on how memory is asked: parts of vectors, atomics whose lanes meet, and elements that no thread reads."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

SOURCE = """\
__global__ void xz(float *out, const float4 *p) { float4 v = p[blockIdx.x * 256 + threadIdx.x];
  out[blockIdx.x * 256 + threadIdx.x] = v.x + v.z; }
__global__ void xy(float *out, const float4 *p) { float4 v = p[blockIdx.x * 256 + threadIdx.x];
  out[blockIdx.x * 256 + threadIdx.x] = v.x + v.y; }
__global__ void xyzw(float *out, const float4 *p) { float4 v = p[blockIdx.x * 256 + threadIdx.x];
  out[blockIdx.x * 256 + threadIdx.x] = v.x + v.y + v.z + v.w; }
__global__ void xyz(float *out, const float4 *p) { float4 v = p[blockIdx.x * 256 + threadIdx.x];
  out[blockIdx.x * 256 + threadIdx.x] = v.x + v.y + v.z; }
__global__ void floats(float *out, const float *p) { atomicAdd(out, p[blockIdx.x * 256 + threadIdx.x]); }
__global__ void integers(int *out, const int *p) { atomicAdd(out, p[blockIdx.x * 256 + threadIdx.x]); }
__global__ void largest(int *out, const int *p) { atomicMax(out, p[blockIdx.x * 256 + threadIdx.x]); }
__global__ void returned(int *out, const int *p) {
  int at = blockIdx.x * 256 + threadIdx.x; out[1 + at] = atomicAdd(out, p[at]); }
__global__ void apart(float *out, const float *p) {
  int at = blockIdx.x * 256 + threadIdx.x; atomicAdd(out + at, p[at]); }
__global__ void warp_first(float *out, const float *p) {
  float sum = p[blockIdx.x * 256 + threadIdx.x];
  for (int at = 16; at; at /= 2) sum += __shfl_down_sync(~0u, sum, at);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
__global__ void all(float *out, const float *p, int n) {
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) out[i] = p[i];
}
"""
VECTORS, ATOMICS, UNREAD = "vectors used in part", "atomics to one address", "elements that no thread reads"


@pytest.fixture(scope="module")
def module():
    return wb.load_cuda(SOURCE, device="sim")


def traced(module, name, *more, dtype=np.float32, blocks=8, count=8192):
    arrays = [np.zeros(count + 1, dtype), np.ones(count, dtype)]
    return wb.trace_kernel(module[name], grid=blocks, block=256, args=[*arrays, *more])


def hints(trace, what):
    return [hint for hint in trace.hints() if hint.name == what]


@pytest.mark.parametrize(("name", "loads", "count", "width"), [("xz", "2 loads", 2, 4), ("xy", "a load", 1, 8)])
def test_a_vector_that_is_used_in_part(module, name, loads, count, width):
    trace = traced(module, name)
    (hint,) = hints(trace, VECTORS)
    assert hint.line.text.startswith(f"__global__ void {name}(")
    used = ", ".join(f".{letter}" for letter in name)
    assert f"of each vector of 4 elements {used} are used" in hint.evidence
    assert f"ptxas makes {loads} of {width} bytes" in hint.evidence
    assert trace.sass.counts.starting("LDG") == {f"LDG.{8 * width}": count}
    assert " ".join(str(hint).split()) in " ".join(str(trace).split())


@pytest.mark.parametrize("name", ["xyzw", "xyz"])
def test_a_vector_that_ptxas_loads_whole(module, name):
    trace = traced(module, name)
    assert not hints(trace, VECTORS)
    assert "LDG.128" in trace.sass.counts


@pytest.mark.parametrize(
    ("name", "dtype", "said"),
    [
        ("floats", np.float32, "32 lanes of a request meet at each address and queue: 2,048 operations"),
        ("integers", np.int32, "ptxas lets each warp reduce their values first, so that 64 operations reach memory"),
        ("largest", np.int32, "ptxas lets each warp reduce their values first, so that 64 operations reach memory"),
        ("returned", np.int32, "32 lanes of a request meet at each address and queue: 2,048 operations"),
    ],
)
def test_lanes_that_meet_at_an_address(module, name, dtype, said):
    (hint,) = hints(traced(module, name, dtype=dtype), ATOMICS)
    assert said in hint.evidence
    assert "atomic" in hint.line.text


@pytest.mark.parametrize("name", ["apart", "warp_first"])
def test_lanes_that_do_not_meet(module, name):
    assert not hints(traced(module, name), ATOMICS)


def test_the_predicted_time_has_the_queue(module):
    times = {}
    for name, dtype in (("floats", np.float32), ("integers", np.int32), ("warp_first", np.float32)):
        times[name] = traced(module, name, dtype=dtype, blocks=32).prediction()
    assert times["floats"].parts["atomics"] == pytest.approx(32 * times["integers"].parts["atomics"])
    assert times["warp_first"].parts["atomics"] == pytest.approx(times["integers"].parts["atomics"])
    assert times["floats"].seconds > times["warp_first"].seconds
    assert "atomics" not in traced(module, "all", 8192).prediction().parts


def test_the_last_elements_that_no_thread_reads(module):
    trace = traced(module, "all", 8189)
    (hint,) = hints(trace, UNREAD)
    assert hint.evidence == "3 of 8,192 elements of p, the last ones, are read by no thread"
    assert "Read by no thread: 3 of 8,192 elements of p." in str(trace.buffers)


@pytest.mark.parametrize(("n", "said"), [(8192, ""), (4096, "4,096 of 8,192 elements of p")])
def test_elements_that_are_read_or_left_out_in_number(module, n, said):
    trace = traced(module, "all", n)
    assert not hints(trace, UNREAD)
    assert ("Read by no thread" in str(trace.buffers)) == bool(said)
    assert trace.buffers["p"].unread_elements == said.removesuffix(" of p")
