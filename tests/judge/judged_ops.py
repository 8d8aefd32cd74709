"""The ops of the judge's tests; the row softmax has one CUDA variant, whose source the candidates replace."""

from __future__ import annotations

import torch
import triton
from triton import language as tl

import workbench as wb

NUM_ROWS, NUM_COLS = 3, 70

SOFTMAX = r"""
extern "C" __global__ void row_softmax(float *out, const float *x, int cols) {
    extern __shared__ float unused[];
    const float *row = x + blockIdx.x * cols;
    float m = -1e30f, sum = 0;
    for (int c = 0; c < cols; ++c) m = fmaxf(m, row[c]);
    for (int c = 0; c < cols; ++c) sum += __expf(row[c] - m);
    for (int c = threadIdx.x; c < cols; c += NUM_THREADS) out[blockIdx.x * cols + c] = __expf(row[c] - m) / sum;
}
"""
"""Slow and right: every thread reduces the whole row."""


@wb.op(name="judged_softmax")
def row_softmax(x):
    return torch.softmax(x, dim=-1)


row_softmax.case("first", x=wb.randn(NUM_ROWS, NUM_COLS))
row_softmax.case("odd", x=wb.randn(2, 33))
row_softmax.cuda(
    SOFTMAX,
    tune={"NUM_THREADS": (64, 128)},
    sizes=lambda x: {"rows": x.shape[0], "cols": x.shape[1]},
    grid="rows",
    block="NUM_THREADS",
    shared_bytes="4 * cols",
    args=("out", "x", "cols"),
)


@wb.op(in_place=("x",), name="shift_in_place")
def shift_in_place(x, weights):
    x += weights


shift_in_place.case("small", x=wb.randn(4, 8), weights=wb.randn(8))
shift_in_place.cuda(
    r"""
__constant__ float held[8];
extern "C" __global__ void shift(float *x) { x[blockIdx.x * 8 + threadIdx.x] += held[threadIdx.x]; }
""",
    grid="x.shape[0]",
    block=8,
    constants={"held": "weights"},
)

COUNT = r"""
extern "C" __global__ void clear(int *out) { out[threadIdx.x] = 0; }
extern "C" __global__ void count(int *out, const int *x, int n) {
    for (int i = threadIdx.x; i < n; i += 32) atomicAdd(out + x[i], 1);
}
"""


@wb.op
def counted(x):
    return torch.bincount(x.long(), minlength=7).to(torch.int32) if x.device.type != "meta" else x.new_empty(7)


counted.case("small", x=wb.randint(0, 7, 90))
counted.cuda(
    COUNT,
    kernel="clear",
    name="count",
    grid=1,
    block=7,
    args=("out",),
    then=[wb.step("count", grid=1, block=32, args=("out", "x", "x.shape[0]"))],
)


TOTAL = r"""
extern "C" __global__ void total(float *out, const float *x, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i];
    *out = sum;
}
"""


@wb.op
def total(x):
    return x.sum()


total.case("small", x=wb.randn(90))
total.cuda(TOTAL, grid=1, block=1, args=("out", "x", "x.shape[0]"))


@triton.jit
def twice(out, x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at))


@wb.op
def doubled(x):
    return 2 * x


doubled.case("small", x=wb.randn(4, 64))
doubled.cuda(
    """extern "C" __global__ void by_cuda(float *out, const float *x) {
    out[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x] + x[blockIdx.x * 64 + threadIdx.x];
}""",
    grid="x.shape[0]",
    block=64,
    args=("out", "x"),
)
doubled.triton(twice, grid="x.shape[0]", args=("out", "x"), constexprs={"BLOCK": 64})
