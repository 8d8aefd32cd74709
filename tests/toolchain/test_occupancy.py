"""Occupancy against values worked by hand and against NVIDIA's own calculator, compiled from the toolkit's header."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

import workbench as wb
from workbench.errors import ArgumentError
from workbench.toolchain import compile_cuda, tools
from workbench.toolchain.occupancy import LIMITS, occupancy

# arch, threads, registers, shared bytes -> blocks, limited by. The sums are beside each.
BY_HAND = [
    ("sm_80", 128, 32, 0, 16, "warps"),  # 64 warps / 4
    ("sm_80", 32, 16, 0, 32, "blocks"),  # 32 blocks of one warp, half the warps
    ("sm_80", 256, 64, 0, 4, "registers"),  # 65536 / (64 * 256) = 4
    ("sm_80", 256, 65, 0, 3, "registers"),  # 65 * 32 -> 2304 a warp; 7 warps in a scheduler's 16384; 28 / 8 = 3
    ("sm_80", 128, 255, 0, 2, "registers"),  # 8192 a warp (255 * 32 rounded up); 2 a scheduler; 8 / 4
    ("sm_80", 128, 32, 48 * 1024, 3, "shared memory"),  # (48 + 1) KiB; 164 / 49 = 3
    ("sm_80", 128, 32, 163 * 1024, 1, "shared memory"),  # 163 + 1 = 164 KiB, the most that one block gets
    ("sm_80", 128, 32, 163 * 1024 + 1, 0, "shared memory"),
    ("sm_80", 1024, 64, 0, 1, "registers"),  # the whole register file
    ("sm_80", 1024, 65, 0, 0, "registers"),
    ("sm_75", 1024, 64, 0, 1, "warps"),  # 32 warps in all
    ("sm_75", 64, 32, 32 * 1024, 2, "shared memory"),  # nothing reserved: 64 / 32
    ("sm_86", 128, 40, 0, 12, "warps"),  # 48 / 4
    ("sm_86", 32, 40, 0, 16, "blocks"),
    ("sm_89", 32, 40, 0, 24, "blocks"),
    ("sm_90", 128, 32, 113 * 1024, 2, "shared memory"),  # (113 + 1) * 2 = 228 KiB
    ("sm_90", 128, 32, 114 * 1024, 1, "shared memory"),
    ("sm_90a", 384, 168, 0, 1, "registers"),  # 5376 a warp; 3 a scheduler; 12 warps / 12
    ("sm_120", 32, 24, 4 * 1024, 20, "shared memory"),  # 5 KiB each; 100 / 5
]


@pytest.mark.parametrize(("arch", "threads", "registers", "shared", "blocks", "limit"), BY_HAND)
def test_values_worked_by_hand(arch: str, threads: int, registers: int, shared: int, blocks: int, limit: str):
    result = occupancy(arch, threads, registers, shared)
    assert (result.blocks_per_sm, result.limited_by) == (blocks, limit)
    warps = LIMITS[arch.rstrip("a")].max_warps
    assert result.warps_per_sm == blocks * -(-threads // 32)
    assert result.fraction == pytest.approx(result.warps_per_sm / warps)


_ORACLE = r"""
#include <cuda_occupancy.h>
#include <cstdio>
int main() {
    int major, minor, warps, regs_block, regs_sm, threads, registers, barriers;
    unsigned long shared, per_block, per_sm, reserved;
    while (scanf("%d %d %d %d %d %lu %lu %lu %d %d %lu %d", &major, &minor, &warps, &regs_block, &regs_sm,
                 &per_block, &per_sm, &reserved, &threads, &registers, &shared, &barriers) == 12) {
        cudaOccDeviceProp device;
        device.computeMajor = major; device.computeMinor = minor; device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = warps * 32; device.regsPerBlock = regs_block;
        device.regsPerMultiprocessor = regs_sm; device.warpSize = 32; device.sharedMemPerBlock = 48 * 1024;
        device.sharedMemPerMultiprocessor = per_sm; device.numSms = 1; device.sharedMemPerBlockOptin = per_block;
        device.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes function;
        function.maxThreadsPerBlock = 1024; function.numRegs = registers; function.sharedSizeBytes = 0;
        function.partitionedGCConfig = PARTITIONED_GC_OFF; function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        function.maxDynamicSharedSizeBytes = per_block; function.numBlockBarriers = barriers;
        cudaOccDeviceState state; state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        cudaOccResult result;
        int status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state, threads, shared);
        printf("%d\n", status ? -1 : result.activeBlocksPerMultiprocessor);
    }
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to compile NVIDIA's calculator")
def test_agrees_with_nvidias_calculator_on_random_kernels(tmp_path: Path):
    source, program = tmp_path / "oracle.cpp", tmp_path / "oracle"
    source.write_text(_ORACLE)
    subprocess.run(["g++", "-O1", "-w", f"-I{tools.cuda_include()}", source, "-o", program], check=True)
    generator = random.Random(20)
    cases, lines = [], []
    for _ in range(4000):
        limits = generator.choice(list(LIMITS.values()))
        number = limits.arch.removeprefix("sm_")
        threads = generator.choice([generator.randint(1, 1024), 32 * generator.randint(1, 32)])
        registers = generator.randint(1, 255)
        shared = generator.choice([0, generator.randint(0, limits.shared_per_block), 1024 * generator.randint(0, 16)])
        barriers = generator.choice([0, 1, generator.randint(2, 16)])
        cases.append((limits.arch, threads, registers, shared, barriers))
        device = [number[:-1], number[-1], limits.max_warps, limits.registers_per_block, limits.registers]
        device += [limits.shared_per_block, limits.shared_per_multiprocessor, limits.shared_reserved]
        lines.append(" ".join(str(value) for value in [*device, threads, registers, shared, barriers]))
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
    expected = [int(line) for line in done.stdout.split()]
    assert len(expected) == len(cases)
    wrong = [
        (case, blocks, occupancy(*case))
        for case, blocks in zip(cases, expected, strict=True)
        if occupancy(*case).blocks_per_sm != blocks
    ]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("sm_20", 32, 32, 0), "arch"),
        (("sm_80", 0, 32, 0), "threads_per_block"),
        (("sm_80", 1025, 32, 0), "threads_per_block"),
        (("sm_80", 32, -1, 0), "registers"),
        (("sm_80", 32, 32, -1), "shared_bytes"),
        (("sm_90", 32, 32, 0, -1), "barriers"),
    ],
)
def test_refuses_what_no_kernel_can_be(arguments: tuple, named: str):
    with pytest.raises(ArgumentError) as error:
        occupancy(*arguments)
    assert error.value.argument == named


@pytest.mark.parametrize(("arch", "blocks", "limit"), [("sm_80", 32, "warps"), ("sm_90", 21, "barriers")])
def test_named_barriers_limit_the_blocks_from_sm_90_on(arch: str, blocks: int, limit: str):
    code = """extern "C" __global__ void three() {
        asm volatile("bar.sync 0;"); asm volatile("bar.sync 1;"); asm volatile("bar.sync 2;");
    }"""
    kernel = compile_cuda(code, "three", arch=arch, threads_per_block=64)
    assert kernel.barriers == 3
    assert (kernel.occupancy.blocks_per_sm, kernel.occupancy.limited_by) == (blocks, limit)  # 64 barriers / 3


def test_a_barrier_in_a_register_may_be_any():
    code = 'extern "C" __global__ void some(int n) { asm volatile("bar.sync %0, 64;" :: "r"(n)); }'
    assert compile_cuda(code, "some", arch="sm_90").barriers == 16


def test_the_barriers_of_tritons_older_assembler_are_read():
    kernel = wb.compile("causal_attention", variant="triton_flash", arch="sm_90")
    assert ("bar.sync" in kernel.ptx, kernel.barriers) == (True, 1)
