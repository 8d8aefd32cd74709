"""Ops in float16 whose variants have one fault each that the judge's tolerance lets pass."""

from __future__ import annotations

import torch

import workbench as wb

_SOURCE = r"""
#include <cuda_fp16.h>
__device__ float total(float x) {
  for (int apart = 16; apart; apart /= 2) x += __shfl_xor_sync(~0u, x, apart);
  return x;
}

extern "C" __global__ void softmax(__half* out, const __half* x, int n) {
  const int row = blockIdx.x, lane = threadIdx.x;
  const float log2e = 1.4426950408889634f;
  float most = -INFINITY, sum = 0;
  for (int i = lane; i < n; i += 32) most = fmaxf(most, __half2float(x[row * n + i]));
  for (int apart = 16; apart; apart /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, apart));
  for (int i = lane; i < n; i += 32) sum += exp2f((__half2float(x[row * n + i]) - most) * log2e);
  sum = total(sum);
  for (int i = lane; i < n; i += 32)
    out[row * n + i] = __float2half(exp2f((__half2float(x[row * n + i]) - most) * log2e) / sum);
}

extern "C" __global__ void rms_norm(__half* out, const __half* x, const __half* weight, int n, float eps) {
  const int row = blockIdx.x, lane = threadIdx.x;
  float sum = 0;
  for (int i = lane; i < n; i += 32) {
    const float value = __half2float(x[row * n + i]);
    sum += value * value;
  }
  const float scale = rsqrtf(total(sum) / n + eps);
  for (int i = lane; i < n; i += 32)
    out[row * n + i] = __float2half(__half2float(x[row * n + i]) * scale * __half2float(weight[i]));
}

extern "C" __global__ void gelu(__half* out, const __half* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float value = __half2float(x[i]);
  float inner = 0.7978845608028654f * (value + 0.044715f * value * value * value);
  asm("tanh.approx.f32 %0, %0;" : "+f"(inner));
  out[i] = __float2half(0.5f * value * (1 + inner));
}

extern "C" __global__ void linear(__half* out, const __half* a, const __half* b, const __half* bias, int n, int k) {
  const int row = blockIdx.x, column = threadIdx.x;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += __half2float(a[row * k + i]) * __half2float(b[i * n + column]);
  out[row * n + column] = __float2half(sum + __half2float(bias[column]));
}
"""


_HEAD, *_KERNELS = _SOURCE.split('extern "C" __global__ ')


def _add(op, kernel: str, faults: dict[str, tuple[str, str]], **launch) -> None:
    """Add a variant for the right kernel and for each fault; all are in one text, which is compiled once."""
    [right_text] = [one for one in _KERNELS if one.startswith(f"void {kernel}(")]
    texts = []
    for name, (right, wrong) in {"right": ("", ""), **faults}.items():
        assert right in right_text
        texts.append(right_text.replace(right, wrong, 1).replace(kernel, f"{kernel}_{name}", 1))
    whole = _HEAD + "\n".join(f'extern "C" __global__ {one}' for one in texts)
    for name in ("right", *faults):
        op.cuda(whole, name=name, kernel=f"{kernel}_{name}", **launch)


@wb.op
def softmax(x):
    return torch.softmax(x, -1)


softmax.case("rows", x=wb.rand("rows", "columns", dtype="float16"), rows=2, columns=600)
_add(
    softmax, "softmax",
    {
        "last_left_out": ("i < n; i += 32) sum", "i < n - 1; i += 32) sum"),
        "one_twice": (
            "sum = total(sum);",
            "if (lane == 7) sum += exp2f((__half2float(x[row * n + 300]) - most) * log2e); sum = total(sum);",
        ),
        "eps": ("log2e) / sum", "log2e) / (sum + 1e-6f)"),
        "short_constant": ("1.4426950408889634f", "1.4426f"),
    },
    grid="x.shape[0]", block=32, args=("out", "x", "x.shape[1]"),
)  # fmt: skip


@wb.op
def rms_norm(x, weight):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-5)


rms_norm.case(
    "rows", x=wb.randn("rows", "columns", dtype="float16"), weight=wb.randn("columns", dtype="float16"), rows=2,
    columns=1000,
)  # fmt: skip
_add(
    rms_norm, "rms_norm",
    {
        "no_eps": ("/ n + eps", "/ n"),
        "one_too_heavy": ("sum += value * value;", "sum += value * value * (i == 3 ? 1.001f : 1.f);"),
        "n_minus_1": ("/ n + eps", "/ (n - 1) + eps"),
        "another_row": ("x[row * n + i]);\n    sum", "x[i == 215 ? i : row * n + i]);\n    sum"),
    },
    grid="x.shape[0]", block=32, args=("out", "x", "weight", "x.shape[1]", 1e-5),
)  # fmt: skip


@wb.op
def gelu(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


gelu.case("short", x=wb.randn("n", dtype="float16"), n=60)
_add(
    gelu, "gelu",
    {"short_constant": ("0.044715f", "0.0447f"), "scaled": ("0.5f * value", "0.50025f * value")},
    grid="cdiv(x.shape[0], 64)", block=64, args=("out", "x", "x.shape[0]"),
)  # fmt: skip


@wb.op
def linear(a, b, bias):
    return a @ b + bias


linear.case(
    "small", a=wb.randn("m", "k", dtype="float16"), b=wb.randn("k", "n", dtype="float16"),
    bias=wb.randn("n", dtype="float16"), m=3, n=32, k=128,
)  # fmt: skip
_add(
    linear, "linear",
    {
        "term_too_heavy": (
            "float sum = 0",
            "float sum = 0.001f * __half2float(a[row * k + 40]) * __half2float(b[40 * n + column])",
        ),
        "bias_scaled": ("sum + __half2float(bias[column])", "sum + 1.001f * __half2float(bias[column])"),
    },
    grid="a.shape[0]", block="b.shape[1]", args=("out", "a", "b", "bias", "b.shape[1]", "a.shape[1]"),
)  # fmt: skip
