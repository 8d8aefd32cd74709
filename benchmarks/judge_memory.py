"""Memory of the judge's workers: the proportional set size (PSS) of all their processes, by the number of workers.

    python -m benchmarks.judge_memory op
    python -m benchmarks.judge_memory kernelbench

It is measured when all candidates are judged: of workers with their nurseries and what these keep. Reading the memory
of a judge's processes takes root.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks import judging, kernelbench
from workbench.base.processes.ending import children_of
from workbench.base.processes.executor import OwnProcesses
from workbench.judge import many

WORKERS = 1, 3
_EACH = 4
"""Candidates for each worker."""


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process."""
    own = children_of(pid)
    return [*own, *(one for child in own for one in descendants(child))]


def pss_mb(pid: int) -> float:
    """Return the memory of a process, a page that several share counted in equal parts, in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def measured(kind: str, workers: int) -> float:
    """Judge some candidates with so many workers; return the memory of these and all that they have started, in MB."""
    with tempfile.TemporaryDirectory() as name:
        folder, count, options = Path(name), _EACH * workers, {}
        if kind == "op":
            op = judging.softmax_op()
            pairs: list = [(op, judging.candidate(number)) for number in range(count)]
        else:
            pairs, options = kernelbench.solutions(folder, count), {"torch_compile": False}
        with OwnProcesses(count=workers, server=many.servers_of((many.__name__,))) as executor:
            list(many.check_many(pairs, executor=executor, store=folder / "store.sqlite", **options))
            total = sum(map(pss_mb, descendants(os.getpid())))
    return total


if __name__ == "__main__":
    few, several = (measured(sys.argv[1], workers) for workers in WORKERS)
    beside = (several - few) / (WORKERS[1] - WORKERS[0])
    told = f"{few:.0f} MB with {WORKERS[0]} worker, {several:.0f} MB with {WORKERS[1]}"
    print(f"{sys.argv[1]}: {told}: {beside:.0f} MB for each beside the first")
