"""Order between blocks that run on several host threads, one of them held back in the middle of a strong access."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
from pathlib import Path

import numpy as np
import pytest

from workbench import ptx
from workbench.toolchain import compile_cuda_module

# Each kernel is for two blocks. Who finds that the other one has stored reads it.
SOURCE = """
__device__ __forceinline__ int acquired(int* flag) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ __forceinline__ void released(int* flag) {
  asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
}
// The reader is on its way to the flag when the writer begins.
#define WRITER_THEN_READER(WRITE, READ)                                   \\
  volatile int* ready = begun;                                            \\
  if (blockIdx.x == 0) {                                                  \\
    for (int i = 0; i < 200000 && *ready == 0; i++) {}                     \\
    for (int i = 0; i < 2000; i++) *ready = 2;                            \\
    WRITE;                                                                \\
  } else {                                                                \\
    *ready = 1;                                                           \\
    after = READ != 0;                                                    \\
  }
#define KERNEL(NAME, MEET)                                                \\
  extern "C" __global__ void NAME(int* data, int* flag, int* begun, int* seen) { \\
    int own = blockIdx.x;                                                 \\
    bool after = false;                                                   \\
    data[own] = own + 1;                                                  \\
    FENCE                                                                 \\
    MEET;                                                                 \\
    __threadfence();                                                      \\
    if (after) seen[own] = data[1 - own];                                 \\
  }
KERNEL(add, after = atomicAdd(flag, 1) == 1)
KERNEL(exchange, after = atomicExch(flag, 1) == 1)
KERNEL(volatile_flag, WRITER_THEN_READER(*(volatile int*)flag = 1, *(volatile int*)flag))
KERNEL(reduction, WRITER_THEN_READER(atomicAdd(flag, 1), *(volatile int*)flag))
KERNEL(release_and_acquire, WRITER_THEN_READER(released(flag), acquired(flag)))
"""
# Each block stores its word and reads the other's: with a fence between them at most one finds nothing.
EACH_OTHER = """
extern "C" __global__ void each_other(int* words, int* begun, int* seen, int rounds) {
  int own = blockIdx.x;
  for (int round = 0; round < rounds; round++) {
    volatile int* mine = words + 64 * round + 32 * own;
    volatile int* others = words + 64 * round + 32 * (1 - own);
    atomicAdd(begun + round, 1);
    for (int i = 0; i < 100 && *(volatile int*)(begun + round) < 2; i++) {}
    *mine = 1;
    __threadfence();
    seen[own * rounds + round] = *others;
  }
}
"""
KERNELS = ("add", "exchange", "volatile_flag", "reduction", "release_and_acquire")
HELPER = Path(__file__).with_name("held_access.cpp")


@pytest.fixture(scope="module")
def programs() -> dict[bool, ptx.Program]:
    texts = {
        fenced: compile_cuda_module(f"#define FENCE {'__threadfence();' * fenced}\n{SOURCE}", arch="sm_80").kernels
        for fenced in (True, False)
    }
    return {fenced: ptx.Program.from_text(next(iter(found.values())).ptx) for fenced, found in texts.items()}


@pytest.fixture(scope="module")
def holding(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("held") / "held_access.so"
    subprocess.run(["g++", "-O1", "-std=c++20", "-shared", "-fPIC", str(HELPER), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("fenced", [True, False])
def test_a_worker_held_back_in_a_strong_access(
    programs: dict[bool, ptx.Program], holding: ctypes.CDLL, kernel: str, fenced: bool
) -> None:
    memory = mmap.mmap(-1, 4096)
    flag = np.frombuffer(memory, np.int32)[:4]
    data, begun, seen = np.zeros(2, np.int32), np.zeros(1, np.int32), np.zeros(2, np.int32)
    address = ctypes.c_void_p(flag.ctypes.data)
    assert holding.begin_holding(address, address) == 0
    try:
        report = programs[fenced][kernel].launch(2, 1, [data, flag, begun, seen], checks=True, threads=2)
    finally:
        met = holding.end_holding()
    assert met > 0
    if seen.any():
        assert {finding.kind for finding in report.findings} == (set() if fenced else {"global race"}), report
    else:
        assert report.findings == []


def test_a_fence_orders_a_store_before_a_load() -> None:
    """Processors let a load pass a store (store buffering), which fence.sc forbids."""
    rounds = 5000
    kernels = compile_cuda_module(EACH_OTHER, arch="sm_80").kernels
    program = ptx.Program.from_text(next(iter(kernels.values())).ptx)
    for _ in range(20):
        words, begun, seen = (
            np.zeros((rounds, 64), np.int32),
            np.zeros(rounds, np.int32),
            np.zeros((2, rounds), np.int32),
        )
        program["each_other"].launch(2, 1, [words, begun, seen, np.int32(rounds)], threads=2)
        assert seen.any(axis=0).all()
