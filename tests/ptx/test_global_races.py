"""Races on global memory between warps of a block and between blocks, in both directions; none where there is order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ptx_support import right_and_faulty

from workbench import ptx
from workbench.toolchain import compile_cuda_module

SOURCE = Path(__file__).parent / "cuda_global_races.cu"
LINES = SOURCE.read_text().splitlines()
WARPS = (
    "write_then_read", "read_then_write", "write_then_write", "columns_in_place", "many_readers", "named_pairs",
    "flag_in_block",
)  # fmt: skip
BLOCKS = (
    "blocks_write_and_read", "blocks_read_and_write", "blocks_write_and_write", "last_block_done", "last_block_hurries",
    "lock_between_blocks", "producer_consumer", "other_flag", "after_the_flag", "release_and_acquire",
)  # fmt: skip
DATA = np.arange(1, 257, dtype=np.int32)


@pytest.fixture(scope="module")
def programs() -> dict[bool, ptx.Program]:
    return {fault: ptx.Program.from_text(text) for fault, text in right_and_faulty(SOURCE).items()}


def run(program: ptx.Program, kernel: str, **options) -> tuple[ptx.LaunchReport, np.ndarray]:
    out = np.zeros(8192, np.int32)
    out[:512] = 1000 + np.arange(512)
    out[1] = 0
    if kernel in ("last_block_done", "last_block_hurries", "lock_between_blocks"):
        out[0] = 0
    blocks = 1 if kernel in WARPS else 6
    options = {"checks": True, "seconds_limit": 20} | options
    return program[kernel].launch(blocks, 128, [out, DATA], **options), out


@pytest.mark.parametrize("kernel", WARPS + BLOCKS)
def test_ordered(programs: dict[bool, ptx.Program], kernel: str) -> None:
    report, out = run(programs[False], kernel)
    assert report.findings == [], report
    blocks, t = np.arange(6), np.arange(128)
    if kernel.startswith("last_block"):
        assert out[0] == sum((DATA[:128] + b).sum() for b in blocks)
    if kernel == "lock_between_blocks":
        assert out[0] == DATA[:6].sum()
    if kernel == "producer_consumer":
        np.testing.assert_array_equal(out[:6], np.cumsum(DATA[:6]))
    if kernel == "columns_in_place":
        at = 8 * (t % 32) + t // 32
        started = np.where(at == 1, 0, 1000 + at)
        np.testing.assert_array_equal(out[at], 2 * (started + DATA[t % 32] + 1))


@pytest.mark.parametrize("kernel", WARPS + BLOCKS)
def test_not_ordered(programs: dict[bool, ptx.Program], kernel: str) -> None:
    report, _ = run(programs[True], kernel)
    assert {finding.kind for finding in report.findings} == {"global race"}, report
    start = next(i for i, text in enumerate(LINES) if f" {kernel}(" in text)
    side = next(i + 1 for i in range(start, len(LINES)) if LINES[i].endswith("// side"))
    assert side in {line for f in report.findings for line in (f.line, f.other_line)}, report
    for finding in report.findings:
        assert finding.line
        assert finding.other_line
        assert finding.buffer == "argument 0"
        assert ("of the same block" if kernel in WARPS else "with block (") in finding.message


@pytest.mark.parametrize("kernel", ["blocks_write_and_write", "last_block_done", "blocks_read_and_write"])
def test_several_workers_agree(programs: dict[bool, ptx.Program], kernel: str) -> None:
    assert run(programs[False], kernel, threads=3)[0].findings == []
    found = {f.kind for f in run(programs[True], kernel, threads=3)[0].findings}
    assert found == {"global race"}


def test_a_race_counts_each_lane_once(programs: dict[bool, ptx.Program]) -> None:
    report, _ = run(programs[True], "write_then_read")
    # The warps run in turn: warps 0 to 2 read before the next one writes, warp 3 reads what the first one wrote.
    start = next(i for i, text in enumerate(LINES) if " write_then_read(" in text)
    write, read = start + 3, start + 5
    found = {(f.line, f.other_line): (f.count, f.places, f.thread) for f in report.findings}
    assert found == {(write, read): (96 + 32, 2, (32, 0, 0))}


def test_a_launch_forgets_the_one_before(programs: dict[bool, ptx.Program]) -> None:
    for _ in range(3):
        for kernel in ("blocks_write_and_read", "read_then_write"):
            assert run(programs[False], kernel)[0].findings == []
            assert run(programs[True], kernel)[0].findings


@pytest.mark.parametrize("size", [32, 100, 8192, 1 << 20])
@pytest.mark.parametrize("stride", [1, 8, 9])
def test_shadow_state_is_at_most_three_bytes_for_one(size: int, stride: int) -> None:
    # Every block owns every eighth word: eight writers to a sector, which all have to be told apart.
    source = """extern "C" __global__ void interleaved(int* out, int n, int stride) {
        for (int i = threadIdx.x; i * 8 < n; i += blockDim.x) {
            int at = (i * 8 * stride + blockIdx.x) % n;
            out[at] += 1 + blockIdx.x;
        }
    }"""
    kernels = compile_cuda_module(source, arch="sm_80").kernels
    program = ptx.Program.from_text(next(iter(kernels.values())).ptx)
    out = np.zeros(size, np.int32)
    report = program["interleaved"].launch(8, 128, [out, np.int32(size), np.int32(stride)], checks=True)
    assert report.buffer_bytes == 4 * size
    assert report.shadow_bytes <= 3 * (4 * size + 31) // 32 * 32
    assert report.shadow_bytes >= 4 * size
    plain = program["interleaved"].launch(8, 128, [out, np.int32(size), np.int32(stride)])
    assert plain.shadow_bytes == 0


@pytest.mark.parametrize("apart", [1, 4, 8, 16])
def test_neighbours_in_other_lanes_need_no_records_of_their_own(apart: int) -> None:
    """Triton often lets lanes that lie 16, 8 or 4 apart access what lies side by side."""
    source = """extern "C" __global__ void turned(int4* out, const int4* in, int apart) {
        int t = threadIdx.x, per = 32 / apart, lane = t % 32;
        int at = t / 32 * 32 + lane % apart * per + lane / apart;
        out[at] = in[at];
    }"""
    kernels = compile_cuda_module(source, arch="sm_80").kernels
    out, data = np.zeros(1024, np.int32), np.arange(1024, dtype=np.int32)
    program = ptx.Program.from_text(next(iter(kernels.values())).ptx)
    report = program["turned"].launch(1, 256, [out, data, np.int32(apart)], checks=True)
    assert (out == data).all()
    assert report.findings == []
    assert report.shadow_bytes == 2 * (40 * 1024 * 4 // 32 + 16 * 1024 * 4 // 128)
