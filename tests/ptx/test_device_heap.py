"""malloc and free inside kernels: exact bounds, what is freed, what is not, and how much there is."""

from __future__ import annotations

import re

import numpy as np
import pytest

from workbench import ptx
from workbench.errors import KernelFault
from workbench.ptx.device_heap import HEAP_BYTES

HEAD = """.version 8.3
.target sm_90
.address_size 64
.extern .func (.param .b64 result) malloc(.param .b64 bytes);
.extern .func free(.param .b64 pointer);
"""
MALLOC = """  {
  .param .b64 bytes;
  st.param.b64 [bytes], %size;
  .param .b64 result;
  call.uni (result), malloc, (bytes);
  ld.param.b64 %block, [result];
  }
"""
FREE = """  {
  .param .b64 pointer;
  st.param.b64 [pointer], %block;
  call.uni free, (pointer);
  }
"""
STORE = """  add.s64 %at, %block, %offset;
  st.global.u32 [%at], %value;
"""
LOAD = """  add.s64 %at, %block, %offset;
  ld.global.u32 %value, [%at];
"""
SEND = """  cvt.u64.u32 %at, %lane;
  shl.b64 %at, %at, 3;
  add.s64 %at, %at, %out;
  st.global.u64 [%at], %block;
"""
TAKE = """  cvt.u64.u32 %at, %lane;
  shl.b64 %at, %at, 3;
  add.s64 %at, %at, %out;
  ld.global.u64 %block, [%at];
"""


def kernel(name: str, *parts: str) -> str:
    return f""".visible .entry {name}(.param .u64 out, .param .u64 size, .param .u64 offset)
{{
  .reg .b64 %out, %size, %offset, %block, %at;
  .reg .b32 %lane, %value;
  ld.param.u64 %out, [out];
  ld.param.u64 %size, [size];
  ld.param.u64 %offset, [offset];
  mov.u32 %lane, %tid.x;
  mov.u32 %value, 7;
  mov.b64 %block, 0;
{"".join(parts)}  ret;
}}
"""


@pytest.fixture
def program() -> ptx.Program:
    kernels = {
        "make": (MALLOC, SEND), "use": (TAKE, STORE, LOAD), "end": (TAKE, FREE), "read": (TAKE, LOAD),
        "whole": (MALLOC, STORE, LOAD, FREE), "fresh": (MALLOC, LOAD, FREE), "late": (MALLOC, FREE, STORE),
        "twice": (MALLOC, FREE, FREE), "nothing": (FREE,), "stranger": (MALLOC, "  add.s64 %block, %block, 4;\n", FREE),
    }  # fmt: skip
    return ptx.Program(HEAD + "".join(kernel(name, *parts) for name, parts in kernels.items()))


def run(program: ptx.Program, name: str, size: int, offset: int = 0, threads: int = 1, out=None, **options):
    out = np.zeros(threads, np.uint64) if out is None else out
    return program[name].launch(1, threads, [out, size, offset], **options), out


def test_blocks_stand_apart_and_last_until_they_are_freed(program: ptx.Program):
    _, blocks = run(program, "make", 20, threads=32)
    addresses = np.sort(blocks)
    assert addresses[0] > 0
    assert np.diff(addresses).min() >= 32
    assert (addresses % 16 == 0).all()
    run(program, "use", 0, offset=16, threads=32, out=blocks)
    run(program, "end", 0, threads=32, out=blocks)
    with pytest.raises(KernelFault, match=r"byte 0 of a block of 20 bytes of the device heap that was freed"):
        run(program, "use", 0, threads=32, out=blocks)


@pytest.mark.parametrize(
    ("name", "size", "offset", "words"),
    [
        ("whole", 20, 16, None), ("nothing", 0, 0, None),
        ("whole", 20, 20, r"out-of-bounds: 4 bytes at 0x\w+, 0 bytes past the end of a block of 20 bytes that malloc"),
        ("whole", 18, 16, r"out-of-bounds: 4 bytes at 0x\w+, byte 16 of a block of 18 bytes that malloc gave"),
        ("whole", 20, 24, "4 bytes past the end of a block of 20 bytes"),
        ("late", 20, 4, "byte 4 of a block of 20 bytes of the device heap that was freed"),
        ("twice", 20, 0, r"device heap misuse: free\(0x\w+\), byte 0 of a block of 20 bytes .* that was freed"),
        ("stranger", 20, 0, r"free\(0x\w+\), byte 4 of a block of 20 bytes that malloc gave"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("checks", [False, True])
def test_bounds_are_exact(program: ptx.Program, name, size, offset, words, checks):
    if words is None or checks:
        report, _ = run(program, name, size, offset, checks=checks)
        said = " ".join(finding.message for finding in report.findings)
    else:
        with pytest.raises(KernelFault) as caught:
            run(program, name, size, offset)
        said = str(caught.value)
    if words is None:
        assert said == ""
    else:
        assert re.search(words, said), said


def test_a_block_begins_unwritten(program: ptx.Program):
    report, _ = run(program, "fresh", 16, checks=True)
    assert [finding.kind for finding in report.findings] == ["uninitialised global read"]
    report, _ = run(program, "whole", 16, checks=True, threads=64)
    assert report.findings == []


def test_a_heap_that_is_full_gives_nothing(program: ptx.Program):
    most = HEAP_BYTES // 16
    _, blocks = run(program, "make", most, threads=20)
    assert np.count_nonzero(blocks) == 16
    run(program, "end", 0, threads=20, out=blocks)
    for _ in range(9):  # more than the addresses that it has
        _, blocks = run(program, "make", most, threads=16)
        assert np.count_nonzero(blocks) == 16
        run(program, "end", 0, threads=16, out=blocks)
    assert run(program, "make", 1 << 63)[1][0] == 0
    assert run(program, "make", 0)[1][0] != 0


def test_what_nobody_freed_is_told_by_its_place(program: ptx.Program):
    _, kept = run(program, "make", 24, threads=3)
    run(program, "whole", 24, threads=3)
    (line,) = program.heap.leaks()
    assert line.startswith("make: 3 blocks of malloc, 72 bytes together, never freed: PTX line ")
    assert "malloc" in line.rpartition("PTX line")[2]
    run(program, "end", 0, threads=3, out=kept)
    assert program.heap.leaks() == []


def test_traffic_of_the_heap_is_counted(program: ptx.Program):
    report, _ = run(program, "whole", 16, threads=32, statistics=True)
    assert "the device heap" in [buffer.name for buffer in report.buffers]
