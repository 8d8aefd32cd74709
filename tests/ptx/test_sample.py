"""A sample of a launch's blocks, and constant memory as a path of its own."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.analysis.prediction.counting import launch_counts
from workbench.errors import ArgumentError
from workbench.launch import devices
from workbench.ptx.sample import blocks_of, middles_of, parts_of
from workbench.toolchain import compile_cuda

SOURCE = """
__constant__ float table[32];
extern "C" __global__ void f(float *out, const float *x) {
    int i = blockIdx.x * 64 + threadIdx.x;
    out[i] = x[i] * table[3] + x[i + 8] + table[threadIdx.x % 4];
}
"""


@pytest.fixture(scope="module")
def kernel():
    return compile_cuda(SOURCE, "f", threads_per_block=64)


def run(kernel, blocks, **options):
    out, x = np.zeros(64 * blocks, np.float32), np.ones(64 * blocks + 8, np.float32)
    return devices.get("sim").launch(kernel, blocks, 64, [out, x], statistics=True, **options), out


def test_a_sample_runs_its_blocks_only_and_stands_for_all(kernel):
    whole, _ = run(kernel, 64)
    part, out = run(kernel, 64, sample=blocks_of((64,), 8))
    assert (part.blocks_run, whole.blocks_run) == (8, 64)
    assert (np.abs(out.reshape(64, 64)).sum(axis=1) > 0).sum() == 8
    of_whole, of_part = launch_counts(whole, kernel), launch_counts(part, kernel)
    for name in ("warp_instructions", "global_load_sectors", "mix", "chain", "unique_bytes_written"):
        assert of_part[name] == of_whole[name], name
    assert of_part["unique_bytes_read"] == pytest.approx(of_whole["unique_bytes_read"], rel=0.1)


def test_places_are_spread_and_neighbours_come_together():
    found = blocks_of((40, 30, 2), 16)
    assert len(found) == 16 == len(set(found))
    assert {(x % 40 < 40, y < 30, z < 2) for x, y, z in found} == {(True, True, True)}
    assert all(sum(abs(x - a) + abs(y - b) == 1 and z == c for a, b, c in found) >= 2 for x, y, z in found)
    assert blocks_of((3, 2), 8) is None, "so few that all are run"


@pytest.mark.parametrize("sample", [[], [(64, 0, 0)], [(-1,)]])
def test_blocks_that_are_none_are_refused(kernel, sample):
    with pytest.raises(ArgumentError, match="sample"):
        run(kernel, 64, sample=sample)


def test_constant_memory_is_no_global_memory(kernel):
    report, _ = run(kernel, 2)
    constant = [line for line in report.lines if line.space == "constant"]
    assert report.global_load_requests == 2 * 4, "x twice for each of four warps"
    assert sorted(line.wavefronts / line.requests for line in constant) == [1, 4], "one for each different address"
    assert report.mix["constant"] == 2 * 4
    assert report.shared_wavefronts == 0
    assert not any("table" in buffer.name and buffer.read_moved for buffer in report.buffers)


def test_what_a_block_reads_again_is_counted_by_its_distance(kernel):
    report, _ = run(kernel, 1)
    (x,) = (buffer for buffer in report.buffers if buffer.read_moved)
    assert sum(x.read_again) == x.read_moved - x.read_by_blocks > 0


def test_the_middles_of_equal_parts():
    assert parts_of((64, 16, 4), 4) == (4, 1, 1)
    assert parts_of((2, 3), 8) == (2, 3, 1)
    assert parts_of((1, 1, 9), 4) == (1, 1, 4)
    assert middles_of((64, 16, 4), (4, 1, 1)) == [(8, 8, 2), (24, 8, 2), (40, 8, 2), (56, 8, 2)]
    assert middles_of((2, 3), (2, 3, 1)) == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 2, 0), (1, 2, 0)]
