"""Sectors and wavefronts against values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ptx_support import module

from workbench import ptx
from workbench.toolchain import compile_cuda_module

SOURCE = Path(__file__).parent / "cuda_micro.cu"


@pytest.fixture(scope="module")
def program() -> ptx.Program:
    kernels = compile_cuda_module(SOURCE, arch="sm_80").kernels
    return ptx.Program.from_text(next(iter(kernels.values())).ptx)


@pytest.mark.parametrize(
    ("kernel", "load", "ideal", "store", "read", "written"),
    [
        ("coalesced", 4, 4, 4, 128, 128),
        ("stride_two", 8, 4, 4, 256, 128),
        ("vectors", 16, 16, 16, 512, 512),
        ("misaligned", 5, 4, 4, 160, 128),
        ("column", 32, 4, 4, 1024, 128),
        ("x_layout", 8, 8, 4, 256, 128),
    ],
)
def test_sectors(program: ptx.Program, kernel: str, load: int, ideal: int, store: int, read: int, written: int) -> None:
    out, data = np.zeros(1024, np.float32), np.arange(2048, dtype=np.float32)
    report = program[kernel].launch(1, 32, [out, data], statistics=True)
    assert (report.global_load_requests, report.global_load_sectors) == (1, load)
    assert (report.global_store_requests, report.global_store_sectors) == (1, store)
    assert report.sectors_per_request == (load + store) / 2
    assert (report.unique_bytes_read, report.unique_bytes_written) == (read, written)
    line = next(line for line in report.lines if line.is_load and line.space == "global")
    assert (line.sectors_per_request, line.ideal_sectors_per_request) == (load, ideal)
    assert (line.distinct_bytes, line.bytes_moved, line.used_fraction) == (32 * ideal, 32 * load, ideal / load)
    assert report.ideal_sectors_per_request == (ideal + store) / 2
    assert report.global_bytes_moved == 32 * (load + store)


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
    assert {Path(line.source).name for line in report.lines} == {SOURCE.name}
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
    # All write to argument 0 what they read from argument 1.
    assert report.buffers == (
        ptx.BufferFacts("argument 0", 128, 0, 0, 0, 50 * 128, 50 * 128, 128),
        ptx.BufferFacts("argument 1", 256, 50 * 128, 50 * 128, 128, 0, 0, 0),
    )
    assert report.read_reuse_between_blocks == 50


def launch(body: str, blocks: int = 1, **options) -> ptx.LaunchReport:
    """Runs a body with the lane in %r1, the block in %r2 and the address of 4096 bytes in %d1."""
    start = "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nld.param.u64 %d1, [data];\n"
    program = ptx.Program(module("facts", ".param .u64 data", f".shared .align 16 .b8 tile[2048];\n{start}{body}"))
    return program["facts"].launch(blocks, 32, [np.zeros(1024, np.uint32)], statistics=True, **options)


@pytest.mark.parametrize("threads", [1, 3])
def test_what_blocks_and_what_the_launch_reads(threads: int) -> None:
    # Blocks 2n and 2n + 1 read the same 128 bytes, each twice; block 0 also adds to the first word of its own.
    body = """
