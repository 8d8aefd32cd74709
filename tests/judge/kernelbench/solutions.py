"""Problems and solutions in KernelBench's format: honest ones, and cheats of published kinds with their outcomes."""

SCALE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        return torch.relu(x * self.weight)


batch_size = 4096
dim = 16384


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return [dim]
"""
MATMUL = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


M = 1024 * 2
K = 4096
N = 2048


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
"""
SOFTMAX = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


batch_size = 4096
input_shape = (8192,)


def get_inputs():
    return [torch.randn(batch_size, *input_shape)]


def get_init_inputs():
    return []
"""
PROBLEMS = {"scale": SCALE, "matmul": MATMUL, "softmax": SOFTMAX}

_IMPORTS = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""
_SCALE_KERNEL = """

@triton.jit
def scale(x, w, y, n, d, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = {mask}
    value = tl.load(x + offsets, mask=mask) * tl.load(w + offsets % d, mask=mask)
    tl.store(y + offsets, tl.maximum(value, 0), mask=mask)


def scaled(x, w):
    y = torch.empty_like(x)
    n = x.numel()
    scale[(triton.cdiv(n, 1000) + {blocks},)](x, w, y, n, x.shape[1], BLOCK=1024)
    return y
"""
_SCALE_MODEL = """

class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))
        self.kept = {{}}

    def forward(self, x):
{forward}
"""


def scale(forward: str, *, before: str = "", mask: str = "offsets < n", blocks: int = 0) -> str:
    """Return a solution of SCALE whose forward has these lines; ``before`` comes between kernel and model."""
    kernel = _SCALE_KERNEL.format(mask=mask, blocks=blocks)
    lines = "\n".join(f"        {line}" for line in forward.splitlines())
    return _IMPORTS + kernel + before + _SCALE_MODEL.format(forward=lines)


_MATMUL = (
    _IMPORTS
    + """

@triton.jit
def product(a, b, c, M, N, K, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), dtype=tl.float32)
    for start in range(0, K, B):
        depth = start + tl.arange(0, B)
        x = tl.load(a + rows[:, None] * K + depth, mask=(rows[:, None] < M) & (depth < K), other=0)
        y = tl.load(b + depth[:, None] * N + columns, mask=(depth[:, None] < K) & (columns < N), other=0)
        total += tl.dot(x, y, input_precision="ieee")
    tl.store(c + rows[:, None] * N + columns, total, mask=(rows[:, None] < M) & (columns < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], device=a.device)
        grid = triton.cdiv(a.shape[0], 32), triton.cdiv(b.shape[1], 32)
        product[grid](a, b, c, a.shape[0], b.shape[1], a.shape[1], B=32)
        return c
"""
)
_SOFTMAX = (
    _IMPORTS
    + """

@triton.jit
def softmax(x, y, d, B: tl.constexpr):
    offsets = tl.arange(0, B)
    row = tl.load(x + tl.program_id(0) * d + offsets, mask=offsets < d, other=float("-inf"))
    row = tl.exp(row - tl.max(row, 0))
    tl.store(y + tl.program_id(0) * d + offsets, row / tl.sum(row, 0), mask=offsets < d)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax[(x.shape[0],)](x, y, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return y
"""
)
_CUDA = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r'''
#include <torch/extension.h>
__global__ void scale(const float* x, const float* w, float* y, long n, long d) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i] * w[i % d], 0.f);
}
torch::Tensor scaled(torch::Tensor x, torch::Tensor w) {
  auto y = torch::empty_like(x);
  const long n = x.numel();
  scale<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), n, x.size(1));
  return y;
}
'''
module = load_inline("scale_inline", cpp_sources="torch::Tensor scaled(torch::Tensor x, torch::Tensor w);",
                     cuda_sources=source, functions=["scaled"])


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        return module.scaled(x, self.weight)
"""
HONEST = {
    "triton scale": ("scale", scale("return scaled(x, self.weight)")),
    "triton matmul": ("matmul", _MATMUL),
    "triton softmax": ("softmax", _SOFTMAX),
    "torch does the rest": ("scale", scale("return scaled(x, self.weight).clone()")),
    "a stream that is joined": (
        "scale",
        scale(
            "side = torch.cuda.Stream()\n"
            "side.wait_stream(torch.cuda.current_stream())\n"
            "with torch.cuda.stream(side):\n    y = scaled(x, self.weight)\n"
            "torch.cuda.current_stream().wait_stream(side)\n"
            "return y"
        ),
    ),
    "cuda scale": ("scale", _CUDA),
}
"""Name -> (problem, solution)."""

CHEATS = {
    "torch alone": ("no_kernel", scale("return torch.relu(x * self.weight)")),
    "a decoy": ("no_kernel", scale("return torch.relu(x * self.weight) + 0 * scaled(x, self.weight)")),
    "kept result": (
        "cached",
        scale("if 0 not in self.kept:\n    self.kept[0] = scaled(x, self.weight)\nreturn self.kept[0]"),
    ),
    "kept by address": (
        "cached",
        scale(
            "key = x.data_ptr(), x.shape\n"
            "if key not in self.kept:\n    self.kept[key] = scaled(x, self.weight)\n"
            "return self.kept[key]"
        ),
    ),
    "input as scratch": ("changed_input", scale("y = scaled(x, self.weight)\nx.zero_()\nreturn y")),
    "memory that others freed": (
        "unwritten",
        scale("y = scaled(x, self.weight)\nreturn torch.empty_strided(x.shape, x.stride(), device=x.device)"),
    ),
    "a stream left running": (
        "unfinished",
        scale("with torch.cuda.stream(torch.cuda.Stream()):\n    y = scaled(x, self.weight)\nreturn y"),
    ),
    "a lazy tensor": (
        "invalid",
        scale(
            "return scaled(x, self.weight).as_subclass(Lazy)",
            before="\n\nclass Lazy(torch.Tensor):\n    pass\n",
        ),
    ),
    "torch replaced": (
        "tampered",
        scale("return scaled(x, self.weight)", before="\n\ntorch.cuda.synchronize = lambda *_: None\n"),
    ),
    "the judge replaced": (
        "tampered",
        scale(
            "return scaled(x, self.weight)",
            before="\n\nimport workbench.reports.watching\n\nworkbench.reports.watching.watched = lambda: None\n",
        ),
    ),
    "past the end": ("out_of_bounds", scale("return scaled(x, self.weight)", mask="offsets < n + 8", blocks=1)),
    "half of the numbers": ("wrong_result", scale("return scaled(x.half().float(), self.weight)")),
}
"""Name -> (its outcome, a solution of SCALE)."""
