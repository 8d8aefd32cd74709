"""Two kernels that are mostly blocks and barriers: many small blocks that add, and a loop of barriers."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from workbench import ptx
from workbench.errors import WrongResultError
from workbench.toolchain.cuda import compile_cuda

BLOCKS, THREADS, WAITING_THREADS, STEPS = 16_384, 64, 1024, 500

SOURCE = r"""
extern "C" __global__ void add(float *y, const float *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] += x[i];
}
extern "C" __global__ void meet(float *y, int steps) {
    __shared__ float kept[1024];
    float sum = 0;
    for (int step = 0; step < steps; ++step) {
        kept[threadIdx.x] = step;
        __syncthreads();
        sum += kept[threadIdx.x ^ 33];
        __syncthreads();
    }
    y[threadIdx.x] = sum;
}
"""


def measure(repeats: int) -> Iterator[tuple[str, bool, float]]:
    """Yield (title, with checks, least seconds of a block or of a barrier) on one core."""
    program = ptx.Program.from_text(compile_cuda(SOURCE, "add").ptx)
    x, y = torch.ones(BLOCKS * THREADS), torch.zeros(BLOCKS * THREADS)
    met, total = torch.zeros(WAITING_THREADS), STEPS * (STEPS - 1) / 2
    for checks in (False, True):
        options = {"threads": 1, "checks": checks}
        adds = [program["add"].launch(BLOCKS, THREADS, [y, x], **options) for _ in range(repeats)]
        meets = [program["meet"].launch(1, WAITING_THREADS, [met, STEPS], **options) for _ in range(repeats)]
        if not bool((met == total).all()):
            raise WrongResultError(f"a loop of barriers gives {met[0]}, not {total}")
        yield f"block of {THREADS} threads that adds", checks, min(one.seconds for one in adds) / BLOCKS
        what = f"barrier of {WAITING_THREADS:,} threads, with 2 accesses to shared memory"
        yield what, checks, min(one.seconds for one in meets) / (2 * STEPS)
    if not bool((y == 2 * repeats).all()):
        raise WrongResultError(f"{2 * repeats} launches that add 1 give {y.unique().tolist()}")
