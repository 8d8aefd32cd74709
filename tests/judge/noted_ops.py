"""Ops whose kernels the judge has something to say about beside a verdict: sums in float16, and in an open order."""

import torch

import workbench as wb

SUM = r"""
#include <cuda_fp16.h>
extern "C" __global__ void squares(float *out, const float *x, int n) {
  KIND sum = 0;
  for (int i = 0; i < n; ++i) sum += KIND(x[threadIdx.x * n + i] * x[threadIdx.x * n + i]);
  out[threadIdx.x] = float(sum);
}
"""
TOTAL = r"""
extern "C" __global__ void clear(float *out) { *out = 0; }
extern "C" __global__ void total(float *out, const float *x) { atomicAdd(out, x[blockIdx.x * 32 + threadIdx.x]); }
"""

squares = wb.op(lambda x: x.square().sum(-1), name="squares")
squares.case("rows", x=wb.randn(8, 96))
for kind in ("half", "float"):
    squares.cuda(SUM, macros={"KIND": kind}, grid=1, block=8, args=("out", "x", "x.shape[1]"), name=kind)

total = wb.op(lambda x: x.sum().reshape(1), name="total")
total.case("line", x=wb.randn(128))
total.case("ones", x=wb.randint(0, 9, 128, dtype=torch.float32))
total.cuda(
    TOTAL, kernel="clear", name="atomics", grid=1, block=1, args=("out",),
    then=[wb.step("total", grid=4, block=32, args=("out", "x"))],
)  # fmt: skip
