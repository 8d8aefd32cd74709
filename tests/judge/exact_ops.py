"""A row softmax in float16 with three right variants: the formula, one with a small term too much, one with `expf`.

Exact comparison knows what libdevice makes of `expf`.
"""

from __future__ import annotations

import torch

import workbench as wb

_SOURCE = r"""
#include <cuda_fp16.h>
extern "C" __global__ void row_softmax(__half* out, const __half* x, int n) {
  const int row = blockIdx.x, lane = threadIdx.x;
  float most = -INFINITY, sum = 0;
  for (int i = lane; i < n; i += 32) most = fmaxf(most, __half2float(x[row * n + i]));
  for (int apart = 16; apart; apart /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, apart));
  for (int i = lane; i < n; i += 32) sum += EXP(__half2float(x[row * n + i]) - most);
  for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
  for (int i = lane; i < n; i += 32)
    out[row * n + i] = __float2half(EXP(__half2float(x[row * n + i]) - most) / (sum EPS));
}
"""


@wb.op(name="exact_softmax")
def row_softmax(x):
    return torch.softmax(x, -1)


row_softmax.case("short", x=wb.randn(3, 70, dtype="float16"))


def _add(name: str, power: str, eps: str = "") -> None:
    row_softmax.cuda(
        _SOURCE.replace("EXP", power).replace("EPS", eps), name=name, kernel="row_softmax", grid="x.shape[0]", block=32,
        args=("out", "x", "x.shape[1]"),
    )  # fmt: skip


_add("same", "__expf")
_add("eps", "__expf", "+ 1e-6f")
_add("library", "expf")
