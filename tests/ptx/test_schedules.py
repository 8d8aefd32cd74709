"""Orders of blocks and warps from seeds: racy kernels show wrong values or deadlocks in some, right ones in none."""

from __future__ import annotations

import re

import numpy as np
import pytest

import workbench as wb
from workbench.ptx import Program
from workbench.ptx.late_stores import late_stores
from workbench.ptx.schedules import KIND
from workbench.toolchain.cuda import compile_cuda

HEAD = '#include <cuda_pipeline.h>\nextern "C" __global__ void k'
RACY = {
    "no barrier after a store to shared memory": (
        """(int *out) { __shared__ int x[256]; const int t = threadIdx.x;
        x[t] = t; /**/ out[blockIdx.x * 256 + t] = x[(t + 32) % 256]; }""",
        "__syncthreads();",
    ),
    "no barrier before the next round": (
        """(int *out) { __shared__ int x[256]; const int t = threadIdx.x; int s = 0;
        for (int i = 0; i < 8; ++i) { x[t] = i * t; __syncthreads(); s += x[255 - t]; /**/ }
        out[blockIdx.x * 256 + t] = s; }""",
        "__syncthreads();",
    ),
    "a sum of blocks without atomics": (
        """(int *out) { volatile int *p = out; if (threadIdx.x == 0) { const int old = *p; *p = old + 1; } }""",
        None,
    ),
    "a block reads what another one writes": (
        """(int *out) { const int t = threadIdx.x + blockIdx.x * 256; volatile int *p = out;
        if (blockIdx.x == 0) p[t] = t + 1; else p[t] = p[threadIdx.x]; }""",
        None,
    ),
    "no __syncwarp between lanes": (
        """(int *out) { __shared__ int x[256]; const int t = threadIdx.x;
        x[t] = t; asm volatile("" ::: "memory"); /**/ out[blockIdx.x * 256 + t] = x[t ^ 1]; }""",
        "__syncwarp();",
    ),
    "a block reads while others count": (
        """(int *out) { const int t = threadIdx.x; __shared__ int before; if (t == 0) out[0] = 0;
        __syncthreads(); atomicAdd(out + 512 + blockIdx.x, t); /**/ if (t == 0) before = out[512 + blockIdx.x];
        __syncthreads(); out[1024 + blockIdx.x * 256 + t] = before; }""",
        "__syncthreads();",
    ),
    "no fence before a block is counted": (
        """(int *out) { __shared__ bool last; const int t = threadIdx.x; if (t == 0) {
        out[t + blockIdx.x] = 7; /**/ last = atomicAdd(out + 512, 1) == 512 + gridDim.x - 1; }
        __syncthreads(); __threadfence(); if (last) out[1024 + t] = out[t]; }""",
        "__threadfence();",
    ),
    "no fence between warps": (
        """(int *out) { __shared__ int x; __shared__ volatile int flag; const int t = threadIdx.x;
        if (t == 0) x = flag = 0; __syncthreads();
        if (t == 32) { x = 7; /**/ flag = 1; }
        if (t == 0) { while (!flag) {} __threadfence_block(); out[blockIdx.x] = x; } }""",
        "__threadfence_block();",
    ),
    "no fence before a flag": (
        """(int *out) { volatile int *flag = out + 512; if (threadIdx.x) return;
        if (blockIdx.x == 0) { out[0] = 7; /**/ *flag = 7; return; }
        while (*flag != 7) {} __threadfence(); out[blockIdx.x] = out[0]; }""",
        "__threadfence();",
    ),
    "no fence behind a flag": (
        """(int *out) { volatile int *flag = out + 512; if (threadIdx.x) return;
        if (blockIdx.x == 0) { out[0] = 7; __threadfence(); *flag = 7; return; }
        while (*flag != 7) {} /**/ out[blockIdx.x] = out[0]; }""",
        "__threadfence();",
    ),
    "a copy that is not waited for": (
        """(int *out) { __shared__ int4 x[256]; const int t = threadIdx.x;
        __pipeline_memcpy_async(&x[t], (int4 *)out + 1024 + t, 16); __pipeline_commit(); /**/
        out[blockIdx.x * 256 + t] = x[t].x; }""",
        "__pipeline_wait_prior(0);",
    ),
}


def launched(body: str, **options):
    kernel = wb.load_cuda(HEAD + body).k
    out = np.arange(16 * 1024, dtype=np.int32)
    return wb.check_kernel(kernel, grid=4, block=256, args=(out,), **options)


@pytest.mark.parametrize("name", RACY)
def test_what_the_order_changes_is_found_within_64_orders(name: str):
    body, mend = RACY[name]
    strict = name == "no fence behind a flag"  # a load is early in strict launches alone
    found = [one for one in launched(body, schedules=64, strict=strict) if one.kind == KIND]
    assert found, name
    assert "schedule " in found[0].message
    assert "hold other values than in the usual order" in found[0].message
    if mend is not None:
        mended = launched(body.replace("/**/", mend), schedules=16, strict=strict)
        assert not mended.findings, str(mended)


