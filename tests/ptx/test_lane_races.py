"""Races on global memory between lanes of a warp, of copies, and where a store changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ptx_support import module, right_and_faulty

from workbench import ptx

SOURCE = Path(__file__).parent / "cuda_lane_races.cu"
LINES = SOURCE.read_text().splitlines()
WITHIN_WARPS = {"neighbours", "read_before", "all_read", "own_elements", "one_place", "permuted"}
KERNELS = {
    "neighbours": 64, "read_before": 64, "all_read": 64, "own_elements": 32, "one_place": 32, "same_value": 64,
    "permuted": 64, "stores_what_is_there": 64, "reads_what_was_there": 64, "two_scopes": 64,
}  # fmt: skip
DATA = np.arange(1, 257, dtype=np.int32)


@pytest.fixture(scope="module")
def programs() -> dict[bool, ptx.Program]:
    return {fault: ptx.Program.from_text(text) for fault, text in right_and_faulty(SOURCE).items()}


def run(program: ptx.Program, kernel: str, **options) -> ptx.LaunchReport:
    blocks = 2 if kernel == "two_scopes" else 1
    return program[kernel].launch(blocks, KERNELS[kernel], [np.zeros(2048, np.int32), DATA], checks=True, **options)


@pytest.mark.parametrize("last_warp_first", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_ordered(programs: dict[bool, ptx.Program], kernel: str, last_warp_first: bool) -> None:
    report = run(programs[False], kernel, last_warp_first=last_warp_first)
    assert report.findings == [], report


@pytest.mark.parametrize("last_warp_first", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_not_ordered(programs: dict[bool, ptx.Program], kernel: str, last_warp_first: bool) -> None:
    report = run(programs[True], kernel, last_warp_first=last_warp_first)
    assert {finding.kind for finding in report.findings} == {"global race"}, report
    start = next(i for i, text in enumerate(LINES) if f" {kernel}(" in text)
    side = next(i + 1 for i in range(start, len(LINES)) if LINES[i].endswith("// side"))
    for finding in report.findings:
        assert side in (finding.line, finding.other_line), report
        assert finding.other_thread != finding.thread
        if kernel in WITHIN_WARPS:
            assert finding.other_thread[0] // 32 == finding.thread[0] // 32, report


def test_the_other_thread_is_the_one(programs: dict[bool, ptx.Program]) -> None:
    for kernel in ("neighbours", "read_before"):
        (finding,) = run(programs[True], kernel).findings
        assert {finding.thread, finding.other_thread} == {(0, 0, 0), (1, 0, 0)}
        assert "with thread (1, 0, 0) of the same block" in finding.message
        assert finding.count == 64


def test_a_race_in_a_block_hides_none_between_blocks(programs: dict[bool, ptx.Program]) -> None:
    report = run(programs[True], "two_scopes")
    scopes = {(f.other_block is None, frozenset((f.line, f.other_line))) for f in report.findings}
    lines = next(iter(scopes))[1]
    assert {(True, lines), (False, lines)} <= scopes, report


COPIES = """
mov.u32 %r1, %tid.x;
and.b32 %r2, %r1, {elements};
mul.wide.u32 %d2, %r2, 4;
ld.param.u64 %d1, [p];
add.u64 %d2, %d1, %d2;
ld.global.u32 %r3, [%d2{loaded}];
add.u32 %r3, %r3, 1;
setp.lt.u32 %p1, %r1, {storing};
@%p1 st.global.u32 [%d2], %r3;
"""


@pytest.mark.parametrize("last_warp_first", [False, True])
@pytest.mark.parametrize("elements", [1, 4, 16, 32, 64])
def test_copies_do_not_race(elements: int, last_warp_first: bool) -> None:
    """As Triton compiles ``tl.store(p + c, tl.load(p + c) + 1)`` for fewer elements than threads."""
    text = module("copies", ".param .u64 p", COPIES.format(elements=elements - 1, loaded="", storing=elements))
    data = np.arange(64, dtype=np.uint32)
    report = ptx.Program(text)["copies"].launch(
        1, 128, [data], checks=True, last_warp_first=last_warp_first, repeats=True
    )
    assert report.findings == [], report


@pytest.mark.parametrize("last_warp_first", [False, True])
def test_what_is_no_copy_races(last_warp_first: bool) -> None:
    """Each loads another element than it stores."""
    text = module("copies", ".param .u64 p", COPIES.format(elements=15, loaded="+4", storing=16))
    data = np.arange(65, dtype=np.uint32)
    report = ptx.Program(text)["copies"].launch(
        1, 64, [data], checks=True, last_warp_first=last_warp_first, repeats=True
    )
    assert {finding.kind for finding in report.findings} == {"global race"}
