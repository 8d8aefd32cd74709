"""Small ops of one's own, with what goes wrong in them."""

from __future__ import annotations

import triton
import triton.language as tl

import workbench as wb


@triton.jit
def twice(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def doubling(name: str, **more):
    """Twice its argument, in Triton."""

    @wb.op(name=f"own_{name}")
    def function(x):
        return 2 * x

    function.triton(twice, tune={"BLOCK": (128,)}, grid="cdiv(x.numel(), BLOCK)", args={"n": "x.numel()"}, **more)
    function.case("small", x=wb.randn(300))
    return function


def counting():
    """One more in place, in CUDA C++."""

    @wb.op(name="own_counting", in_place="x")
    def function(x):
        x += 1

    function.case("small", x=wb.randint(0, 9, 64))
    source = 'extern "C" __global__ void count(int *x) { x[threadIdx.x] += 1; }'
    function.cuda(source, grid=1, block="x.numel()")
    return function


def scaled_by_constants():
    """A vector times the product of two numbers in constant memory."""

    @wb.op(name="own_scaled_by_constants")
    def function(x, factors):
        return x * factors.prod()

    function.case("small", x=wb.randn(8), factors=wb.rand(2))
    source = """__constant__ float both[2];
    extern "C" __global__ void scale(float *out, const float *x)
    { out[threadIdx.x] = x[threadIdx.x] * both[0] * both[1]; }"""
    function.cuda(source, grid=1, block="x.numel()", constants={"both": "factors"})
    return function
