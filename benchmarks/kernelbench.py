"""Throughput of the judge on solutions in KernelBench's format, on all cores of this machine.

The solutions are Triton kernels for one small problem, each with a source that was never compiled before; every fourth
is wrong.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from workbench.errors import WrongResultError
from workbench.judge import check_many

_PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(64, 500)]
"""
_SOLUTION = """
import torch
import triton
import triton.language as tl


@triton.jit
def NAME(x, y, d, B: tl.constexpr):
    offsets = tl.arange(0, B)
    row = tl.load(x + tl.program_id(0) * d + offsets, mask=offsets < d, other=LOWEST)
    row = tl.exp(row - tl.max(row, 0))
    tl.store(y + tl.program_id(0) * d + offsets, row / tl.sum(row, 0), mask=offsets < d)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        NAME[(x.shape[0],)](x, y, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return y
"""


def seconds_per_solution(count: int) -> float:
    """Judge ``count`` solutions on all cores, without torch.compile's predicted time; return the seconds for one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem = folder / "problem.py"
        problem.write_text(_PROBLEM)
        pairs = []
        for number in range(count):
            solution = folder / f"solution_{number}.py"
            lowest = "-float('inf')" if number % 4 != 3 else f"{number}.0"
            solution.write_text(_SOLUTION.replace("NAME", f"softmax_{number}").replace("LOWEST", lowest))
            pairs.append((problem, solution))
        started = time.perf_counter()
        found = list(check_many(pairs, store=folder / "store.sqlite", torch_compile=False))
        seconds = (time.perf_counter() - started) / count
    if any(one.ok is (number % 4 == 3) for number, one in enumerate(found)):
        raise WrongResultError(f"the judge was wrong about a softmax: {[one.outcome for one in found]}")
    return seconds
