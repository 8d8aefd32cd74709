"""The first launch of a process imports nothing: a child that is forked meanwhile could not import it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, numpy as np, torch
import workbench as wb
from workbench.errors import KernelFault

SOURCE = 'extern "C" __global__ void add(float *y, const float *x, int n) { y[threadIdx.x] += *x; }'
add = wb.load_cuda(SOURCE, device="sim").add
before = set(sys.modules)
add(1, 64, torch.zeros(64), torch.ones(64), 64)
add(1, 64, np.zeros(64, "f"), np.ones(64, "f"), 64)
add(1, 64, torch.zeros(64), torch.ones(64), 64, checks=True)
try:
    add(1, 64, torch.zeros(4), torch.ones(64), 64)
except KernelFault:
    pass
else:
    raise SystemExit("no fault")
print(sorted(set(sys.modules) - before))
"""


def test_a_first_launch_imports_nothing():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
