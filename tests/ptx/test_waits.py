"""Waits in plain memory: endless ones are deadlocks that say who waits for what, all others go on."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.errors import KernelFault, KernelTimeout

SOURCE = r"""
typedef unsigned u32;
__device__ u32 acquired(u32 *p) { u32 v; asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p)); return v; }

extern "C" __global__ void until(u32 *flag, u32 *out) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
#if WAY == 0
        while (*(volatile u32 *)flag != 7);
#elif WAY == 1
        while (acquired(flag) != 7);
#elif WAY == 2
        while (atomicCAS(flag, 7u, 8u) != 7);
#elif WAY == 3
        for (u32 ns = 8; *(volatile u32 *)flag != 7; ns = ns < 256 ? 2 * ns : ns) __nanosleep(ns);
#elif WAY == 4
        while (atomicAdd(flag, 0u) != 7);
#endif
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

extern "C" __global__ void for_a_time(u32 *flag, u32 *out) {
#if WAY == 0
    long long start = clock64();
    while (*(volatile u32 *)flag != 7 && clock64() - start < 30000000);
#else
    for (u32 i = 0; *(volatile u32 *)flag != 7 && i < 6000000; ++i);
#endif
    *out = 1;
}

extern "C" __global__ void locked(u32 *lock, u32 *count, int gives_back) {
    bool done = false;
    while (!done)
        if (atomicCAS(lock, 0u, 1u) == 0) {
            *(volatile u32 *)count += 1;
            __threadfence();
            if (gives_back) atomicExch(lock, 0u);
            done = true;
        }
}

extern "C" __global__ void in_order(u32 *flag, u32 *out) {  // each block waits for the next one
    u32 next = blockIdx.x + 1;
    if (threadIdx.x == 0) {
        while (next < gridDim.x && acquired(flag + next) == 0);
        out[blockIdx.x] = 1;
        __threadfence();
        atomicExch(flag + blockIdx.x, 1u);
    }
}

extern "C" __global__ void together(volatile u32 *flag, u32 *out) {  // every thread meets in each pass
    __shared__ u32 seen;
    do {
        if (threadIdx.x == 0) seen = *flag;
        __syncthreads();
        if (seen) break;
        __syncthreads();
    } while (true);
    out[threadIdx.x] = 1;
}
"""


def kernels(way: int = 0):
    return wb.load_cuda(SOURCE, macros={"WAY": way}, device="sim")


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("way", range(5))
def test_a_flag_that_nobody_sets_is_a_deadlock(way, checks):
    flag, out = np.array([5], np.uint32), np.zeros(128, np.uint32)
    with pytest.raises(KernelFault) as caught:
        kernels(way).until(2, 64, flag, out, checks=checks, seconds_limit=60)
    finding = caught.value.finding
    assert finding.kind == "deadlock"
    line = next(at for at, text in enumerate(SOURCE.splitlines(), 1) if f"WAY == {way}" in text) + 1
    assert finding.line == (3 if way == 1 else line)  # the inlined function's
    assert finding.buffer == "flag"
    said = str(caught.value)
    assert "byte 0 of flag, which has 4 bytes" in said
    assert "they hold 5" in said
    if way != 2:  # an atomicCAS compares by itself
        assert "compared with 7" in said
    assert "1 thread waits so, in block (0, 0, 0), where 63 wait at a barrier for them" in said


@pytest.mark.parametrize("way", [0, 1], ids=["clock", "counter"])
def test_a_wait_with_an_end_ends(way):
    flag, out = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    kernels(way).for_a_time(1, 1, flag, out)
    assert out[0] == 1


def test_lanes_of_a_warp_that_take_a_lock_in_turn():
    lock, count = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    kernels().locked(1, 32, lock, count, 1)
    assert count[0] == 32


def test_a_lock_that_is_not_given_back():
    lock, count = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    with pytest.raises(
        KernelFault, match=r"deadlock: 4 bytes at .*byte 0 of lock.*hold 1 .*31 threads wait so"
    ) as caught:
        kernels().locked(1, 32, lock, count, 0, seconds_limit=60)
    assert caught.value.finding.kind == "deadlock"
    assert count[0] == 1


def test_a_block_that_waits_for_a_later_one_lets_it_start():
    flag, out = np.zeros(6, np.uint32), np.zeros(6, np.uint32)
    report = kernels().in_order(6, 32, flag, out, checks=True, seconds_limit=60)
    assert out.tolist() == [1] * 6
    assert not report.findings
    assert [note.kind for note in report.notes] == ["wait for a block that starts later"]
    assert report.notes[0].buffer == "flag"


def test_a_wait_in_which_all_threads_meet():
    flag, out = np.zeros(1, np.uint32), np.zeros(64, np.uint32)
    with pytest.raises(KernelFault, match=r"deadlock: 4 bytes at .*byte 0 of flag") as caught:
        kernels().together(1, 64, flag, out, seconds_limit=60)
    assert caught.value.finding.kind == "deadlock"


def test_nothing_moves_for_too_long():
    source = 'extern "C" __global__ void count(unsigned *x) { for (unsigned long long i = 1; i; ++i) *x += i & 3; }'
    with pytest.raises(KernelTimeout, match=r"limit: 0\.5 s of processor time in which no thread ended") as caught:
        wb.load_cuda(source, device="sim").count(1, 1, np.zeros(1, np.uint32), idle_limit=0.5, seconds_limit=60)
    assert caught.value.finding.kind == "timeout"
