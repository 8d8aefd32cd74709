"""Races between blocks on global memory, and reads of global memory that nobody wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ptx_support import right_and_faulty

from workbench import ptx
from workbench.errors import ArgumentError

SOURCE = Path(__file__).parent / "cuda_blocks.cu"
LINES = SOURCE.read_text().splitlines()
RACES = ("own_elements", "same_flag", "neighbour", "bytes_of_a_word", "counter", "last_block")
DATA = np.arange(1, 257, dtype=np.int32)


@pytest.fixture(scope="module")
def programs() -> dict[bool, ptx.Program]:
    return {fault: ptx.Program.from_text(text) for fault, text in right_and_faulty(SOURCE).items()}


def line_of_side(kernel: str) -> int:
    start = next(i for i, text in enumerate(LINES) if f" {kernel}(" in text)
    return next(i + 1 for i in range(start, len(LINES)) if LINES[i].endswith("// side"))


def run(program: ptx.Program, kernel: str) -> tuple[ptx.LaunchReport, np.ndarray]:
    out = np.zeros(1024, np.int32)
    return program[kernel].launch(4, 64, [out, DATA], checks=True), out


@pytest.mark.parametrize("kernel", RACES)
def test_no_race(programs: dict[bool, ptx.Program], kernel: str) -> None:
    report, out = run(programs[False], kernel)
    assert report.findings == [], report
    if kernel in ("counter", "last_block"):
        assert out[0] == DATA.sum()
    if kernel == "own_elements":
        np.testing.assert_array_equal(out[:256], DATA)
    if kernel == "bytes_of_a_word":
        np.testing.assert_array_equal(out.view(np.uint8)[:256], np.tile([1, 2], 64).tolist() + [3, 4] * 64)


@pytest.mark.parametrize("kernel", RACES)
def test_race(programs: dict[bool, ptx.Program], kernel: str) -> None:
    report, _ = run(programs[True], kernel)
    assert {finding.kind for finding in report.findings} == {"global race"}, report
    finding = report.findings[0]
    assert line_of_side(kernel) in (finding.line, finding.other_line)
    assert finding.line
    assert finding.other_line
    assert finding.buffer == "argument 0"
    assert "with block (" in finding.message
    assert "of argument 0" in finding.message


def test_race_is_found_by_several_threads(programs: dict[bool, ptx.Program]) -> None:
    out = np.zeros(1024, np.int32)
    report = programs[True]["own_elements"].launch(4, 64, [out, DATA], checks=True, threads=2)
    assert [finding.kind for finding in report.findings] == ["global race"]


@pytest.mark.parametrize("fault", [False, True])
def test_uninitialised_read(programs: dict[bool, ptx.Program], fault: bool) -> None:
    arrays = [np.zeros(256, np.int32), DATA, np.zeros(256, np.int32)]
    kernel = programs[fault]["half_written"]
    assert kernel.launch(4, 64, arrays, checks=True).findings == []
    report = kernel.launch(4, 64, arrays, checks=True, uninitialised=[2])
    found = [(f.kind, f.line, f.thread, f.count, f.buffer) for f in report.findings]
    expected = ("uninitialised global read", line_of_side("half_written"), (60, 0, 0), 16, "argument 2")
    assert found == ([expected] if fault else [])


def test_uninitialised_names_an_array(programs: dict[bool, ptx.Program]) -> None:
    arrays = [np.zeros(256, np.int32), DATA, np.zeros(256, np.int32)]
    with pytest.raises(ArgumentError, match="uninitialised"):
        programs[False]["half_written"].launch(4, 64, arrays, checks=True, uninitialised=[3])
