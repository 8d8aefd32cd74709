"""Sectors and wavefronts against values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench import ptx
from workbench.toolchain import compile_cuda_module

SOURCE = Path(__file__).parent / "cuda_micro.cu"


@pytest.fixture(scope="module")
def program() -> ptx.Program:
    kernels = compile_cuda_module(SOURCE, arch="sm_80").kernels
    return ptx.Program.from_text(next(iter(kernels.values())).ptx)


@pytest.mark.parametrize(
    ("kernel", "load", "store", "read", "written"),
    [
        ("coalesced", 4, 4, 128, 128),
        ("stride_two", 8, 4, 256, 128),
        ("vectors", 16, 16, 512, 512),
        ("misaligned", 5, 4, 160, 128),
        ("column", 32, 4, 1024, 128),
        ("x_layout", 8, 4, 256, 128),
    ],
)
def test_sectors(program: ptx.Program, kernel: str, load: int, store: int, read: int, written: int) -> None:
    out, data = np.zeros(1024, np.float32), np.arange(2048, dtype=np.float32)
    report = program[kernel].launch(1, 32, [out, data], statistics=True)
    assert (report.global_load_requests, report.global_load_sectors) == (1, load)
    assert (report.global_store_requests, report.global_store_sectors) == (1, store)
    assert report.sectors_per_request == (load + store) / 2
    assert (report.unique_bytes_read, report.unique_bytes_written) == (read, written)


def test_sectors_do_not_depend_on_where_the_host_puts_an_array(program: ptx.Program) -> None:
    counts = set()
    for shift in range(8):
        raw = np.zeros(4096 + shift, np.uint8)
        data = raw[shift:].copy()[:2048].view(np.float32)
        counts.add(
            program["coalesced"].launch(1, 32, [np.zeros(32, np.float32), data], statistics=True).global_load_sectors
        )
    assert counts == {4}


def test_a_view_keeps_its_place_in_its_storage(program: ptx.Program) -> None:
    data = np.arange(64, dtype=np.float32)
    report = program["coalesced"].launch(1, 32, [np.zeros(32, np.float32), data[1:33]], statistics=True)
    assert report.global_load_sectors == 5


def test_wavefronts(program: ptx.Program) -> None:
    out, data = np.zeros(32, np.float32), np.arange(1024, dtype=np.float32)
    report = program["shared_banks"].launch(1, 32, [out, data], statistics=True)
    lines = {line.source_line: line for line in report.lines if line.space == "shared" and line.is_load}
    source = SOURCE.read_text().splitlines()
    expected = {"column": (32, 1), "padded column": (1, 1), "stride two": (2, 1), "float4": (4, 4), "broadcast": (1, 1)}
    for what, numbers in expected.items():
        line = lines[1 + next(i for i, text in enumerate(source) if text.endswith(f"// {what}"))]
        assert (line.wavefronts, line.ideal_wavefronts) == numbers, what
    assert report.shared_conflicts == 31 + 1
    assert report.shared_wavefronts == report.shared_ideal_wavefronts + 32


def test_facts_by_line_and_class(program: ptx.Program) -> None:
    pandas = pytest.importorskip("pandas")
    out, data = np.zeros(32, np.float32), np.arange(1024, dtype=np.float32)
    report = program["shared_banks"].launch(2, 32, [out, data], statistics=True)
    assert sum(report.mix.values()) == report.instructions == sum(line.executions for line in report.lines)
    assert report.thread_instructions == sum(line.active_lanes for line in report.lines) == 32 * report.instructions
    rows = report.by_source_line()
    assert sum(row.executions for row in rows) == report.instructions
    assert all(Path(row.source).name == SOURCE.name for row in rows)
    assert len(pandas.DataFrame(report.lines)) == len(report.lines)
    text = str(report)
    assert "shared_banks: grid 2x1x1, block 32x1x1" in text
    assert "0x" not in text


def test_unique_bytes_count_a_sector_once_over_all_blocks(program: ptx.Program) -> None:
    out, data = np.zeros(32, np.float32), np.arange(64, dtype=np.float32)
    report = program["coalesced"].launch(50, 32, [out, data], statistics=True, threads=3)
    assert report.global_load_sectors == 200
    assert (report.unique_bytes_read, report.unique_bytes_written) == (128, 128)
    assert report.global_bytes_requested == 50 * 256
