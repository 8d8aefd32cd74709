"""Lanes that part and meet: loops, break, continue, early return, and warp-wide operations after them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ptx_support import module

from workbench import ptx
from workbench.errors import KernelFault
from workbench.toolchain import compile_cuda_module

SOURCE = Path(__file__).parent / "cuda_divergence.cu"


@pytest.fixture(scope="module")
def program() -> ptx.Program:
    kernels = compile_cuda_module(SOURCE, arch="sm_80").kernels
    return ptx.Program.from_text(next(iter(kernels.values())).ptx)


DATA = np.random.default_rng(4).integers(0, 30, 64).astype(np.int32)


def nested_loops(t: int) -> int:
    total = 0
    for i in range(t % 7 + 1):
        if (t + i) % 3 == 0:
            continue
        if total > 50:
            break
        if t & 1:
            total += int(DATA[(t + i) % 64])
        else:
            total += sum(int(DATA[j]) * 2 for j in range(t & 3))
    return total


def early_return(t: int) -> int:
    if DATA[t] % 5 == 0:
        return 99
    total = 0
    while total < DATA[t]:
        total += t % 4 + 1
        if total % 11 == 7:
            return -total
    return total


def collatz(x: int) -> int:
    steps = 0
    while x != 1:
        x = 3 * x + 1 if x % 2 else x // 2
        steps += 1
    return steps


def call_and_switch(t: int) -> int:
    kind = DATA[t] % 6
    if kind == 0:
        return collatz(t + 1)
    if kind in (1, 2):
        return (t * t if kind == 1 else 0) + 3
    if kind == 3:
        return sum(range(min(t, 9)))
    if kind == 4:
        value, i = 0, t
        while i:
            value, i = value ^ i, i // 2
        return value
    return int(DATA[t])


def test_nested_loops(program: ptx.Program) -> None:
    out = np.zeros(64, np.int32)
    program["nested_loops"].launch(1, 64, [out, DATA, 64])
    raw = [nested_loops(t) for t in range(64)]
    for t in range(64):
        warp = t // 32 * 32
        neighbour = raw[t + 1] if t % 32 != 31 else raw[t]
        assert out[t] == raw[t] + neighbour + sum(raw[warp + i] > 10 for i in range(32))


def test_early_return(program: ptx.Program) -> None:
    out = np.full(64, 99, np.int32)
    program["early_return"].launch(1, 64, [out, DATA, 64])
    assert out.tolist() == [early_return(t) for t in range(64)]


def test_switch_and_inlined_call(program: ptx.Program) -> None:
    out = np.zeros(64, np.int32)
    program["call_and_switch"].launch(1, 64, [out, DATA, 64])
    assert out.tolist() == [call_and_switch(t ^ 5) for t in range(64)]


def test_lanes_meet_again_right_after_the_loop(program: ptx.Program) -> None:
    data, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    report = program["exit_before_loop"].launch(1, 64, [out, data, 64], statistics=True)
    assert out.tolist() == list(range(1, 65))
    stores = [line for line in report.lines if line.is_store]
    assert [(line.executions, line.active_lanes) for line in stores] == [(2, 64)]


def test_lock_within_a_warp(program: ptx.Program) -> None:
    out, lock = np.zeros(1, np.int32), np.zeros(1, np.int32)
    program["lanes_wait_for_each_other"].launch(3, 40, [out, lock, 0], seconds_limit=60)
    assert out[0] == 120


def test_lanes_that_spin_for_each_other(program: ptx.Program) -> None:
    out, flag = np.zeros(64, np.int32), np.zeros(1, np.int32)
    program["spin_until_set"].launch(1, 64, [out, flag, 0], seconds_limit=60)
    assert out.tolist() == ([1] * 31 + [2]) * 2


def test_indexed_branches() -> None:
    """brx.idx: every lane goes to the label of its index, also where labels repeat; outside the table is a trap."""
    body = """mov.u32 %r60, %tid.x; ld.param.u64 %d1, [out]; ld.param.u32 %r10, [most]; mad.wide.u32 %d2, %r60, 4, %d1;
    rem.u32 %r1, %r60, %r10; TABLE: .branchtargets A, B, A, C;
    brx.idx %r1, TABLE;
    A: mov.u32 %r2, 10; bra.uni END; B: mov.u32 %r2, 20; bra.uni END; C: mov.u32 %r2, 30;
    END: st.global.u32 [%d2], %r2;"""
    program = ptx.Program(module("switch", ".param .u64 out, .param .u32 most", body))
    out = np.zeros(32, np.uint32)
    report = program["switch"].launch(1, 32, [out, 4], statistics=True)
    assert out.tolist() == [10, 20, 10, 30] * 8
    assert sum(line.text.startswith("brx.idx") for line in report.lines) == 1
    with pytest.raises(KernelFault, match="trap"):
        program["switch"].launch(1, 32, [out, 5])
