"""Counters of 30 launches: read by Nsight Compute on a GPU, counted by the PTX machine without one.

On a GPU, with the workbench installed there (`.ci/gpu` does this):

    ncu $(python -m benchmarks.hardware_counters options) -o counters python -m benchmarks.hardware_counters run
    ncu --import counters.ncu-rep --csv --page raw > counters.csv
    python -m benchmarks.hardware_counters record counters.csv > counters.json

Anywhere, with torch's CUDA build and Triton:

    python -m benchmarks.hardware_counters compare [counters.json or counters.csv]

prints both numbers where they differ; without a file those of `benchmarks/counters_h200.json`. `count NAME...` prints
the machine's counts of some launches, as JSON lines.

Machine code differs between versions of Triton, and with it the counts of some kernels: compare with the version that
the record names.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("counters_h200.json")

COUNTERS = {
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "global_sectors": "memory_l2_theoretical_sectors_global",
    "global_ideal_sectors": "memory_l2_theoretical_sectors_global_ideal",
    "shared_wavefronts": "memory_l1_wavefronts_shared",
    "shared_ideal_wavefronts": "memory_l1_wavefronts_shared_ideal",
    "instructions": "smsp__inst_executed.sum",
    "registers": "launch__registers_per_thread",
    "dram_sectors_read": "dram__sectors_read.sum",
}
"""Counters of Nsight Compute by the machine's names.

Of DRAM the machine knows the distinct sectors that a launch reads.
"""

_SECONDS = "gpu__time_duration.sum"
_UNITS = {"us": 1e-6, "ns": 1e-9, "ms": 1e-3}
_SECTIONS = (
    "SpeedOfLight", "LaunchStats", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "InstructionStats",
    "SourceCounters",
)  # fmt: skip
_KERNELS = (
    "add", "softmax", "layer_norm", "transpose", "transpose_uncoalesced", "gather_rows", "matmul", "attention",
    "histogram", "sines", "paged_attention_.*",
)  # fmt: skip


def paged_attention(
    num_seqs: int, context: int, names: Sequence[str] = ()
) -> Iterator[tuple[str, Callable[[], object], Callable[[], Any]]]:
    """Yield the kernel variants of paged attention: the name, the call that launches it, and one that checks it."""
    import dataclasses

    from workbench.attention.ops.paged_attention import OP, case
    from workbench.launch import devices

    device = devices.get("cuda")
    for variant in OP.variants:
        if variant.language == "torch" or (names and variant.name not in names):
            continue
        cache = "nvfp4" if "nvfp4" in variant.needs else "auto"
        one = case("llama-3-8b", num_seqs=num_seqs, context=context, dtype="bfloat16", kv_cache_dtype=cache)
        one = dataclasses.replace(one, layout="nhd" if "nhd" in variant.layouts else variant.layouts[0])
        config = variant.default_config(one.problem(arch=device.arch))
        problem = one.problem(config, arch=device.arch)
        tensors = one.inputs(problem, "cuda")
        yield (
            variant.name,
            partial(variant.run, config, problem, tensors, device),
            partial(lambda one, tensors: one.check(tensors.out), one, tensors),
        )


def launches() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name of each launch and the call that launches it."""
    from benchmarks import triton_kernels

    yield from triton_kernels.launches()
    for name, call, _ in paged_attention(4, 1000):
        yield f"paged_attention {name}", call


def run(names: Sequence[str] = ()) -> None:
    """Launch each kernel, or those named, once."""
    import torch

    for name, call in launches():
        if not names or name in names:
            call()
            torch.cuda.synchronize()
            print(name, flush=True)


def counted(names: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield what the PTX machine counts for an H200: of each launch, or of those named, a row as in a record."""
    import workbench as wb
    from workbench.analysis.device_models import device_model
    from workbench.analysis.launches import Launches
    from workbench.analysis.watching import Watch, watch

    wb.simulated_gpu("h200", seconds_limit=None, force=True)
    seen = Launches(keep_all=True)
    watch(Watch(seen, device_model("h200"), trace=True))
    for name, call in launches():
        if names and name not in names:
            continue
        call()
        (launch,) = seen.take()
        counts, report = launch.report.counts, launch.report
        row = {counter: getattr(counts, counter) for counter in COUNTERS if hasattr(counts, counter)}
        row |= {"registers": launch.kernel.registers, "dram_sectors_read": report.unique_bytes_read // 32}
        yield {"name": name, "kernel": launch.kernel.label, "grid": list(report.grid), **row}


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a record, or of the raw page of Nsight Compute as CSV, whose launches are those of `run`."""
    if path.suffix == ".json":
        rows: list[dict[str, Any]] = json.loads(path.read_text())["launches"]
        return rows
    with path.open() as lines:
        table = csv.DictReader(line for line in lines if not line.startswith("=="))
        units, *found = table
    rows = []
    for name, one in zip(_names(), found, strict=True):
        numbers = {counter: int(float(one[metric].replace(",", ""))) for counter, metric in COUNTERS.items()}
        grid = [int(size) for size in one["Grid Size"].strip("()").split(",")]
        microseconds = float(one[_SECONDS].replace(",", "")) * _UNITS[units[_SECONDS]] * 1e6
        rows.append({"name": name, "kernel": one["Kernel Name"], "grid": grid, **numbers, "us": round(microseconds, 3)})
    return rows


def _names() -> list[str]:
    """Return the names of all launches, from the package's own record."""
    return [row["name"] for row in json.loads(RECORD.read_text())["launches"]]


def record(path: Path) -> str:
    """Return the rows of this machine's GPU with its versions as JSON, a launch a line, for a file beside `RECORD`."""
    from workbench.base.versions import versions
    from workbench.tuning.bench.machine import gpu_facts

    facts = gpu_facts() | {"recorded": time.strftime("%Y-%m-%d"), "versions": dict(versions())}
    lines = ",\n  ".join(map(json.dumps, rows_of(path)))
    return json.dumps(facts, indent=1).removesuffix("\n}") + f',\n "launches": [\n  {lines}\n ]\n}}'


def compare(path: Path) -> str:
    """Return a table of the GPU's and the machine's numbers; a column has one number where they agree."""
    width = max(len(name) for name in COUNTERS) + 8
    lines = ["".ljust(40) + "".join(name.rjust(width) for name in COUNTERS)]
    for theirs, ours in zip(rows_of(path), counted(), strict=True):
        if (theirs["name"], theirs["grid"]) != (ours["name"], ours["grid"]):
            raise SystemExit(f"{path}: launch {theirs['name']} {theirs['grid']}, not {ours['name']} {ours['grid']}")
        cells = [
            f"{theirs[name]:,}" if theirs[name] == ours[name] else f"{theirs[name]:,}/{ours[name]:,}"
            for name in COUNTERS
        ]
        lines.append(theirs["name"].ljust(40) + "".join(cell.rjust(width) for cell in cells))
    return "\n".join([*lines, "Where two numbers differ: GPU/machine."])


def main(command: str = "", *arguments: str) -> None:
    """Run one of the commands above."""
    if command == "options":
        sections = " ".join(f"--section {name}" for name in _SECTIONS)
        print(f"--clock-control none {sections} --kernel-name regex:^({'|'.join(_KERNELS)})$")
    elif command == "run":
        run(arguments)
    elif command == "count":
        for row in counted(arguments):
            print(json.dumps(row), flush=True)
    elif command == "record":
        print(record(Path(*arguments)))
    elif command == "compare":
        print(compare(Path(*arguments) if arguments else RECORD))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
