"""Plain accesses beside atomics: none races in the idioms that kernels use, and each does without what orders it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ptx_support import right_and_faulty

from workbench import ptx

SOURCE = Path(__file__).parent / "cuda_atomics.cu"
LINES = SOURCE.read_text().splitlines()
KINDS = {
    "last_block_reads": "global race", "clears_the_counter": "global race", "adds_then_reads": "global race",
    "clears_then_adds": "global race", "reads_then_adds": "shared race", "lanes_take_places": "global race",
    "takes_work": "shared race", "split_k": "global race", "waits_for_all": "global race", "all_wait": "global race",
    "locks": "global race", "looks_back": "global race", "swaps": "shared race", "sees_then_reads": "global race",
}  # fmt: skip
DATA = np.arange(1, 65, dtype=np.int32) * 7
COUNTS = np.bincount(DATA % 16, minlength=16)


def expected(kernel: str) -> dict[int, object]:
    """Values, by the first index that holds them."""
    t = np.arange(64)
    sums = np.bincount(t % 16, DATA)
    return {
        "last_block_reads": {200: 4 * COUNTS, 100: [0]},
        "clears_the_counter": {100: [0]},
        "adds_then_reads": {200: np.tile(5 + COUNTS, 4)},
        "clears_then_adds": {0: np.tile(7 + COUNTS, 4)},
        "reads_then_adds": {600: np.tile(COUNTS, 16)},
        "lanes_take_places": {200: np.full(256, 32)},
        "takes_work": {200: (DATA + np.arange(8)[:, None]).ravel()},
        "split_k": {0: 4 * DATA},
        "waits_for_all": {200: np.tile(4 * COUNTS, 4 * 4 * 2)},
        "all_wait": {200 + 64: np.tile(sums, 4 * 3)},
        "locks": {0: [DATA[:4].sum()]},
        "looks_back": {50: np.cumsum(DATA[:4])},
        "swaps": {0: np.full(256, DATA.sum(), np.float32).astype(np.int32)},
        "sees_then_reads": {1: DATA[:1]},
    }[kernel]


@pytest.fixture(scope="module")
def programs() -> dict[bool, ptx.Program]:
    return {fault: ptx.Program.from_text(text) for fault, text in right_and_faulty(SOURCE).items()}


def run(program: ptx.Program, kernel: str, **options) -> tuple[ptx.LaunchReport, np.ndarray]:
    out = np.zeros(2048, np.int32)
    options = {"checks": True, "seconds_limit": 20} | options
    return program[kernel].launch(4, 64, [out, DATA], **options), out


@pytest.mark.parametrize("other", [False, True], ids=["first_warp_first", "last_warp_first"])
@pytest.mark.parametrize("kernel", KINDS)
def test_ordered(programs: dict[bool, ptx.Program], kernel: str, other: bool) -> None:
    report, out = run(programs[False], kernel, last_warp_first=other)
    assert report.findings == [], report
    for first, values in expected(kernel).items():
        np.testing.assert_array_equal(out[first : first + len(values)], values)


@pytest.mark.parametrize("kernel", KINDS)
def test_ordered_among_several_workers(programs: dict[bool, ptx.Program], kernel: str) -> None:
    report, _ = run(programs[False], kernel, threads=3)
    assert report.findings == [], report


@pytest.mark.parametrize("kernel", KINDS)
def test_not_ordered(programs: dict[bool, ptx.Program], kernel: str) -> None:
    reports = [run(programs[True], kernel, last_warp_first=other)[0] for other in (False, True)]
    findings = [one for report in reports for one in report.findings]
    assert {one.kind for one in findings} - {"warp race"} == {KINDS[kernel]}, reports
    start = next(i for i, text in enumerate(LINES) if f" {kernel}(" in text)
    side = next(i + 1 for i in range(start, len(LINES)) if LINES[i].endswith("// side"))
    assert side in {line for one in findings for line in (one.line, one.other_line)}, reports
