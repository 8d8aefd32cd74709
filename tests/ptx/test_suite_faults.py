"""The textbook faults, one per kernel: found with kind and lines of both sides; the repaired kernel is clean."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from suite_mutants import stopped
from suite_sample import FOLDER, function_lines, marked_line, source_lines

from workbench import ptx
from workbench.errors import KernelFault, KernelTimeout
from workbench.toolchain import compile_cuda_module

SOURCE = FOLDER / "faults.cu"
N = 256
DATA = np.arange(5, 5 + N, dtype=np.int32) * 7 % 251


class Fault(NamedTuple):
    """``marks`` are those of both sides, without the kernel's name; ``stops`` is for faults that end the launch,
    ``note`` for those that are findings of a strict launch and else notes."""

    kernel: str
    kind: str
    marks: tuple[str, ...] = ("",)
    stops: bool = False
    buffer: str | None = None
    note: bool = False


FAULTS = [
    Fault("global_overrun", "out-of-bounds", buffer="argument 1"),
    Fault("global_underrun", "out-of-bounds", buffer="argument 1"),
    Fault("shared_overrun", "out-of-bounds"),
    Fault("past_one_array", "out-of-bounds"),
    Fault("local_overrun", "out-of-bounds"),
    Fault("null_pointer", "out-of-bounds"),
    Fault("global_misaligned", "misaligned", buffer="argument 1"),
    Fault("shared_misaligned", "misaligned"),
    Fault("uninitialised_shared", "uninitialised shared read"),
    Fault("uninitialised_global", "uninitialised global read", buffer="argument 0"),
    Fault("race_of_warps", "shared race", (" write", " read")),
    Fault("write_after_read", "shared race", (" write", " read")),
    Fault("race_of_lanes", "warp race", (" write", " read")),
    Fault("unsafe_unrolled_warp", "warp race", (" write", " read")),
    Fault("volatile_unrolled_warp", "volatile access without __syncwarp", (" write", " read"), note=True),
    Fault("race_of_blocks", "global race", (" write",), buffer="argument 0"),
    Fault("block_reads_neighbour", "global race", (" write", " read"), buffer="argument 0"),
    Fault("race_in_global", "global race", (" write", " read"), buffer="argument 0"),
    Fault("lost_updates", "global race", (" write",), buffer="argument 0"),
    Fault("published_without_fence", "global race", (" write", " read"), buffer="argument 0"),
    Fault("divergent_barrier", "divergent barrier"),
    Fault("different_barriers", "barrier at several places", ("", " other"), note=True),
    Fault("unequal_rounds", "barrier at several places", ("", " other"), note=True),
    Fault("absent_lanes", "absent lane"),
    Fault("absent_source", "absent lane"),
    Fault("waits_for_nobody", "deadlock", stops=True),
    Fault("locked_twice", "timeout", stops=True),
    Fault("flag_never_set", "timeout", stops=True),
    Fault("copy_not_awaited", "cp.async data read before wait", (" copy", " read")),
    Fault("ordered_by_shuffle", "warp race", (" write", " read")),
    Fault("overwritten_after_shuffle", "warp race", (" write", " read")),
    Fault("own_mask_without_me", "absent lane"),
    Fault("mismatched_masks", "mismatched mask"),
    Fault("sum_of_nobody", "absent lane"),
    Fault("unequal_counts", "barrier misuse", ("", " other")),
    Fault("arrival_unawaited", "arrivals that nobody waits for", note=True),
    Fault("past_the_last_array", "out-of-bounds"),
]
# What looks like a fault and is none, and why.
LEGAL = {
    "rounds_and_exit": "__syncthreads waits for all threads that have not exited, whatever way they took",
    "absent_and_exit": "shfl.sync waits for those named lanes that have not exited, whatever way they took",
}
UNWRITTEN = {"uninitialised_global": [0]}
ids = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kernel)


@pytest.fixture(scope="module")
def programs() -> dict[bool, ptx.Program]:
    def compiled(macro: int) -> ptx.Program:
        module = compile_cuda_module(SOURCE, arch="sm_80", macros={"FAULT": macro})
        return ptx.Program.from_text(next(iter(module.kernels.values())).ptx)

    return {bool(macro): compiled(macro) for macro in (0, 1)}


def launch(program: ptx.Program, kernel: str, **options: object) -> ptx.LaunchReport:
    args = [np.zeros(2 * N, np.int32), DATA.astype(np.int32), N]
    return program[kernel].launch(2, 128, args, uninitialised=UNWRITTEN.get(kernel, []), **options)


def lines(fault: Fault) -> list[int]:
    return [marked_line(SOURCE, fault.kernel, f"fault: {fault.kernel}{mark}") for mark in fault.marks]


@ids
def test_repaired(programs: dict[bool, ptx.Program], fault: Fault) -> None:
    report = launch(programs[False], fault.kernel, checks=True, strict=fault.note, instruction_limit=100_000)
    assert report.findings == [], report


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.stops], ids=lambda fault: fault.kernel)
def test_found(programs: dict[bool, ptx.Program], fault: Fault) -> None:
    report = launch(programs[True], fault.kernel, checks=True, strict=fault.note, instruction_limit=100_000)
    if fault.note:
        lenient = launch(programs[True], fault.kernel, checks=True)
        assert (lenient.findings, lenient.notes) == ([], report.findings)
    assert {finding.kind for finding in report.findings} == {fault.kind}, report
    for finding in report.findings:
        sides = {finding.line} | ({finding.other_line} if finding.other_line else set())
        assert sides <= set(lines(fault)), report
        assert Path(finding.source) == SOURCE
        assert finding.kernel == fault.kernel
        in_shared = fault.buffer is None and f"of {finding.buffer}, which has" in finding.message
        assert finding.buffer == fault.buffer or (in_shared and "of shared memory" in finding.message)
        assert finding.count >= 1
        assert f"{SOURCE.name}:{finding.line}" in str(finding)
    if fault.marks != ("",):
        assert all(finding.line and finding.other_line for finding in report.findings), report
    named = {line for finding in report.findings for line in (finding.line, finding.other_line) if line}
    assert named == set(lines(fault)), report


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.stops], ids=lambda fault: fault.kernel)
def test_stopped(programs: dict[bool, ptx.Program], fault: Fault) -> None:
    with pytest.raises((KernelFault, KernelTimeout)) as caught:
        launch(programs[True], fault.kernel, checks=True, instruction_limit=100_000)
    assert stopped(caught.value) == fault.kind
    assert f"{SOURCE.name}:{lines(fault)[0]}" in str(caught.value)


@pytest.mark.parametrize("kernel", LEGAL)
def test_legal(programs: dict[bool, ptx.Program], kernel: str) -> None:
    for program in programs.values():
        assert launch(program, kernel, checks=True, instruction_limit=100_000).findings == []


def test_every_kernel_has_its_fault(programs: dict[bool, ptx.Program]) -> None:
    assert set(programs[True]) == {fault.kernel for fault in FAULTS} | {*LEGAL}
    assert all(len(function_lines(SOURCE, fault.kernel)) < 25 for fault in FAULTS)
    assert all(len(line) < 200 for line in source_lines(SOURCE))
