"""Throughput of the judge: candidates for a softmax per hour, each with a source that was never compiled before.

Run as a program, it judges its share on one core and prints seconds and verdicts as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import torch

import workbench as wb
from workbench.judge import Judge
from workbench.ops.op import Op

SOURCE = r"""
#include <cuda_fp16.h>
extern "C" __global__ void row_softmax(__half *out, const __half *x, int cols) {
    __shared__ float partial[NUM_THREADS / 32];
    const __half *row = x + (size_t)blockIdx.x * cols;
    float m = SMALLEST;
    for (int c = threadIdx.x; c < cols; c += NUM_THREADS) m = fmaxf(m, __half2float(row[c]));
    for (int o = 16; o; o /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = m;
    __syncthreads();
    for (int w = 0; w < NUM_THREADS / 32; ++w) m = fmaxf(m, partial[w]);
    __syncthreads();
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += NUM_THREADS) sum += __expf(__half2float(row[c]) - m);
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < NUM_THREADS / 32; ++w) sum += partial[w];
    for (int c = threadIdx.x; c < cols; c += NUM_THREADS)
        out[(size_t)blockIdx.x * cols + c] = __float2half(__expf(__half2float(row[c]) - m) / sum);
}
"""


def row_softmax(x: torch.Tensor) -> torch.Tensor:
    """Compute the reference."""
    return torch.softmax(x, dim=-1)


def candidate(number: int) -> str:
    """Return a kernel source that is different for every number; every fourth is wrong."""
    source = SOURCE.replace("SMALLEST", f"-{30_000 + number}.f")
    return source.replace("float sum = 0;", "float sum = 0.5f;") if number % 4 == 3 else source


def softmax_op() -> Op:
    """Return the op that the candidates are for."""
    op = wb.op(row_softmax)
    op.case("small", x=wb.randn(64, 781, dtype="float16"))
    op.case("wide", x=wb.randn(16, 8192, dtype="float16"))
    op.cuda(
        candidate(0),
        kernel="row_softmax",
        tune={"NUM_THREADS": (128,)},
        sizes=lambda x: {"rows": x.shape[0], "cols": x.shape[1]},
        grid="rows",
        block="NUM_THREADS",
        args=("out", "x", "cols"),
    )
    return op


def judge(first: int, count: int) -> dict:
    """Judge ``count`` candidates in this process; return the seconds and the number of right verdicts."""
    with Judge(softmax_op()) as made:
        made.check(candidate(first + count))  # untimed: it starts the judge's processes
        started, right = time.perf_counter(), 0
        for number in range(first, first + count):
            right += made.check(candidate(number)).ok is (number % 4 != 3)
        return {"seconds": time.perf_counter() - started, "count": count, "right": right}


if __name__ == "__main__":
    print(json.dumps(judge(int(sys.argv[1]), int(sys.argv[2]))))
