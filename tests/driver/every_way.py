"""A program that comes to the PTX machine by every way there is; ``python every_way.py 1`` plants a fault in each."""

import subprocess
import sys

import numpy as np
import torch
import triton
import triton.language as tl

import workbench as wb
from workbench.attention import copy_blocks

SHIFT = int(sys.argv[1])
CUDA = "__global__ void {name}(float *y, const float *x)\n{{\n    y[threadIdx.x] = 2 * x[threadIdx.x + {shift}];\n}}\n"
CHILD = """
import sys, numpy as np, workbench as wb
wb.load_cuda(sys.argv[1]).by_child(1, 32, np.ones(32, np.float32), np.ones(32, np.float32))
"""


def source(name: str) -> str:
    """A kernel of that name, which reads one number behind its array with the fault."""
    return CUDA.format(name=name, shift=SHIFT)


@triton.jit
def by_triton(y, x, SHIFT: tl.constexpr):
    at = tl.arange(0, 32)
    tl.store(y + at, 2 * tl.load(x + at + SHIFT))


@triton.jit
def by_own_triton(y, x, SHIFT: tl.constexpr):
    at = tl.arange(0, 32)
    tl.store(y + at, 2 * tl.load(x + at + SHIFT))


twice = wb.op(lambda x: 2 * x, name="twice")
twice.cuda(source("by_own_cuda"), grid=1, block=32, args=("out", "x"), name="in_cuda")
twice.triton(by_own_triton, constexprs={"SHIFT": SHIFT}, grid=1, args=("out", "x"), name="in_triton")

x, y = np.ones(32, np.float32), np.zeros(32, np.float32)
t, out = torch.ones(32), torch.zeros(32)
wb.load_cuda(source("by_load_cuda")).by_load_cuda(1, 32, y, x)
wb.load_ptx(wb.load_cuda(source("by_load_ptx")).by_load_ptx.compiled.ptx).by_load_ptx(1, 32, y, x)
wb.check_kernel(wb.load_cuda(source("by_check_kernel")).by_check_kernel, grid=1, block=32, args=[y, x])
wb.trace_kernel(wb.load_cuda(source("by_trace_kernel")).by_trace_kernel, grid=1, block=32, args=[y, x])
by_triton[1,](out, t, SHIFT=SHIFT)
wb.check_kernel(by_triton, grid=1, args=[out, t], kwargs={"SHIFT": SHIFT})
with wb.simulated_triton(seconds_limit=60):
    by_triton[1,](out, t, SHIFT=SHIFT)
twice(t, variant="in_cuda")
twice(t, variant="in_triton")
pages = torch.zeros(4, 1, 16, 64, dtype=torch.float16)
copy_blocks([pages], [pages.clone()], torch.tensor([[0, 1]]), variant="cuda_vectors")
subprocess.run([sys.executable, "-c", CHILD, source("by_child")], check=True)
