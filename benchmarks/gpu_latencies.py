"""Latencies and throughputs of one multiprocessor in cycles, by `clock64`.

    python benchmarks/gpu_latencies.py > latencies.jsonl

Needs a GPU; `--device sim --rounds 1` only shows that the programs run. Each line has the `cycles` of an operation:
64 of them unrolled in a loop, repeated three times, the third time measured by thread 0 of a single block.
"""

from __future__ import annotations

import argparse
import json
import warnings

import torch

import workbench as wb
from workbench.errors import UncheckedTypeWarning

SOURCE = r"""
#define MMA(c) asm volatile( \
  "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};" \
  : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(half))

#define TIMED(name, declarations, operation, sink) \
extern "C" __global__ void name(long long* cycles, float* out, const float4* source, int rounds) { \
  __shared__ __align__(16) unsigned s[8192]; \
  const unsigned tid = threadIdx.x; \
  for (unsigned i = tid; i < 8192; i += blockDim.x) s[i] = 0; \
  const unsigned base = (unsigned)__cvta_generic_to_shared(s); \
  declarations; \
  long long begun = 0; \
  for (int repetition = 0; repetition < 3; ++repetition) { \
    __syncthreads(); \
    begun = clock64(); \
    for (int round = 0; round < rounds; ++round) { \
      _Pragma("unroll") \
      for (int i = 0; i < 64; ++i) { operation; } \
    } \
    __syncthreads(); \
    if (tid == 0) *cycles = clock64() - begun; \
  } \
  out[tid] = (float)(sink) + base + s[tid]; \
}

TIMED(ffma_chain, float x = tid; float y = out[0], x = fmaf(x, y, y), x)
TIMED(ffma_4, float x[4] = {}; float y = out[0],
      x[0] = fmaf(x[0], y, y); x[1] = fmaf(x[1], y, y); x[2] = fmaf(x[2], y, y); x[3] = fmaf(x[3], y, y),
      x[0] + x[1] + x[2] + x[3])
TIMED(dfma_chain, double x = tid; double y = out[0], x = fma(x, y, y), x)
TIMED(ex2_chain, float x = tid, asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x)), x)
TIMED(shfl_chain, unsigned x = tid, x = __shfl_xor_sync(~0u, x, 1), x)
TIMED(barrier, , __syncthreads(), 0)
TIMED(lds_chain, unsigned x = tid, x = s[x & 4095] + tid, x)
TIMED(ldmatrix_chain, unsigned p = base + 16 * tid; unsigned r0; unsigned r1; unsigned r2; unsigned r3,
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(p)); p += r0 & 15, p)
TIMED(mma_chain, float c[4] = {}; unsigned half = tid, MMA(c), c[0])
TIMED(mma_4, float c[4][4] = {}; unsigned half = tid, MMA(c[i & 3]), c[0][0] + c[1][0] + c[2][0] + c[3][0])
TIMED(cpasync_wait, , asm volatile("cp.async.cg.shared.global [%0], [%1], 16; cp.async.wait_all;"
      :: "r"(base + 16 * tid), "l"(source + tid) : "memory"), 0)
"""
OPERATIONS = (
    "ffma_chain", "ffma_4", "dfma_chain", "ex2_chain", "shfl_chain", "barrier", "lds_chain",
    "ldmatrix_chain", "mma_chain", "mma_4", "cpasync_wait",
)  # fmt: skip
THREADS = (32, 128, 256, 512, 1024)
UNROLLED = 64


def main() -> None:
    """Print the cycles of every operation for every number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "sim"), default="cuda")
    parser.add_argument("--rounds", type=int, default=64, help="rounds of the loop of 64 operations")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UncheckedTypeWarning)  # the parameters are spelled out in a macro
    kernels = wb.load_cuda(SOURCE, arch="sm_90", device=given.device)
    where = "cuda" if given.device == "cuda" else "cpu"
    cycles = torch.zeros(1, dtype=torch.int64, device=where)
    out = torch.zeros(max(THREADS), device=where)
    source = torch.zeros(4 * max(THREADS), device=where)
    for name in OPERATIONS:
        for threads in THREADS:
            getattr(kernels, name)(1, threads, cycles, out, source, given.rounds)
            per_operation = int(cycles) / (given.rounds * UNROLLED)
            print(json.dumps({"name": name, "threads": threads, "cycles": round(per_operation, 3)}), flush=True)


if __name__ == "__main__":
    main()
