"""Ops of one's own for the tests of export: softmax in both languages, and what else may be declared."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import workbench as wb

SOFTMAX = r"""
#include <cuda_fp16.h>
#include <cstdint>
extern "C" __global__ void softmax_rows(__half *out, const __half *x, int cols) {
    __shared__ float partial[NUM_THREADS / 32];
    const __half *row = x + (size_t)blockIdx.x * cols;
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += NUM_THREADS) sum += __expf(__half2float(row[c]));
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < NUM_THREADS / 32; ++w) sum += partial[w];
    for (int c = threadIdx.x; c < cols; c += NUM_THREADS)
        out[(size_t)blockIdx.x * cols + c] = __float2half(__expf(__half2float(row[c])) / sum);
}
"""


@wb.op(name="exported_softmax")
def row_softmax(x):
    """Softmax of each row."""
    return torch.softmax(x, dim=-1)


row_softmax.case("small", x=wb.randn(6, 70, dtype="float16"))
row_softmax.case("wide", x=wb.randn(2, "cols", dtype="float16"), cols=300)
row_softmax.cuda(
    SOFTMAX,
    tune={"NUM_THREADS": (32, 64)},
    where=["NUM_THREADS <= cols"],
    sizes=lambda x: {"rows": x.shape[0], "cols": x.shape[1]},
    grid="rows",
    block="NUM_THREADS",
    args=("out", "x", "cols"),
)


@triton.jit
def exponential(x):
    return tl.exp(x)


@triton.autotune(configs=[triton.Config({"BLOCK": 128}, num_warps=1), triton.Config({"BLOCK": 512})], key=["cols"])
@triton.jit
def softmax_kernel(out, x, x_stride, out_stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * x_stride + at, mask=at < cols, other=-float("inf")).to(tl.float32)
    e = exponential(v - tl.max(v, 0))
    tl.store(out + row * out_stride + at, e / tl.sum(e, 0), mask=at < cols)


row_softmax.triton(
    softmax_kernel,
    where="BLOCK >= cols",
    sizes=lambda x: dict(rows=x.shape[0], cols=x.shape[1]),  # noqa: C408
    grid="rows",
    args=("out", "x", "x.stride(0)", "out.stride(0)", "cols"),
)

SPLIT = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <typename T, int STEP>
__global__ void split(T *low, T *high, const T *x, int n, float factor) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i * STEP < n) {
        low[i] = (float)x[i] * factor < 0 ? x[i] : (T)0.f;
        high[i] = (float)x[i] * factor < 0 ? (T)0.f : x[i];
    }
}
"""


def split_backward(grad_low, grad_high, low, high, x, factor):
    return torch.where(x * factor < 0, grad_low, grad_high)


@wb.op(outputs=("low", "high"), backward=split_backward)
def split_signs(x, factor=1.0):
    return torch.where(x * factor < 0, x, 0), torch.where(x * factor < 0, 0, x)


split_signs.case("half", x=wb.randn(5, 33, dtype="bfloat16"), factor=2.0)
split_signs.case("single", x=lambda generator, n: torch.randn(n, generator=generator) + 0.5, factor=-1.0, n=65)
split_signs.cuda(
    SPLIT,
    kernel="split<ctype(x), 1>",
    tune={"BLOCK": (32, 64)},
    where=lambda x, BLOCK: x.dtype in ("bfloat16", "float32") and BLOCK > 0,
    grid=lambda x, BLOCK: -(-x.numel() // BLOCK),
    block="BLOCK",
    args={"n": "x.numel()"},
)

CENTRE = r"""
extern "C" __global__ void sums(float *partial, const float *x, int cols) {
    extern __shared__ float row[];
    row[threadIdx.x] = threadIdx.x < cols ? x[blockIdx.x * cols + threadIdx.x] : 0.f;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int c = 0; c < cols; ++c) sum += row[c];
        partial[blockIdx.x] = sum;
    }
}
__constant__ float weights[4];
extern "C" __global__ void subtract(float *x, const float *partial, int cols) {
    int i = blockIdx.x * cols + threadIdx.x;
    if (threadIdx.x < cols) x[i] = (x[i] - partial[blockIdx.x] / cols) * weights[blockIdx.x % 4];
}
"""


def padded(cols):
    return -(-cols // 32) * 32


@wb.op(in_place=("x",))
def centre(x, weights):
    x -= x.mean(1, keepdim=True)
    x *= weights.to(x.dtype).repeat(-(-len(x) // 4))[: len(x), None]


centre.case("rows", x=wb.randn(5, 40, mean=3.0), weights=wb.rand(4, low=1.0, high=2.0))
centre.cuda(
    CENTRE,
    kernel="sums",
    name="two_kernels",
    sizes=lambda x: {"rows": x.shape[0], "cols": x.shape[1]},
    grid="rows",
    block=padded,
    shared_bytes=lambda cols: 4 * padded(cols),
    workspace={"partial": wb.full(0, "rows")},
    constants={"weights": "weights"},
    then=[wb.step("subtract", grid="rows", block="next_power_of_2(cols)", args={"x": "x"})],
    where=["cols <= 1024"],
)


@triton.jit
def scale_kernel(out, x, partial, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(partial + tl.program_id(0), tl.max(tl.abs(value), 0))
    tl.store(out + at, value, mask=at < n)


@triton.jit
def divide_kernel(out, partial, n, blocks, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    parts = tl.arange(0, PARTS)
    largest = tl.max(tl.load(partial + parts, mask=parts < blocks, other=0.0), 0)
    tl.store(out + at, tl.load(out + at, mask=at < n) / largest, mask=at < n)


@triton.jit
def tile_of(x, rows, cols, BLOCK: tl.constexpr):
    return tl.make_tensor_descriptor(x, [rows, cols], [cols, 1], [BLOCK, BLOCK])


@triton.jit
def descriptors_kernel(out, x, rows, cols, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    tile = tile_of(x, rows, cols, BLOCK).load([row, column])
    tile_of(out, rows, cols, BLOCK).store([row, column], tile + tile)


@wb.op
def doubled(x):
    return x + x


doubled.case("odd", x=wb.randn(20, 36))
doubled.triton(
    descriptors_kernel,
    tune={"BLOCK": (16,)},
    sizes=lambda x: {"rows": x.shape[0], "cols": x.shape[1]},
    grid=("cdiv(rows, BLOCK)", "cdiv(cols, BLOCK)"),
)


@wb.op
def normalised(x):
    return x / x.abs().max()


normalised.case("odd", x=wb.randn(300))
normalised.triton(
    scale_kernel,
    tune={"BLOCK": (128, 256)},
    default={"BLOCK": 256},
    sizes=lambda x: {"n": x.numel()},
    grid="cdiv(n, BLOCK)",
    workspace={"partial": wb.full(0, "cdiv(n, BLOCK)")},
    then=[
        wb.step(
            divide_kernel,
            grid="cdiv(n, BLOCK)",
            args={"blocks": "cdiv(n, BLOCK)"},
            constexprs={"PARTS": "next_power_of_2(cdiv(n, BLOCK))"},
            num_warps=2,
        )
    ],
)
