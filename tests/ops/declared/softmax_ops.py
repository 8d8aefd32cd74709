"""A row softmax as a user declares it: in a notebook, a script, a file for the command line."""

import torch
import triton
import triton.language as tl

import workbench as wb

SOURCE = r"""
#include <cuda_fp16.h>

__device__ float reduced(float value, bool sum, float *partial)
{
    for (int mask = 16; mask > 0; mask /= 2) {
        float other = __shfl_xor_sync(0xffffffff, value, mask);
        value = sum ? value + other : fmaxf(value, other);
    }
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    for (int warp = 0; warp < NUM_THREADS / 32; ++warp)
        value = warp == 0 ? partial[0] : sum ? value + partial[warp] : fmaxf(value, partial[warp]);
    __syncthreads();
    return value;
}

extern "C" __global__ void row_softmax(__half *out, const __half *x, int cols)
{
    __shared__ float partial[NUM_THREADS / 32];
    x += (size_t)blockIdx.x * cols, out += (size_t)blockIdx.x * cols;
    float most = -1e30f, sum = 0;
    for (int c = threadIdx.x * VEC; c < cols; c += NUM_THREADS * VEC)
        for (int v = 0; v < VEC; ++v) most = fmaxf(most, __half2float(x[c + v]));
    most = reduced(most, false, partial);
    for (int c = threadIdx.x * VEC; c < cols; c += NUM_THREADS * VEC)
        for (int v = 0; v < VEC; ++v) sum += expf(__half2float(x[c + v]) - most);
    sum = reduced(sum, true, partial);
    for (int c = threadIdx.x * VEC; c < cols; c += NUM_THREADS * VEC)
        for (int v = 0; v < VEC; ++v) out[c + v] = __float2half(expf(__half2float(x[c + v]) - most) / sum);
}
"""


@triton.jit
def row_softmax_kernel(out, x, x_stride, out_stride, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    scores = tl.load(x + row * x_stride + at, mask=at < cols, other=float("-inf")).to(tl.float32)
    weights = tl.exp(scores - tl.max(scores, 0))
    tl.store(out + row * out_stride + at, weights / tl.sum(weights, 0), mask=at < cols)


# -- the declaration: thirty lines at most ----------------------------------------------------------------------------


@wb.op
def row_softmax(x):
    return torch.softmax(x, dim=-1)


row_softmax.case("small", x=wb.randn(16, 780, dtype="float16"))
row_softmax.case("wide", x=wb.randn(2, 8192, dtype="float16"))


def sizes(x):
    return {"rows": x.shape[0], "cols": x.shape[1]}


row_softmax.cuda(
    SOURCE,
    tune={"NUM_THREADS": (64, 128, 256), "VEC": (1, 2, 4, 8)},
    where=["cols % VEC == 0", "NUM_THREADS <= 1024"],
    sizes=sizes,
    grid="rows",
    block="NUM_THREADS",
)
row_softmax.triton(
    row_softmax_kernel,
    tune={"BLOCK": (1024, 8192), "num_warps": (2, 4, 8)},
    where=["BLOCK >= cols", "BLOCK < 2 * max(cols, 1024)"],
    sizes=sizes,
    grid="rows",
    args=("out", "x", "x.stride(0)", "out.stride(0)", "cols"),
)

if __name__ == "__main__":
    print(wb.compare(row_softmax))
