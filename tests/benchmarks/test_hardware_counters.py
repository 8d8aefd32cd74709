"""Counts of the PTX machine against those that an H200 counted, launch by launch.

The record has Triton 3.6.0, whose kernels of these launches access memory as those of 3.7.1 do. ptxas joins loads from
shared memory in CUDA kernels, which the GPU therefore counts fewer of (docs/GPUS.md): of these only the accesses to
global memory are compared.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulated_gpu.plugin import missing

from benchmarks.hardware_counters import COUNTERS, RECORD, rows_of

CHECKOUT = Path(__file__).resolve().parent.parent.parent
GLOBAL = [name for name in COUNTERS if name.startswith("global_")]
ALL = [*GLOBAL, "shared_wavefronts", "shared_ideal_wavefronts"]
COMPARED = {
    "add 2^20 B1024": ALL,
    "softmax 2048x1000 w4": ALL,
    "layer_norm 1024x1024 fp16": ALL,
    "transpose 1024 B32": ALL,
    "matmul 1024 128x128x64 w4 bfloat16": ALL,
    "attention 8x512x64": ALL,
    "paged_attention cuda_thread_group": GLOBAL,
    "paged_attention cuda_grouped_mma": GLOBAL,
}


def test_the_machine_counts_what_an_h200_counted():
    problem = missing()
    if problem is not None:
        assert not os.environ.get("WORKBENCH_REQUIRE_GPU_DOUBLE"), problem
        pytest.skip(problem)
    command = [sys.executable, "-m", "benchmarks.hardware_counters", "count", *COMPARED]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    recorded = {row["name"]: row for row in rows_of(RECORD)}
    assert found.keys() == COMPARED.keys()
    for name, counters in COMPARED.items():
        for counter in ("grid", *counters):
            assert found[name][counter] == recorded[name][counter], (name, counter)


def test_a_page_of_nsight_compute_is_read_as_it_was_recorded(tmp_path: Path):
    rows = rows_of(RECORD)
    page = tmp_path / "counters.csv"
    with page.open("w", newline="") as out:
        out.write("==PROF== Connected\n")
        table = csv.DictWriter(out, ["ID", "Kernel Name", "Grid Size", *COUNTERS.values(), "gpu__time_duration.sum"])
        table.writeheader()
        table.writerow({"gpu__time_duration.sum": "us"})
        for number, row in enumerate(rows):
            metrics = {metric: f"{row[name]:,}" for name, metric in COUNTERS.items()}
            grid = "({}, {}, {})".format(*row["grid"])
            time = {"gpu__time_duration.sum": row["us"]}
            table.writerow({"ID": number, "Kernel Name": row["kernel"], "Grid Size": grid} | metrics | time)
    assert rows_of(page) == rows
