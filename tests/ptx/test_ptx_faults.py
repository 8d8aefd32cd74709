"""Faults stop a launch with the kernel, block, thread, address, buffer and line; limits stop what does not end."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest
from ptx_support import module

from workbench import ptx
from workbench.errors import KernelFault, KernelTimeout
from workbench.toolchain import compile_cuda_module

SOURCE = Path(__file__).parent / "cuda_faults.cu"
LINES = SOURCE.read_text().splitlines()


@pytest.fixture(scope="module")
def program() -> ptx.Program:
    kernels = compile_cuda_module(SOURCE, arch="sm_80").kernels
    return ptx.Program.from_text(next(iter(kernels.values())).ptx)


def line_of(mark: str) -> int:
    return 1 + next(i for i, text in enumerate(LINES) if text.endswith(f"// {mark}"))


def fault(program: ptx.Program, kernel: str, grid: int, block: int, args: list) -> str:
    with pytest.raises(KernelFault) as caught:
        program[kernel].launch(grid, block, args)
    return str(caught.value)


def test_out_of_bounds(program: ptx.Program) -> None:
    data, out = np.zeros(256, np.float32), np.zeros(256, np.float32)
    message = fault(program, "past_the_end", 4, 64, [out, data])
    assert message.startswith("past_the_end: out-of-bounds: 4 bytes at 0x")
    assert "0 bytes past the end of argument 1, which has 1024 bytes" in message
    assert f"cuda_faults.cu:{line_of('out-of-bounds')} (PTX line" in message
    assert message.endswith("block (3, 0, 0), thread (63, 0, 0); argument 1: float32 (256,)")


def test_the_lowest_block_is_named_whatever_the_threads(program: ptx.Program) -> None:
    data, out = np.zeros(64 * 20, np.float32), np.zeros(64 * 40, np.float32)
    messages = {_strip(fault(program, "past_the_end", 40, 64, [out, data])) for _ in range(5)}
    assert len(messages) == 1
    assert "block (19, 0, 0), thread (63, 0, 0)" in messages.pop()


def _strip(message: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "", message)


@pytest.mark.parametrize(
    ("offset", "where"), [(-4, "4 bytes before argument 0"), (256, "0 bytes past the end of argument 0")]
)
def test_nearest_buffer(offset: int, where: str) -> None:
    text = module("store", ".param .u64 out", f"ld.param.u64 %d1, [out]; st.global.u32 [%d1+{offset}], 1;")
    with pytest.raises(KernelFault, match=where):
        ptx.Program(text)["store"].launch(1, 1, [np.zeros(64, np.uint32)])


def test_null_pointer() -> None:
    text = module("store", ".param .u64 out", "ld.param.u64 %d1, [out]; st.global.u32 [%d1+8], 1;")
    with pytest.raises(KernelFault, match="a null pointer"):
        ptx.Program(text)["store"].launch(1, 1, [None])


def test_an_access_across_the_end_of_a_view_is_caught() -> None:
    text = module("load", ".param .u64 in", "ld.param.u64 %d1, [in]; ld.global.v2.u32 {%r1, %r2}, [%d1+8];")
    data = np.zeros(64, np.uint32)
    with pytest.raises(KernelFault, match="argument 0"):
        ptx.Program(text)["load"].launch(1, 1, [data[:3]])
    ptx.Program(text)["load"].launch(1, 1, [data[:4]])


def test_writing_to_a_read_only_array() -> None:
    text = module(
        "store", ".param .u64 out", "ld.param.u64 %d1, [out]; ld.global.u32 %r1, [%d1]; st.global.u32 [%d1], 1;"
    )
    data = np.zeros(4, np.uint32)
    data.flags.writeable = False
    with pytest.raises(KernelFault, match="write to read-only memory"):
        ptx.Program(text)["store"].launch(1, 1, [data])
    assert data[0] == 0


def test_misaligned(program: ptx.Program) -> None:
    message = fault(program, "bad_alignment", 1, 32, [np.zeros(4, np.float32), np.zeros(64, np.float32)])
    assert "misaligned: 16 bytes" in message
    assert f"cuda_faults.cu:{line_of('misaligned')}" in message


def test_shared_overrun(program: ptx.Program) -> None:
    message = fault(program, "shared_overrun", 1, 32, [np.zeros(32, np.float32), np.zeros(32, np.float32)])
    assert "offset 128 of shared memory" in message
    assert f"cuda_faults.cu:{line_of('shared overrun')}" in message
    assert "thread (16, 0, 0)" in message


def test_local_overrun() -> None:
    text = module("local", "", ".local .align 4 .b8 depot[16]; mov.u64 %d1, depot; st.local.u32 [%d1+16], 1;")
    with pytest.raises(KernelFault, match="offset 16 of local memory"):
        ptx.Program(text)["local"].launch(1, 1, [])


def test_trap(program: ptx.Program) -> None:
    data = np.arange(32, dtype=np.float32)
    message = fault(program, "traps", 1, 32, [np.zeros(32, np.float32), data])
    assert "trap" in message
    assert f"cuda_faults.cu:{line_of('trap')}" in message
    assert "thread (6, 0, 0)" in message


def test_deadlock() -> None:
    text = module(
        "stuck", "", "mov.u32 %r60, %tid.x; setp.lt.u32 %p1, %r60, 32; @%p1 bar.sync 1, 64; @!%p1 bar.sync 2, 64;"
    )
    with pytest.raises(KernelFault, match=r"stuck: deadlock at PTX line \d+"):
        ptx.Program(text)["stuck"].launch(1, 64, [])


def test_instruction_limit(program: ptx.Program) -> None:
    args = [np.zeros(32, np.float32), np.zeros(1, np.float32)]
    with pytest.raises(KernelTimeout) as caught:
        program["never_ends"].launch(2, 64, args, instruction_limit=300_000)
    message = str(caught.value)
    assert "never_ends: timeout" in message
    assert f"cuda_faults.cu:{line_of('endless')}" in message
    assert "warp" in message
    assert "300,000 warp instructions" in message


def test_seconds_limit(program: ptx.Program) -> None:
    args = [np.zeros(32, np.float32), np.zeros(1, np.float32)]
    start = time.perf_counter()
    with pytest.raises(KernelTimeout, match=r"limit: 0\.2 s"):
        program["never_ends"].launch(2, 64, args, seconds_limit=0.2)
    assert time.perf_counter() - start < 5


def test_limits_that_are_not_reached(program: ptx.Program) -> None:
    out, data = np.zeros(128, np.float32), np.ones(128, np.float32)
    report = program["block_sum"].launch(1, 128, [out, data], instruction_limit=100_000, seconds_limit=30)
    assert report.instructions < 100_000
    assert set(out.tolist()) == {128.0}