def test_the_same_seed_gives_the_same_order():
    kernel = compile_cuda(HEAD + RACY["no barrier before the next round"][0], "k")
    results = []
    for seed in (3, 3, 4):
        out = np.zeros(1024, dtype=np.int32)
        report = Program(kernel.ptx)["k"].launch(4, 256, (out,), schedule=seed)
        results.append((out.copy(), report.order))
    (one, order), (same, again), (_, other) = results
    assert np.array_equal(one, same)
    assert order == again
    assert order.changes
    assert order != other


def test_a_finding_names_the_lines_of_a_schedule_with_few_changes():
    body = """(int *out) { volatile int *p = out;
    if (threadIdx.x) return;
    for (int i = 0; i < 4; ++i) { const int old = *p;
    *p = old + 1; } }"""
    [found] = [one for one in launched(body, schedules=64) if one.kind == KIND]
    assert {found.line, found.other_line} <= {2, 3, 4, 5}
    assert "schedule" in found.message
    assert "where warp 0 of block" in found.message
    assert "has to wait, while warp 0 of block" in found.message


def test_a_finding_names_the_store_that_is_seen_late():
    body, _ = RACY["no fence before a block is counted"]
    [found] = [one for one in launched(body, schedules=64) if one.kind == KIND]
    assert found.line == 3
    assert re.search(r"\(schedule \d+, others see the store at \S+:3 late, ", found.message)


def test_a_block_sees_its_own_stores_and_their_order():
    """Stores that other blocks see late, and to the same places plain ones, volatile ones and atomics."""
    body = (
        HEAD
        + """(int *out) { int *p = out + 8 * blockIdx.x, s = 0;
    for (int i = 1; i < 9; ++i) {
      p[threadIdx.x % 2] = i; s += p[threadIdx.x % 2];
      __syncthreads();
      if (threadIdx.x < 2) { p[threadIdx.x] = 10 * i; ((volatile int *)p)[threadIdx.x + 2] = i; }
      __syncthreads();
      if (threadIdx.x < 2) s += atomicAdd(p + threadIdx.x, 1) + p[threadIdx.x];
      __syncthreads();
    }
    out[1024 + blockIdx.x * 64 + threadIdx.x] = s; }"""
    )
    kernel = Program(compile_cuda(body, "k").ptx)["k"]
    late = late_stores(kernel.decoded.code)
    assert len(late) >= 3
    results = []
    for options in ({}, *({"schedule": seed, "late_stores": late} for seed in range(16))):
        out = np.zeros(2048, dtype=np.int32)
        kernel.launch(4, 64, (out,), **options)
        results.append(out)
    assert results[0][1024:].any()
    assert all(np.array_equal(results[0], one) for one in results)


def test_orders_are_aimed_at_lanes_of_a_warp():
    body, _ = RACY["no __syncwarp between lanes"]
    [found] = [one for one in launched(body, schedules=64) if one.kind == KIND]
    assert "where lanes of warp" in found.message
    assert "have to wait for the others" in found.message
    kernel = Program(compile_cuda(HEAD + body, "k").ptx)["k"]
    for seed in range(64):
        out = np.arange(16 * 1024, dtype=np.int32)
        kernel.launch(4, 256, (out,), schedule=seed)
        assert np.array_equal(out[:256], np.arange(256) ^ 1), "an order at random parts no lanes"


def test_an_aim_that_no_warp_reaches_changes_nothing():
    kernel = Program(compile_cuda(HEAD + RACY["no barrier after a store to shared memory"][0], "k").ptx)["k"]
    last = len(kernel.decoded.code) + 5
    report = kernel.launch(1, 32, (np.zeros(1024, dtype=np.int32),), schedule=0, aims=[(last, 1)])
    assert report.order is not None
    assert report.order.changes == 0


def test_a_fault_that_one_order_shows_names_its_seed():
    body = """(int *out) { volatile int *flag = out + 9999; const bool first = threadIdx.x == 0;
    if (first && blockIdx.x == 0) *flag = 1;
    if (first && blockIdx.x == 3 && *flag != 1) __trap(); }"""
    found = launched(body, schedules=64)
    assert [one.kind for one in found if "(in schedule " in one.message] == ["trap"], str(found)


def test_memory_is_put_back_and_sums_of_floats_may_round():
    kernel = wb.load_cuda(
        HEAD + "(float *out, const float *x) { atomicAdd(out, x[blockIdx.x * 256 + threadIdx.x]); }"
    ).k
    out, x = np.zeros(1, dtype=np.float32), np.random.default_rng(0).standard_normal(1024).astype(np.float32)
    found = wb.check_kernel(kernel, grid=4, block=256, args=(out, x), schedules=8)
    assert not found.findings, str(found)
    assert abs(out[0] - x.sum()) < 1e-3
