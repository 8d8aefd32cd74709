"""Cooperative groups, cuda::barrier and cuda::pipeline: right and clean, and found where a wait is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench import ptx
from workbench.errors import ArgumentError, KernelFault
from workbench.toolchain import compile_cuda, compile_cuda_module, tools

SOURCE = Path(__file__).parent / "cuda_groups.cu"
pytestmark = pytest.mark.skipif(
    not tools.library_includes(), reason="NVIDIA's C++ libraries are missing: pip install 'cuda-toolkit[cccl]>=13,<14'"
)


@pytest.fixture(scope="module", params=["sm_80", pytest.param("sm_89", marks=pytest.mark.long)])
def program(request: pytest.FixtureRequest) -> ptx.Program:
    return ptx.Program(next(iter(compile_cuda_module(SOURCE, arch=request.param).kernels.values())).ptx)


def run(kernel: ptx.PtxKernel, threads: int, *args: object) -> ptx.LaunchReport:
    return kernel.launch(1, threads, args, checks=True, seconds_limit=30)


def tile_rows(values: np.ndarray, size: int) -> list[list[int]]:
    """What show_tile writes, from the definitions of the operations."""
    rows: list[list[int]] = [[] for _ in range(9)]
    for start in range(0, len(values), size):
        tile = [int(v) for v in values[start : start + size]]
        warp = [int(v) for v in values[start // 32 * 32 : start // 32 * 32 + 32]]
        odd = [v for v in warp if v & 1]
        for lane, value in enumerate(tile):
            rows[0].append(sum(tile))
            rows[1].append(sum(tile[: lane + 1]))
            rows[2].append(max(tile[:lane], default=-(2**31)))
            rows[3].append(tile[min(lane + 1, size - 1)] + 1000 * (start // size))
            rows[4].append(sum((v & 1) << i for i, v in enumerate(tile)))
            rows[5].append(int(3 in tile) + 2)
            same = [i for i, v in enumerate(tile) if v % 3 == value % 3]
            rows[6].append(100 * len(same) + same.index(lane))
            rows[7].append(1000 * len(odd) + max(odd) if value & 1 else -1)
            rows[8].append(tile[0] + tile[lane ^ 1])
    return rows


@pytest.mark.sampled(6)
@pytest.mark.parametrize("size", [32, 16, 4])
def test_tiles(program: ptx.Program, size: int) -> None:
    values = np.random.default_rng(size).integers(0, 50, 128).astype(np.int32)
    out = np.zeros((9, 128), np.int32)
    report = run(program[f"tile_{size}"], 128, values, out)
    assert report.findings == []
    expected = np.array(tile_rows(values, size)) & 0xFFFFFFFF
    got = out.astype(np.int64) & 0xFFFFFFFF
    # An exclusive scan gives the first lane nothing that is defined for the maximum: only the others count.
    first = np.arange(128) % size == 0
    got[2, first] = expected[2, first]
    np.testing.assert_array_equal(got, expected)


COPIES = {"group_copy": 1, "barrier_copy": 3}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("threads", [64, 256])
def test_copies(program: ptx.Program, name: str, threads: int) -> None:
    data = np.arange(256 * COPIES[name], dtype=np.int32)
    out = np.zeros_like(data)
    report = run(program[name], threads, data, out)
    assert report.findings == []
    assert (out.reshape(-1, 256) == data.reshape(-1, 256)[:, ::-1]).all()


def test_pipelines(program: ptx.Program) -> None:
    data = np.random.default_rng(9).integers(-99, 99, (7, 64, 4)).astype(np.int32)
    out = np.zeros(64, np.int32)
    assert run(program["pipeline_sum"], 64, data, out, 7).findings == []
    assert (out == data.sum((0, 2))).all()
    data = np.random.default_rng(9).integers(-99, 99, (9, 64)).astype(np.int32)
    assert run(program["pipeline_roles"], 128, data, out, 9).findings == []
    assert (out == data.sum(0)[::-1]).all()


@pytest.mark.parametrize(("name", "steps"), [("group_copy", ()), ("barrier_copy", ()), ("pipeline_sum", (7,))])
@pytest.mark.sampled(3)
def test_a_missing_wait_is_found(name: str, steps: tuple[int, ...]) -> None:
    kernel = ptx.Program(compile_cuda(SOURCE, name, arch="sm_80", macros={"NO_WAIT": 1}).ptx)[name]
    report = run(kernel, 64, np.zeros(4096, np.int32), np.zeros(4096, np.int32), *steps)
    assert "cp.async data read before wait" in {finding.kind for finding in report.findings}, report


def test_tiles_of_several_warps() -> None:
    """block_tile_memory keeps the barriers of its tiles in the shared memory that sm_80 reserves."""
    source = """#include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void sums(int* out, const int* in) {
      __shared__ cg::block_tile_memory<256> memory;
      auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
      int sum = cg::reduce(tile, in[threadIdx.x], cg::plus<int>());
      out[threadIdx.x] = sum + tile.shfl(in[threadIdx.x], 3);
    }"""
    kernel = ptx.Program(compile_cuda(source, "sums", arch="sm_80").ptx)["sums"]
    data, out = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
    report = kernel.launch(1, 256, [out, data], checks=True)
    assert report.findings == []
    tiles = data.reshape(4, 64)
    np.testing.assert_array_equal(out, np.repeat(tiles.sum(1) + tiles[:, 3], 64))


GRID = """#include <cooperative_groups.h>
extern "C" __global__ void turns(int* data, int* out, int rounds) {
  auto grid = cooperative_groups::this_grid();
  int i = grid.thread_rank(), n = grid.size();
  for (int k = 0; k < rounds; k++) {
    int next = data[(i + 33) % n];
    grid.sync();
    data[i] = next + 1;
#ifndef FAULT
    grid.sync();
#endif
  }
  out[i] = data[(i + 77) % n];
}"""


@pytest.mark.parametrize("last_warp_first", [False, True])
@pytest.mark.parametrize("fault", [False, True])
def test_a_cooperative_launch(fault: bool, last_warp_first: bool) -> None:
    macros = {"FAULT": 1} if fault else {}
    kernel = ptx.Program(compile_cuda(GRID, "turns", arch="sm_80", macros=macros).ptx)["turns"]
    data, out = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
    start, i = data.copy(), np.arange(256)
    options = {"checks": True, "cooperative": True, "seconds_limit": 60, "last_warp_first": last_warp_first}
    report = kernel.launch(4, 64, [data, out, 3], **options)
    if fault:
        assert {finding.kind for finding in report.findings} == {"global race"}
        assert any(finding.other_block is not None for finding in report.findings)
        return
    assert report.findings == [], report
    np.testing.assert_array_equal(data, start[(i + 99) % 256] + 3)
    np.testing.assert_array_equal(out, data[(i + 77) % 256])


@pytest.mark.parametrize(
    ("arch", "threads", "shared_bytes", "registers", "most"),
    [
        ("sm_80", 1024, 0, None, 2 * 108),
        ("sm_90", 1024, 0, None, 2 * 132),
        ("sm_90", 64, 0, None, 32 * 132),
        ("sm_90", 64, 100 * 1024, None, 2 * 132),
        ("sm_90", 256, 0, 200, 132),
    ],
    ids=["threads", "another GPU", "blocks", "shared memory", "registers"],
)
def test_blocks_that_do_not_fit_are_refused(
    arch: str, threads: int, shared_bytes: int, registers: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many fit as the occupancy query says, on the GPU that stands for the architecture."""
    kernel = wb.load_cuda(GRID, arch=arch, device="sim").turns
    if registers is not None:
        monkeypatch.setattr(type(kernel.compiled), "registers", registers)
    room, rounds = np.zeros((most + 1) * threads, np.int32), 0
    options = {"cooperative": True, "shared_bytes": shared_bytes}
    with pytest.raises(ArgumentError, match=f"{most + 1} blocks; allowed: at most {most} in a cooperative launch"):
        kernel(most + 1, threads, room, room.copy(), rounds, **options)
    if shared_bytes:  # the others would take longer, for nothing else
        assert kernel(most, threads, room, room.copy(), rounds, **options).blocks_run == most


def test_grid_sync_is_refused_where_it_is_called() -> None:
    source = """#include <cooperative_groups.h>
    extern "C" __global__ void ranks(int* out) {
      auto grid = cooperative_groups::this_grid();
      out[grid.thread_rank()] = grid.size();
      if (out[128]) grid.sync();
    }"""
    kernel = ptx.Program(compile_cuda(source, "ranks", arch="sm_80").ptx)["ranks"]
    out = np.zeros(129, np.int32)
    kernel.launch(2, 64, [out])
    assert (out[:128] == 128).all()
    out[128] = 1
    with pytest.raises(KernelFault, match=r"source\.cu:5\b.*grid\.sync\(\) needs a cooperative launch"):
        kernel.launch(2, 64, [out])