shr.u32 %r3, %r2, 1;
mad.lo.u32 %r3, %r3, 32, %r1;
mul.wide.u32 %d2, %r3, 4;
add.u64 %d2, %d2, %d1;
ld.global.u32 %r4, [%d2];
ld.volatile.global.u32 %r5, [%d2];
or.b32 %r6, %r1, %r2;
setp.eq.u32 %p1, %r6, 0;
@%p1 red.global.add.u32 [%d2], 1;
"""
    report = launch(body, blocks=6, threads=threads)
    (buffer,) = report.buffers
    assert (buffer.read_moved, buffer.read_by_blocks, buffer.read_unique) == (6 * 256 + 32, 6 * 128, 3 * 128)
    assert (buffer.written_moved, buffer.written_by_blocks, buffer.written_unique) == (32, 32, 32)
    assert buffer.read_reuse_in_blocks == (6 * 256 + 32) / (6 * 128)
    assert buffer.read_reuse_between_blocks == report.read_reuse_between_blocks == 2


@pytest.mark.parametrize(
    ("offset", "width", "sectors", "distinct"),
    [
        ("and.b32 %r3, %r1, 3;", 4, 1, 16),  # four words, eight lanes each
        ("xor.b32 %r3, %r1, 31;", 4, 4, 128),  # backwards
        ("mul.lo.u32 %r3, %r1, 9;", 4, 32, 128),  # one word of a sector each; lane 31 ends at byte 1120
        ("mul.lo.u32 %r3, %r1, 5;\nand.b32 %r3, %r3, 31;", 4, 4, 128),  # a permutation
        ("mov.u32 %r3, %r1;", 1, 1, 32),
        ("mov.u32 %r3, 7;", 8, 1, 8),  # all the same
    ],
)
def test_bytes_used_of_bytes_moved(offset: str, width: int, sectors: int, distinct: int) -> None:
    register = {1: "%r9", 4: "%r9", 8: "%d9"}[width]
    body = (
        f"{offset}\nmul.wide.u32 %d2, %r3, {width};\nadd.u64 %d2, %d2, %d1;\nld.global.u{8 * width} {register}, [%d2];"
    )
    line = next(line for line in launch(body).lines if line.sectors)
    assert (line.sectors, line.distinct_bytes, line.bytes) == (sectors, distinct, 32 * width)
    assert line.ideal_sectors == -(-distinct // 32)


@pytest.mark.parametrize(
    ("offset", "width", "wavefronts", "ideal"),
    [
        # 16 bytes per lane: a quarter of the warp at a time.
        ("shl.b32 %r3, %r1, 4;", 16, 4, 4),
        ("mov.u32 %r3, 0;", 16, 2, 2),  # one address: packed, a half at a time
        ("shr.u32 %r3, %r1, 4;\nshl.b32 %r3, %r3, 4;", 16, 2, 2),  # two addresses, a half warp each
        ("and.b32 %r3, %r1, 1;\nshl.b32 %r3, %r3, 4;", 16, 2, 2),  # two addresses, lane and lane ^ 2 alike
        ("and.b32 %r3, %r1, 3;\nshl.b32 %r3, %r3, 4;", 16, 4, 4),  # four addresses, neither neighbour alike
        ("shr.u32 %r3, %r1, 1;\nshl.b32 %r3, %r3, 4;", 16, 2, 2),  # pairs
        ("shl.b32 %r3, %r1, 6;", 16, 16, 4),  # every quarter meets two groups of four banks, four deep
        # 8 bytes per lane: half a warp at a time.
        ("shl.b32 %r3, %r1, 3;", 8, 2, 2),
        ("mov.u32 %r3, 0;", 8, 1, 1),
        ("shr.u32 %r3, %r1, 1;\nshl.b32 %r3, %r3, 3;", 8, 1, 1),
        ("shl.b32 %r3, %r1, 4;", 8, 4, 2),
        # 4 bytes and less: the whole warp; lanes share words.
        ("shl.b32 %r3, %r1, 3;", 4, 2, 1),
        ("shr.u32 %r3, %r1, 3;\nshl.b32 %r3, %r3, 7;", 4, 4, 1),
        ("mov.u32 %r3, %r1;", 1, 1, 1),
        ("mul.lo.u32 %r3, %r1, 33;", 1, 1, 1),  # bytes of 32 words in 32 banks, some words twice
    ],
)
def test_passes_through_the_banks(offset: str, width: int, wavefronts: int, ideal: int) -> None:
    value, suffix = {1: ("%r9", "u8"), 4: ("%r9", "u32"), 8: ("%d9", "u64"), 16: ("{%r9,%r10,%r11,%r12}", "v4.u32")}[
        width
    ]
    start = f"{offset}\nmov.u32 %r4, tile;\nadd.u32 %r3, %r3, %r4;\n"
    line = next(line for line in launch(f"{start}ld.shared.{suffix} {value}, [%r3];").lines if line.wavefronts)
    assert (line.wavefronts, line.ideal_wavefronts) == (wavefronts, ideal)
    # A store returns nothing that could be packed.
    store = next(line for line in launch(f"{start}st.shared.{suffix} [%r3], {value};").lines if line.wavefronts)
    parts = {16: 4, 8: 2}.get(width, 1)
    assert store.ideal_wavefronts == parts
    assert store.wavefronts == max(wavefronts, parts)


def test_a_part_of_the_warp_without_active_lanes_takes_no_pass() -> None:
    body = """
setp.lt.u32 %p1, %r1, 9;
mov.u32 %r4, tile;
mad.lo.u32 %r3, %r1, 16, %r4;
@%p1 ld.shared.v4.u32 {%r9,%r10,%r11,%r12}, [%r3];
"""
    line = next(line for line in launch(body).lines if line.wavefronts)
    assert (line.wavefronts, line.ideal_wavefronts, line.active_lanes / line.executions) == (2, 2, 9)


def test_a_generic_address_into_shared_memory_counts_there() -> None:
    body = "cvta.shared.u64 %d2, tile;\nmul.wide.u32 %d3, %r1, 4;\nadd.u64 %d2, %d2, %d3;\nld.u32 %r3, [%d2];"
    report = launch(body)
    assert (report.shared_requests, report.shared_wavefronts, report.global_load_requests) == (1, 1, 0)
