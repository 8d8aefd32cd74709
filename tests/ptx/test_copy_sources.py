"""Writes to what asynchronous copies read: found with both lines while a copy is under way, and clean after a wait."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch

from workbench.ptx import LaunchOptions, LaunchReport, Program
from workbench.ptx.tensor_map import TensorMap
from workbench.toolchain import compile_cuda_module

SOURCE = Path(__file__).with_name("cuda_copy_sources.cu")
LINES = SOURCE.read_text().splitlines()
KERNELS = [line[7:-3] for line in LINES if line.startswith("KERNEL(")]
LATE, EARLY = {}, {"last_warp_first": True, "copies_early": True}  # the two looks of a checked run
KINDS = {"write to global memory that a copy is reading", "write to shared memory that is being read"}
RACES = {"global race", "shared race"}  # of a write that comes after the issue, and not after the wait, by chance
VALUES = torch.arange(100, 356, dtype=torch.int32)


@functools.cache
def program(fault: bool) -> Program:
    macros = {"FAULT": 1} if fault else {}
    kernels = compile_cuda_module(SOURCE, arch="sm_90a", macros=macros).kernels
    return Program.from_text(next(iter(kernels.values())).ptx)


def run(kernel: str, fault: bool, **options: object) -> tuple[LaunchReport, np.ndarray, np.ndarray]:
    """The report of one launch, what lies in the source after it, and what the copy brought."""
    x, out = VALUES.clone(), torch.zeros(1024, dtype=torch.int32)
    together = "a_flag" in kernel
    report = program(fault)[kernel].launch(
        2 if together else 1, 128, [x, out, TensorMap.of(x[:128].view(4, 32), (4, 32))], cooperative=together,
        seconds_limit=30, **options,
    )  # fmt: skip
    return report, x.numpy(), out.numpy()[:128]


def marked(kernel: str) -> set[int]:
    """The lines of a kernel that ask for the copy and that write."""
    begin = LINES.index(f"KERNEL({kernel}) {{")
    end = LINES.index("}", begin)
    lines = {i + 1 for i in range(begin, end) if LINES[i].endswith(("// copy", "// write"))}
    assert len(lines) == 2
    return lines


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_write_during_the_copy_is_found(kernel: str) -> None:
    found = [one for order in (LATE, EARLY) for one in run(kernel, True, checks=True, **order)[0].findings]
    places = [{one.kernel_line, one.other_kernel_line} for one in found if one.kind in KINDS | RACES]
    assert marked(kernel) in places, found
    assert {one.kind for one in found} <= KINDS | RACES


@pytest.mark.parametrize("order", [LATE, EARLY, {"last_warp_first": True}, {"copies_early": True}], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_write_behind_the_wait_is_not(kernel: str, order: dict[str, bool]) -> None:
    assert run(kernel, False, checks=True, **order)[0].findings == []


@pytest.mark.parametrize("kernel", [one for one in KERNELS if "shared" not in one])
@pytest.mark.parametrize("order", [LATE, EARLY], ids=str)
@pytest.mark.parametrize("checks", [False, True])
def test_a_copy_brings_what_lay_there_when_it_was_issued(kernel: str, order: dict[str, bool], checks: bool) -> None:
    for fault in (False, True):
        _, source, brought = run(kernel, fault, checks=checks, **order)
        assert not np.array_equal(source[:128], VALUES[:128])
        if kernel == "waited_by_one_warp":
            np.testing.assert_array_equal(brought[:32], VALUES[:32])
        else:
            np.testing.assert_array_equal(brought, VALUES[:128])


OUT_OF_PLACE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry pass_on(.param .u64 x, .param .u64 y, .param .u64 table)
{
.reg .b32 %s, %v; .reg .b64 %x, %y, %t;
.shared .align 16 .b8 tile[16];
ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; ld.param.u64 %t, [table];
LOAD
mov.u32 %s, tile; mov.u32 %v, 7;
cp.async.ca.shared.global [%s], [%x], 4;
cp.async.commit_group;
st.global.u32 [%y], %v;
cp.async.wait_group 0;
bar.sync 0;
ret;
}
"""


@pytest.mark.parametrize("way", ["apart", "same buffer", "null", "loaded"])
def test_copies_are_watched_unless_their_source_is_known_not_to_be_written(way: str) -> None:
    x, y = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    target = {"same buffer": x, "null": None}.get(way, y)
    table = torch.tensor([x.data_ptr()])
    kernel = Program.from_text(OUT_OF_PLACE.replace("LOAD", "ld.global.u64 %y, [%t];" * (way == "loaded")))["pass_on"]
    launch = kernel.bind(1, 1, [x, target, table], LaunchOptions())
    assert len(kernel.copy_sources.unwritten(launch.parameters, launch.memory.rows)) == (way in ("apart", "null"))
    if way != "null":
        found = launch.run(checks=True).findings
        assert {one.kind for one in found} == (
            set() if way == "apart" else {"write to global memory that a copy is reading"}
        )


def test_a_copy_lands_late_or_at_once() -> None:
    for order, brought in ((LATE, torch.full((128,), -7)), (EARLY, VALUES[:128])):
        for checks in (False, True):
            out = torch.zeros(128, dtype=torch.int32)
            report = program(False)["unawaited"].launch(1, 128, [VALUES.clone(), out], checks=checks, **order)
            assert torch.equal(out, brought.int())
            assert {one.kind for one in report.findings} == ({"cp.async data read before wait"} if checks else set())
