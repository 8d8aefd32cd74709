"""Ops of one's own, with kernels in both languages, right and with a slip."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import workbench as wb

SOURCE = """
extern "C" __global__ void scaled(float* out, const float* x, const float* w, int rows, int cols) {
  int c = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.y;
  if (c COMPARED cols) out[r * cols + c] = x[r * cols + c] * w[c];
}
"""


@wb.op
def scaled(x, w):
    return x * w


scaled.case("small", x=wb.randn("rows", "cols"), w=wb.randn("cols"), rows=3, cols=70)
SIZES = {
    "grid": ("cdiv(cols, THREADS)", "rows"), "block": "THREADS", "tune": {"THREADS": (64, 128)},
    "sizes": lambda x: {"rows": x.shape[0], "cols": x.shape[1]},
}  # fmt: skip
scaled.cuda(SOURCE, name="right", macros={"COMPARED": "<"}, **SIZES)
scaled.cuda(SOURCE, name="one_too_many", macros={"COMPARED": "<="}, **SIZES)


@triton.jit
def scaled_rows(x, w, out, cols, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < cols if MASKED else at < cols + 1
        value = tl.load(x + row * cols + at, mask=mask, other=0.0) * tl.load(w + at, mask=mask, other=0.0)
        tl.store(out + row * cols + at, value, mask=mask)


ROWS = {"grid": "x.shape[0]", "args": {"cols": "x.shape[1]"}, "tune": {"BLOCK": (256,)}}
scaled.triton(scaled_rows, name="triton", constexprs={"MASKED": True}, **ROWS)
scaled.triton(scaled_rows, name="triton_wide", constexprs={"MASKED": False}, **ROWS)


@wb.op
def product(x, y):
    return x.double() @ y.double() if x.dtype == torch.float64 else x @ y


product.case("small", x=wb.randn(32, 48), y=wb.randn(48, 64))
product.cuda(
    """extern "C" __global__ void product(float* out, const float* x, const float* y, int m, int n, int k) {
      int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 4 + threadIdx.y;
      float sum = 0.f;
      if (r < m && c < n) {
        for (int i = 0; i < k; ++i) sum += x[r * k + i] * y[i * n + c];
        out[r * n + c] = sum;
      }
    }""",
    grid=("cdiv(n, 32)", "cdiv(m, 4)"),
    block=(32, 4),
    sizes=lambda x, y: {"m": x.shape[0], "k": x.shape[1], "n": y.shape[1]},
)


@wb.op(facts={"index": "0 <= v < x.shape[0]"})
def picked(x, index):
    return x[index.long()]


def some_rows(rows, picks, generator):
    return torch.randint(0, rows, (picks,), generator=generator, dtype=torch.int32)


picked.case("small", x=wb.randn("rows", "cols"), index=some_rows, rows=5, picks=3, cols=70)
picked.cuda(
    """extern "C" __global__ void picked(float* out, const float* x, const int* index, int cols) {
      int c = blockIdx.x * 64 + threadIdx.x;
      if (c < cols) out[(long long)blockIdx.y * cols + c] = x[(long long)index[blockIdx.y] * cols + c];
    }""",
    grid=("cdiv(cols, 64)", "index.shape[0]"),
    block=64,
    sizes=lambda x: {"cols": x.shape[1]},
)


@triton.jit
def rows_by_copies(x, y, out, m, n, k, TILE: tl.constexpr):
    rows, cols = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, k, TILE):
        at = start + tl.arange(0, TILE)
        left = tl.load(x + rows[:, None] * k + at[None, :], mask=(rows[:, None] < m) & (at[None, :] < k), other=0.0)
        right = tl.load(y + at[:, None] * n + cols[None, :], mask=(at[:, None] < k) & (cols[None, :] < n), other=0.0)
        total += tl.dot(left, right)
    tl.store(out + rows[:, None] * n + cols[None, :], total, mask=(rows[:, None] < m) & (cols[None, :] < n))


product.triton(
    rows_by_copies,
    name="triton_ring",
    grid=("cdiv(x.shape[0], TILE)", "cdiv(y.shape[1], TILE)"),
    args={"m": "x.shape[0]", "n": "y.shape[1]", "k": "x.shape[1]"},
    tune={"TILE": (16,)},
)
