"""Throughput of the judge on solutions in KernelBench's format, on all cores of this machine.

The solutions are Triton kernels for one small problem, each with a source that was never compiled before; every fourth
is wrong.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from workbench.base.processes.ending import cpu_seconds
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


SOLUTIONS_PER_HOUR = 5000
"""Target of the judge on two cores, in small Triton solutions per hour."""
_STARTED = 2
"""Solutions for each core that are judged before the time is taken: the first ones start the judge's processes."""


@dataclass(frozen=True)
class SolutionTime:
    """Seconds for one solution: those that pass, with all cores at work, and those of CPU time in all processes."""

    seconds: float
    cpu_seconds: float


def solutions(folder: Path, count: int) -> list[tuple[Path, Path]]:
    """Write a problem and ``count`` solutions to a folder, every fourth of them wrong; return the pairs of files."""
    problem = folder / "problem.py"
    problem.write_text(_PROBLEM)
    pairs = []
    for number in range(count):
        solution = folder / f"solution_{number}.py"
        lowest = "-float('inf')" if number % 4 != 3 else f"{number}.0"
        solution.write_text(_SOLUTION.replace("NAME", f"softmax_{number}").replace("LOWEST", lowest))
        pairs.append((problem, solution))
    return pairs


def time_per_solution(count: int) -> SolutionTime:
    """Judge ``count`` solutions on all cores, without torch.compile's predicted time."""
    before = _STARTED * len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = solutions(folder, before + count)
        judging = check_many(pairs, store=folder / "store.sqlite", torch_compile=False)
        found = list(itertools.islice(judging, before))
        started = time.perf_counter(), cpu_seconds(os.getpid())
        found += list(itertools.islice(judging, count - 1))
        ended = time.perf_counter(), cpu_seconds(os.getpid())
        found += judging
    if any(one.ok is (number % 4 == 3) for number, one in enumerate(found)):
        raise WrongResultError(f"the judge was wrong about a softmax: {[one.outcome for one in found]}")
    seconds, cpu = ((one - other) / (count - 1) for one, other in zip(ended, started, strict=True))
    return SolutionTime(seconds, cpu)
