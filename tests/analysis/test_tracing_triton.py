"""Traces of kernels that Triton compiled: attributed to the lines of the Python source."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import traced_triton
import traced_triton_helper

import workbench as wb
from workbench.toolchain import compile_triton

KERNEL_FILE = Path(traced_triton.__file__)
HELPER_FILE = Path(traced_triton_helper.__file__)
N = 1024


def line_of(file: Path, mark: str) -> int:
    return 1 + next(i for i, text in enumerate(file.read_text().splitlines()) if text.endswith(f"# {mark}"))


@pytest.fixture(scope="module")
def traced():
    kernel = compile_triton(
        traced_triton.activate,
        {"x": "*fp32", "out": "*fp32", "n": "i32"},
        {"BLOCK": 256},
        num_warps=2,
        attributes={"n": 16},
    )
    x, out = torch.linspace(-4, 4, N), torch.zeros(N)
    found = wb.trace_kernel(kernel, grid=N // 256, args=[x, out, N])  # a Triton kernel knows its block
    torch.testing.assert_close(out, torch.exp(x - x * x))
    return found


def test_memory_by_python_line(traced):
    """256 floats of a program on 64 threads: 4 in a row each, so a warp's one request takes 512 bytes, 16 sectors."""
    for mark in ("load", "store"):
        line = traced.line(line_of(KERNEL_FILE, mark))
        assert line.text.strip().endswith(f"# {mark}")
        assert (line.global_requests, line.global_sectors, line.global_ideal_sectors) == (8, 128, 128)
        assert line.used_fraction == 1.0
    assert (traced.unique_bytes, traced.reuse) == (2 * 4 * N, 1.0)
    assert [name for name, _ in traced.buffers.rows] == ["x", "out"]


def test_a_helper_of_another_file_counts_at_the_call(traced):
    assert {line.path for line in traced.lines if line.line} == {str(KERNEL_FILE)}
    call = traced.line(line_of(KERNEL_FILE, "call"))
    # two exp2 for each of 4 elements per thread, in 8 warps
    assert call.mix["special"] == 2 * 4 * 8
    unfolded = traced.unfolded()
    inside = unfolded.line(line_of(HELPER_FILE, "two exps"), HELPER_FILE.name)
    assert inside.mix["special"] == call.mix["special"]
    assert "tl.exp(x) * tl.exp(-x * x)" in inside.text
    assert not any(line.path == str(KERNEL_FILE) and line.line == call.line for line in unfolded.lines)


def test_machine_code_follows_the_calls_too(traced):
    """ptxas keeps no calls for Triton's code; they come through the lines of the PTX."""
    call = line_of(KERNEL_FILE, "call")
    at_call = traced.sass.at(str(KERNEL_FILE), call)
    assert at_call["MUFU.EX2"] == 8
    assert traced.sass.at(str(KERNEL_FILE), line_of(KERNEL_FILE, "load"))["LDG.128"] == 1
    assert traced.sass.at(str(KERNEL_FILE), line_of(KERNEL_FILE, "store"))["STG.128"] == 1
    assert not any(path == str(HELPER_FILE) for path, _ in traced.sass.by_line)
    unfolded = traced.unfolded().sass
    assert unfolded.at(str(HELPER_FILE), line_of(HELPER_FILE, "two exps"))["MUFU.EX2"] == 8
    assert unfolded.counts.total == traced.sass.counts.total


def test_occupancy_and_block_are_the_kernels_own(traced):
    assert traced.report.block == (64, 1, 1)
    assert traced.kernel.threads_per_block == 64
    assert traced.occupancy == traced.kernel.occupancy


@pytest.mark.parametrize("variant", ["cuda_thread_group", "triton_online_softmax"])
def test_a_trace_of_an_op_has_the_same_parts(variant: str):
    found = wb.trace("paged_attention", "small", variant=variant, record_block=(0, 0, 0))
    assert found.recording.block == (0, 0, 0)
    assert found.mix.total == found.instructions
    assert found.occupancy.blocks_per_sm > 0
    assert 0 < found.used_fraction <= 1
    assert found.global_ideal_sectors <= found.global_sectors
    assert found.shared_ideal_wavefronts <= found.shared_wavefronts
    assert found.sass.counts.starting("LDG").total > 0
    assert found.reuse > 1
    assert max(map(len, str(found).splitlines())) <= 110
