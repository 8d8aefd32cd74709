"""Findings say where to look: names of shared arrays and mbarriers, lines of the user's own file, causes, the widest
first."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench.errors import KernelFault

# 64 threads sum six pieces of 64 numbers, which come into two stages by bulk copies.
STAGES = """
#include "hopper.cuh"
extern "C" __global__ void sums(float *y, const float *x, int steps) {
  __shared__ alignas(128) float stage[2][64];
  __shared__ Barrier full[2];
  const int t = threadIdx.x;
  const auto fill = [&](int i) {
    arrive_and_expect(full[i % 2], BYTES);
    load(stage[i % 2], x + i * 64, 256, full[i % 2]);  // fill
  };
  if (t == 0) {
    init(full[0], 1);
    init(full[1], 1);
    fence_init();
  }
  __syncthreads();
  if (t == 0) fill(0), fill(1);
  float sum = 0;
  for (int i = 0; i < steps; ++i) {
    wait(full[i % 2], FLIP ? i / 2 % 2 : 0);  // wait
    for (int j = t % 32; j < 64; j += 32) sum += stage[i % 2][j];
    MEET;
    if (t == 0 && i + 2 < steps) fill(i + 2);
  }
  y[t] = sum;
}
"""
RIGHT = {"FLIP": 1, "MEET": "fence_async(); __syncthreads()", "BYTES": 256}
AGAIN = (
    "warp 0 asks for parity 0, with which phase 0 was seen, and phase 1 (parity 1) has passed since. Flip the parity"
)
STUCK = {
    "parity": ({"FLIP": 0}, 64, AGAIN),
    "bytes": ({"BYTES": 512}, 64, "full[0] at offset 512 (parity 0) expects 512 bytes, of which 256 come, 256 too few"),
    "warps": ({"MEET": ""}, 64, "before warp 1 saw it. Let whoever begins it wait for warp 1 first"),
    "lanes": ({"MEET": ""}, 32, "before all lanes of warp 0 saw it. Let all lanes meet before that: __syncwarp()"),
}


def stages(threads: int, **macros: object):
    folder = Path(__file__).parent
    module = wb.load_cuda(STAGES, arch="sm_90a", device="sim", macros=RIGHT | macros, include_dirs=[folder])
    return wb.check_kernel(module.sums, grid=1, block=threads, args=[np.zeros(64, "f"), np.ones(384, "f"), 6])


@pytest.mark.parametrize("fault", STUCK)
def test_a_deadlock_at_an_mbarrier_has_its_reason(fault):
    macros, threads, words = STUCK[fault]
    with pytest.raises(KernelFault) as caught:
        stages(threads, **macros)
    message = str(caught.value).splitlines()[0]
    assert "deadlock: the mbarrier full[0] at offset 512" in message
    assert words in message
    assert stages(threads).ok


# Lanes, then warps, then blocks that do not wait for each other: in the reverse order of what matters.
RACES = """
__global__ void races(int *y) {
  __shared__ int pairs[64], halves[64];
  const int t = threadIdx.x;
  pairs[t] = t;
  if (WAIT) __syncwarp();
  halves[t] = pairs[t ^ 1];
  if (WAIT) __syncthreads();
  y[t + WAIT * blockIdx.x * 64] = halves[t ^ 32] + blockIdx.x;
}
"""


@pytest.mark.parametrize("wait", [0, 1])
def test_the_widest_finding_comes_first_and_each_names_its_array(wait):
    module = wb.load_cuda(RACES, device="sim", macros={"WAIT": wait})
    report = wb.check_kernel(module.races, grid=2, block=64, args=[np.zeros(128, np.int32)])
    found = [*dict.fromkeys((finding.scope, finding.buffer) for finding in report)]
    assert found == ([] if wait else [("grid", "y"), ("block", "halves"), ("warp", "pairs")])
    assert wait or re.search(r"byte \d+ of halves, which has 256 bytes", str(report))


# Code of three files: the user's, a header of the user's, and one that came with a package.
INLINED = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry reads(.param .u64 x) {{
  .reg .b64 %rd<3>;
  .reg .b32 %r<2>;
  .loc 1 7 3
  ld.param.u64 %rd1, [x];
  .loc 1 3 5, function_name $L__info_string1, inlined_at 1 7 3
  cvta.to.global.u64 %rd2, %rd1;
  .loc {file} 20 9, function_name $L__info_string0, inlined_at 1 3 5
  ld.global.u32 %r1, [%rd2+64];
  ret;
}}
.file 1 "/home/me/kernel.cu"
.file 2 "/home/me/tools.cuh"
.file 3 "/opt/env/lib/python3.11/site-packages/nvidia/include/cuda/loads.h"
.section .debug_str {{
$L__info_string0:
.b8 95,90,78,52,99,117,100,97,52,108,111,97,100,73,105,69,69,105,80,75,105,0
$L__info_string1:
.b8 95,90,52,104,101,108,112,118,0
}}
"""


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (1, "at /home/me/kernel.cu:20, inlined at /home/me/kernel.cu:7 ("),
        (2, "at /home/me/kernel.cu:3, in load() of /home/me/tools.cuh:20, inlined at /home/me/kernel.cu:7 ("),
        (3, "at /home/me/kernel.cu:3, in load() of loads.h:20, inlined at /home/me/kernel.cu:7 ("),
    ],
)
def test_a_place_is_in_the_users_file(file, words):
    module = wb.load_ptx(INLINED.format(file=file), device="sim")
    (finding,) = wb.check_kernel(module.reads, grid=1, block=1, args=[np.zeros(16, np.int32)])
    assert words in finding.message
    assert finding.buffer == "x"


# An index in 32 bits, which wraps for the third block, and an unsigned one that goes below 0 in the first thread.
INDICES = """
__global__ void rows(float *y, int stride) {
  int first = 2 * blockIdx.x * stride, t = threadIdx.x;
  y[first + t] = 1;
}
__global__ void wide(float *y, int stride) {
  long long first = 2ll * blockIdx.x * stride;
  y[first + threadIdx.x] = 1;
}
__global__ void before(float *y, const float *x) {
  unsigned i = threadIdx.x;
  y[i] = x[i - 1u];
}
__global__ void negative(float *y, const float *x) {
  int i = threadIdx.x;
  y[i] = x[i - 1];
}
"""


@pytest.mark.parametrize(
    ("name", "numbers", "words"),
    [
        (
            "rows",
            [1_500_000_000],
            r"element -1,294,967,296, .* at \S+source.cu:[34], which has wrapped: 3,0",
        ),
        ("wide", [1_500_000_000], ""),
        (
            "before",
            [np.zeros(32, "f")],
            r"element 4,294,967,295, .* at \S+source.cu:12, which is -1 without",
        ),
        ("negative", [np.zeros(32, "f")], ""),
    ],
)
def test_an_index_that_wrapped_is_named_with_its_line(name, numbers, words):
    module = wb.load_cuda(INDICES, device="sim")
    report = wb.check_kernel(module[name], grid=2, block=32, args=[np.zeros(32, "f"), *numbers])
    assert "out-of-bounds" in {finding.kind for finding in report}
    said = "\n".join(finding.message for finding in report)
    assert re.search(words, said)
    assert bool(words) == ("Compute it in 64 bits" in said)
