"""Atomic sums of floats: a note where the order of the additions shows in the result, and none where it cannot."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.ptx.findings import ORDER

SOURCE = """
#include <cuda_fp16.h>
__global__ void blocks(float *o, const float *x) { atomicAdd(o, x[blockIdx.x * 64 + threadIdx.x]); }  // note
__global__ void warps(float *o, const float *x) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, x[threadIdx.x]);  // note
  __syncthreads();
  if (threadIdx.x == 0) o[blockIdx.x] = sum;
}
__global__ void doubles(double *o, const double *x) { atomicAdd(o, x[blockIdx.x * 64 + threadIdx.x]); }  // note
__global__ void halves(__half2 *o, const __half2 *x) { atomicAdd(o, x[blockIdx.x * 64 + threadIdx.x]); }  // note
__global__ void vectors(float4 *o, const float4 *x) {
  float4 v = x[blockIdx.x * 64 + threadIdx.x];
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" :: "l"(o),
    "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w));  // note
}
__global__ void one_warp(float *o, const float *x) {
  if (threadIdx.x < 32) atomicAdd(o + blockIdx.x, x[threadIdx.x]);
}
__global__ void two_terms(float *o, const float *x) {
  if (threadIdx.x == 0) atomicAdd(o + blockIdx.x / 2, x[blockIdx.x]);
}
__global__ void turns(float *o, const float *x) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0;
  for (int warp = 0; warp < 2; ++warp) {
    __syncthreads();
    if (threadIdx.x / 32 == warp) atomicAdd(&sum, x[threadIdx.x]);
  }
  __syncthreads();
  if (threadIdx.x == 0) o[blockIdx.x] = sum;
}
__global__ void alike(float *o, const float *x) { atomicAdd(o + 1, x[5]); }
__global__ void largest(float *o, const float *x) { atomicMax((int *)o, __float_as_int(x[threadIdx.x])); }
"""
ORDERED = ["one_warp", "two_terms", "turns", "alike", "largest"]
UNORDERED = {
    "blocks": np.float32,
    "warps": np.float32,
    "doubles": np.float64,
    "halves": np.float16,
    "vectors": np.float32,
}


@pytest.fixture(scope="module")
def module():
    return wb.load_cuda(SOURCE, device="sim", arch="sm_90")


def notes(kernel, x, **options):
    report = wb.check_kernel(kernel, grid=4, block=64, args=[np.zeros(64, x.dtype), x], **options)
    assert report.ok, str(report)
    assert all(note in str(report) for note in ["order of"] * len(report.launch.notes))
    return report.launch.notes


@pytest.mark.parametrize("name", UNORDERED)
def test_a_sum_that_depends_on_the_order_is_noted_at_its_line(module, name):
    x = np.random.default_rng(0).standard_normal(1024).astype(UNORDERED[name])
    found = notes(module[name], x, strict=True)  # it is meant: no finding in a strict launch either
    assert {note.kind for note in found} == {ORDER}
    marked = [at for at, text in enumerate(SOURCE.splitlines(), 1) if "// note" in text]
    assert {note.kernel_line for note in found} <= set(marked)
    assert notes(module[name], np.rint(4 * x).clip(-8, 8).astype(x.dtype)) == []  # each partial sum is exact


@pytest.mark.parametrize("name", ORDERED)
def test_sums_that_no_order_changes_are_not(module, name):
    assert notes(module[name], np.random.default_rng(0).standard_normal(1024).astype(np.float32)) == []


def test_a_sum_that_each_block_begins_anew_is_not(module):
    """Memory that is written in between holds another sum: two terms of each are no sum of four."""
    kernel = wb.load_cuda("""
__global__ void anew(float *o, const float *x) {
  for (int i = 0; i < 4; ++i) {
    if (threadIdx.x == 0) o[0] = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) atomicAdd(o, x[i + threadIdx.x]);
    __syncthreads();
  }
}""", device="sim").anew  # fmt: skip
    x = np.random.default_rng(0).standard_normal(128).astype(np.float32)
    assert wb.check_kernel(kernel, grid=1, block=64, args=[np.zeros(1, np.float32), x]).launch.notes == []
