"""The steps of .ci/gpu that are more than a command.

python gpu_steps.py bench full|small FILE     paged attention, ours and others', against the memory's speed
python gpu_steps.py once NUM_SEQS CONTEXT [VARIANT...]     each kernel once, checked: for a sanitizer or a profiler
python gpu_steps.py tune full|small     two kernels, into tune.sqlite

The exit status is 0 if everything that was computed is right.
"""

import sys

import torch

import workbench as wb
from benchmarks.hardware_counters import paged_attention
from workbench.attention.bench.paged_attention import BenchmarkCell, run
from workbench.attention.ops.paged_attention import case


def bench(size: str, out: str) -> int:
    """Return the grid, or a cell of it that the PTX machine can run."""
    little = {"minutes": 1.0, "cells": [BenchmarkCell(4, 2, num_seqs=1, context=32, cache="fp8")]}
    options = {"minutes": 2.7} if size == "full" else little
    result = run(device="cuda", peers=size == "full", out=out, progress=print, **options)
    print(result)
    return not result.all_correct


def once(num_seqs: str, context: str, *names: str) -> int:
    """Run every kernel variant of paged attention once and check it; the number of wrong results."""
    wrong = 0
    for name, call, verdict in paged_attention(int(num_seqs), int(context), names):
        call()
        torch.cuda.synchronize()
        check = verdict()
        wrong += not check.ok
        print(f"{name}: {check}", flush=True)
    return wrong


def tune(size: str) -> int:
    """Random configurations of the two kernels for grouped queries, within a budget; small: one of one of them."""
    sizes = {"num_seqs": 8, "context": 8192} if size == "full" else {"num_seqs": 1, "context": 20}
    cases = [case("llama-3-8b", dtype="bfloat16", layout="nhd", **sizes)]
    names, budget = (["cuda_grouped_mma", "triton_grouped"], "35s") if size == "full" else (["cuda_grouped_mma"], 1)
    found = wb.tune(
        "paged_attention", cases, names, device="cuda", strategy="random", budget=budget, store="tune.sqlite"
    )
    print(found)
    return found.best is None


if __name__ == "__main__":
    step, *arguments = sys.argv[1:]
    sys.exit({"bench": bench, "once": once, "tune": tune}[step](*arguments))
