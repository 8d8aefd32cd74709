"""Sums that are kept in 16 bits, in PTX of NVRTC and of Triton; 16 bits that are no sum are none."""

from __future__ import annotations

import pytest
import triton
import triton.language as tl

from workbench.toolchain import compile_cuda, compile_triton
from workbench.toolchain.half_sums import half_sum

HEAD = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <mma.h>\nusing namespace nvcuda;\n"
KERNEL = 'extern "C" __global__ void k(float *o, const float *x, int n) { int i = threadIdx.x;\nBODY\n}'
SUMS = {
    "halves": "__half s = 0; for (; i < n; ++i) s = __hadd(s, __float2half(x[i])); o[0] = s;",
    "bfloats": "__nv_bfloat16 s = 0; for (; i < n; ++i) s = __hadd(s, __float2bfloat16(x[i])); o[0] = s;",
    "products": "__half2 s = {}; for (; i < n; ++i) { __half2 v = __float2half2_rn(x[i]); s = __hfma2(v, v, s); } "
    "o[0] = __low2float(s);",
    "rounded each time": "__half s = 0; for (; i < n; ++i) s = __float2half(__half2float(s) + x[i]); o[0] = s;",
    "in a warp": "__half s = x[i]; for (int at = 16; at; at /= 2) s += __shfl_xor_sync(~0u, s, at); o[0] = s;",
    "atomics": "atomicAdd((__half *)o, __float2half(x[i]));",
    "accumulators": "wmma::fragment<wmma::accumulator, 16, 16, 16, half> c; "
    "wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a; "
    "wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b; wmma::fill_fragment(a, x[0]); "
    "wmma::fill_fragment(b, x[1]); wmma::fill_fragment(c, 0); wmma::mma_sync(c, a, b, c); o[i] = c.x[0];",
}
NO_SUMS = {
    "half inputs": "float s = 0; for (; i < n; ++i) s += __half2float(__float2half(x[i])); o[0] = s;",
    "half results": "float s = 0; for (; i < n; ++i) s += x[i]; ((__half *)o)[0] = __float2half(s);",
    "one addition": "__half a = x[i], b = x[i + n]; o[i] = __half2float(__hadd(__hmul(a, b), a));",
    "a polynomial": "__half a = x[i], p = 0.5f; for (int j = 0; j < 8; ++j) p = __hfma(p, a, __half(0.25f)); o[i] = p;",
    "products alone": "__half p = 1; for (; i < n; ++i) p = __hmul(p, __float2half(x[i])); o[0] = p;",
}


def of_cuda(body, arch):
    return half_sum([compile_cuda(HEAD + KERNEL.replace("BODY", body), "k", arch=arch).ptx])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("what", SUMS)
def test_a_sum_in_16_bits_is_named_with_its_line(what, arch):
    said = of_cuda(SUMS[what], arch)
    kind, bits = ("bfloat16", 7) if what == "bfloats" else ("float16", 10)
    assert f"float32 is summed in {kind} at source.cu:6, which keeps {bits} of its 23 bits" in said


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("what", NO_SUMS)
def test_16_bits_that_are_no_sum_are_not(what, arch):
    assert of_cuda(NO_SUMS[what], arch) == ""


@triton.jit
def total(out, x, KIND: tl.constexpr, BLOCK: tl.constexpr):
    v = tl.load(x + tl.arange(0, BLOCK)).to(KIND)
    tl.store(out, tl.sum(v * v).to(tl.float32))


@triton.jit
def accumulated(out, x, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    s = tl.zeros((BLOCK,), KIND)
    for i in range(n):
        s += tl.load(x + i * BLOCK + at).to(KIND)
    tl.store(out + at, s.to(tl.float32))


@triton.jit
def product(out, x, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    v = tl.load(x + at).to(tl.float16)
    tl.store(out + at, tl.dot(v, v, out_dtype=KIND).to(tl.float32))


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (total, tl.float16, "float16"),
        (total, tl.float32, ""),
        (accumulated, tl.float16, "float16"),
        (accumulated, tl.bfloat16, "bfloat16"),
        (accumulated, tl.float32, ""),
        (product, tl.float16, "float16"),
        (product, tl.float32, ""),
    ],
)
def test_sums_of_triton(function, kind, said):
    signature = {"out": "*fp32", "x": "*fp32"} | ({"n": "i32"} if function is accumulated else {})
    found = half_sum([compile_triton(function, signature, {"KIND": kind, "BLOCK": 64}).ptx])
    assert found.startswith(f"float32 is summed in {said} at test_half_sums.py:") if said else found == ""
