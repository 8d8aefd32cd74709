"""A real kernel of about 7,000 PTX instructions: scores of FP8 keys for a GPU that converts FP8 in software.

Before sm_89, converting one E4M3 number takes about forty instructions and six branches, and the loop over a row is
unrolled.
"""

from __future__ import annotations

from workbench.toolchain import compile_cuda

ELEMENTS = 170  # elements of a row; each adds about 41 instructions

_SOURCE = """
#include <cuda_fp16.h>
#include <cuda_fp8.h>

// out[token] = scale * <query, key[token]>: query fp16 [ELEMENTS], key e4m3 [tokens, ELEMENTS], out fp32 [tokens].
extern "C" __global__ void fp8_scores(
    float* out, const __half* query, const __nv_fp8_e4m3* key, int tokens, float scale)
{
    const int token = blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= tokens) return;
    const __nv_fp8_e4m3* row = key + (long long)token * ELEMENTS;
    float score = 0.0f;
#pragma unroll
    for (int i = 0; i < ELEMENTS; ++i) score += float(row[i]) * __half2float(query[i]);
    out[token] = score * scale;
}
"""


def ptx_text() -> str:
    """Return the PTX of the kernel, which NVRTC compiles for sm_80."""
    return compile_cuda(_SOURCE, "fp8_scores", arch="sm_80", macros={"ELEMENTS": ELEMENTS}).ptx
