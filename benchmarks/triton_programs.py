"""A matrix product and a softmax launched by Triton itself: under TRITON_INTERPRET=1, or else on the PTX machine.

Run it as a process of its own, because Triton reads that variable when it is imported. It prints the fastest seconds of
each as JSON, without compilation.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import torch
import triton
import triton.language as tl

import workbench as wb
from workbench.tuning.bench.results import timed

SIZE, ROWS, COLS = 256, 512, 781
_INTERPRETED_REPEATS = 2
_SMALL_LAUNCHES = 200


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute a tile of an M x N product with K terms."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, K, BLOCK_K):
        a_tile = tl.load(a + rows[:, None] * K + (first + inner)[None, :])
        b_tile = tl.load(b + (first + inner)[:, None] * N + cols[None, :])
        total = tl.dot(a_tile, b_tile, total)
    tl.store(c + rows[:, None] * N + cols[None, :], total.to(tl.float16))


@triton.jit
def softmax_kernel(out, x, cols, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute the softmax of a row."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + at, mask=at < cols, other=-float("inf"))
    numerator = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * cols + at, numerator / tl.sum(numerator, axis=0), mask=at < cols)


@triton.jit
def one_kernel(out):  # type: ignore[no-untyped-def]
    """Store a 1: the smallest launch."""
    tl.store(out, 1.0)


ONE = 'extern "C" __global__ void one(float *out) { if (threadIdx.x == 0) *out = 1.0f; }'


def main() -> None:
    """Print the seconds of each program by its name; on the machine also "small Triton launch", "small CUDA launch".

    The command's argument is the number of runs of each program there.
    """
    torch.manual_seed(0)
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not interpreted:
        wb.simulated_triton(force=True)
    repeats = _INTERPRETED_REPEATS if interpreted else int(sys.argv[1])
    found = {
        f"matmul {SIZE} x {SIZE} x {SIZE}": _best(_matmul(), repeats),
        f"softmax {ROWS} x {COLS}": _best(_softmax(), repeats),
    }
    if not interpreted:
        out = torch.zeros(1)
        cuda = wb.load_cuda(ONE, device="sim")
        found["small Triton launch"] = _best(lambda: one_kernel[(1,)](out), _SMALL_LAUNCHES)
        found["small CUDA launch"] = _best(lambda: cuda.one(1, 128, out), _SMALL_LAUNCHES)
    print(json.dumps(found))


def _matmul() -> Callable[[], None]:
    a, b = (torch.rand(SIZE, SIZE, dtype=torch.float16) - 0.5 for _ in range(2))
    c = torch.empty_like(a)

    def work() -> None:
        matmul_kernel[(SIZE // 64, SIZE // 64)](a, b, c, SIZE, SIZE, SIZE, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)

    work()
    torch.testing.assert_close(c, (a.float() @ b.float()).half(), atol=1e-2, rtol=1e-2)
    return work


def _softmax() -> Callable[[], None]:
    x = torch.randn(ROWS, COLS)
    out = torch.empty_like(x)

    def work() -> None:
        softmax_kernel[(ROWS,)](out, x, COLS, BLOCK=triton.next_power_of_2(COLS))

    work()
    torch.testing.assert_close(out, torch.softmax(x, dim=1))
    return work


def _best(work: Callable[[], object], repeats: int) -> float:
    """Return the fastest of ``repeats`` runs in seconds, after a first run that compiles."""
    work()
    return min(timed(work) for _ in range(repeats))


if __name__ == "__main__":
    main()
