"""Machine code that is made late: the same as at once, kept apart from the PTX, and refused where it is asked for."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import triton
import triton.language as tl

import workbench as wb
from workbench.attention.ops.contiguous_attention import OP as CONTIGUOUS
from workbench.errors import ArgumentError, CompileError, UnsupportedInstructionError
from workbench.launch import devices
from workbench.ptx.parse import parse
from workbench.toolchain import compile_cuda, compile_cuda_module, compile_triton, cuda, disk_cache, triton_aot
from workbench.toolchain.shared_memory import static_shared_bytes

SOURCE = """
extern "C" __global__ void __launch_bounds__(128) turn(float *x)
{ __shared__ float tile[128]; int unused; tile[threadIdx.x] = x[threadIdx.x]; __syncthreads();
  x[threadIdx.x] = tile[127 - threadIdx.x]; }
extern "C" __global__ void other(float *x) { *x = 1; }
"""
SHARED = """
__device__ __noinline__ int helper(int i) { __shared__ short t[7]; t[i & 3] = i; __syncthreads(); return t[i & 1]; }
__shared__ char outside[5];
extern "C" __global__ void aligned(int *x)
{ __shared__ char a[1]; __shared__ __align__(128) char b[3]; __shared__ double c[3]; int i = x[0];
  a[0] = i; b[i] = i; c[i] = i; __syncthreads(); x[i] = a[x[1]] + b[x[2]] + c[x[3]]; }
extern "C" __global__ void calls(int *x)
{ __shared__ char a[1]; a[x[1]] = x[0]; outside[x[0]] = 1; __syncthreads();
  x[2] = helper(x[0]) + a[x[2]] + outside[x[3]]; }
extern "C" __global__ void dynamic(int *x)
{ extern __shared__ __align__(16) int t[]; __shared__ char c[3]; c[x[1]] = 1; t[x[0]] = 1; __syncthreads();
  x[0] = t[x[1]] + c[x[2]]; }
extern "C" __global__ void none(int *x) { x[0] = 1; }
"""
TOO_LARGE = 'extern "C" __global__ void large(float *x) { __shared__ float tile[20000]; tile[threadIdx.x] = *x; '
TOO_LARGE += "__syncthreads(); *x = tile[threadIdx.x + 1]; }"
NO_INSTRUCTION = 'extern "C" __global__ void wrong(float *x) { asm volatile("foo.bar.u32 %0;" :: "r"(1)); *x = 1; }'
WARNED = 'extern "C" __global__ void __launch_bounds__(1024, 32) crowded(int *x) { int unused; x[0] = x[1]; }'

needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None or shutil.which("g++") is None, reason="nvcc or its host compiler is not installed"
)
COMPILERS = ["nvrtc", pytest.param("nvcc", marks=needs_nvcc)]


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0)))


def by_triton(**options):
    return compile_triton(total, {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 256}, **options)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_late_and_at_once_are_the_same(fresh_home: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, arch: str):
    late = compile_cuda(SOURCE, "turn", compiler=compiler, arch=arch)
    assert late.assembly.made is None
    resources = (late.registers, late.spill_bytes, late.stack_bytes, late.shared_bytes)
    monkeypatch.setenv("WORKBENCH_HOME", str(fresh_home / "other"))
    once = compile_cuda(SOURCE, "turn", compiler=compiler, arch=arch, machine_code=True)
    assert once.assembly.made is not None
    assert (once.registers, once.spill_bytes, once.stack_bytes, once.shared_bytes) == resources
    if compiler == "nvrtc":  # nvcc writes the folder that it works in into both
        name = once.ptx.replace(str(fresh_home / "other"), str(fresh_home))
        assert name == late.ptx
    assert late.cubin.startswith(b"\x7fELF")


def test_our_own_kernels_are_the_same_ptx_with_and_without_machine_code(fresh_home: Path, monkeypatch):
    """Of a kernel with headers of ours and of the toolkit's."""
    variant = CONTIGUOUS.variant("cuda_register_softmax")
    problem = CONTIGUOUS.case(None).problem()
    (late,) = variant.kernels(variant.default_config(problem), problem, machine_code=False)
    monkeypatch.setenv("WORKBENCH_HOME", str(fresh_home / "other"))
    (once,) = variant.kernels(variant.default_config(problem), problem)
    assert (late.ptx, late.assembly.made) == (once.ptx, None)
    assert once.assembly.made.resources[once.name].shared_bytes == once.shared_bytes > 0


ALIGNED = """
extern __shared__ __align__(64) int large[];
extern "C" __global__ void after(int *x)
{ __shared__ char c[70]; c[x[1]] = 1; large[x[0]] = 1; __syncthreads(); x[0] = large[x[1]] + c[x[2]]; }
extern "C" __global__ void beside(int *x) { __shared__ char c[3]; c[x[1]] = 1; __syncthreads(); x[0] = c[x[2]]; }
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("source", "sizes"),
    [
        (SHARED, {"aligned": 160, "calls": 32, "dynamic": 16, "none": 0}),
        (SHARED.replace("extern __shared__", "__shared__").replace("t[];", "t[4];"), {"aligned": 160, "calls": 20}),
        (ALIGNED, {"after": 128, "beside": 64}),
    ],
    ids=["dynamic", "static only", "wide alignment"],
)
def test_static_shared_memory_is_what_the_assembler_says(arch: str, source: str, sizes: dict[str, int]):
    module = compile_cuda_module(source, arch=arch, machine_code=True)
    for kernel in module.values():
        assert kernel.shared_bytes == kernel.assembly.result().resources[kernel.name].shared_bytes
    assert {name: module[name].shared_bytes for name in sizes} == sizes


def test_dynamic_shared_memory_begins_in_the_simulator_where_it_does_on_a_gpu():
    source = ALIGNED.replace(
        "x[0] = large[x[1]] + c[x[2]];", "x[0] = (int)__cvta_generic_to_shared(large); x[1] = c[x[2]];"
    )
    kernel, x = compile_cuda(source, "after"), np.zeros(3, np.int32)
    devices.get("sim").launch(kernel, 1, 1, [x], shared_bytes=256)
    assert x[0] == kernel.shared_bytes == 128


def test_shared_memory_of_inline_code_in_scopes_of_its_own():
    body = "{ .shared .align 4 .b8 t[20]; mov.u32 %r1, t; } { .shared .align 4 .b8 t[20]; ld.shared.u32 %r1, [t]; }"
    text = f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{ .reg .b32 %r<3>; {body} ret; }}\n"
    assert static_shared_bytes(parse(text)) == {"k": 40}
    assert static_shared_bytes(parse(text.replace("shared", "local"))) == {}


# ---- the cache -------------------------------------------------------------------------------------------------------


def entries() -> set[Path]:
    return set(disk_cache.cache_folder().rglob("*.bin"))


@pytest.mark.parametrize("make", [lambda: compile_cuda(SOURCE, "turn"), by_triton], ids=["cuda", "triton"])
def test_what_was_made_later_is_there_the_next_time(fresh_home: Path, monkeypatch: pytest.MonkeyPatch, make):
    first = make()
    (ptx_entry,) = entries()
    registers, cubin = first.registers, first.cubin
    (code_entry,) = entries() - {ptx_entry}

    def never(*_) -> None:
        raise AssertionError("assembled again")

    with monkeypatch.context() as patch:
        patch.setattr(cuda, "_assemble", never)
        patch.setattr(triton_aot, "_assemble", never)
        assert (make().registers, make().cubin, make().from_cache) == (registers, cubin, True)
    for damage in (lambda data: data[:-9], lambda data: b""):
        code_entry.write_bytes(damage(code_entry.read_bytes()))
        again = make()
        assert again.from_cache, "the PTX is whole"
        assert (again.registers, again.cubin) == (registers, cubin)
        assert make().assembly.find() is not None


def test_asked_for_at_once_after_the_ptx_alone_is_no_answer_of_the_cache(fresh_home: Path):
    assert not compile_cuda(SOURCE, "turn").from_cache
    assert not compile_cuda(SOURCE, "turn", machine_code=True).from_cache
    assert compile_cuda(SOURCE, "turn", machine_code=True).from_cache
    assert not by_triton().from_cache
    assert not by_triton(machine_code=True).from_cache
    assert by_triton(machine_code=True).from_cache


def test_kernels_of_one_program_share_their_machine_code(fresh_home: Path):
    module = compile_cuda_module(SOURCE)
    assert module["turn"].registers > 0
    assert module["other"].assembly.made.cubin is module["turn"].cubin
    launch = module.for_launch(128, 64)["other"]
    assert (launch.occupancy.fraction, launch.cubin is module["turn"].cubin) == (1.0, True)


@pytest.mark.parametrize("asked", [False, True])
def test_a_kernel_goes_to_another_process_with_or_without_machine_code(fresh_home: Path, asked: bool):
    for kernel in (compile_cuda(SOURCE, "turn"), by_triton()):
        if asked:
            assert kernel.registers
        there = pickle.loads(pickle.dumps(kernel))
        assert (there, there.assembly.made is not None) == (kernel, asked)
        assert (there.cubin, there.registers) == (kernel.cubin, kernel.registers)


def test_a_header_that_changed_in_between_is_noticed(fresh_home: Path, tmp_path: Path):
    (tmp_path / "value.cuh").write_text("#define VALUE 1\n")
    source = '#include "value.cuh"\nextern "C" __global__ void k(int *x) { x[0] = VALUE; }'
    kernel = compile_cuda(source, "k", include_dirs=[tmp_path])
    (tmp_path / "value.cuh").write_text("#define VALUE 2\n")
    with pytest.raises(CompileError, match="header"):
        _ = kernel.registers
    assert "no machine code" in repr(kernel)
    assert compile_cuda(source, "k", include_dirs=[tmp_path]).registers > 0


# ---- what only the assembler refuses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said", "refused", "told"),
    [
        (TOO_LARGE, "too much shared data", ArgumentError, "static shared memory of large.*80000 bytes"),
        (NO_INSTRUCTION, "foo", UnsupportedInstructionError, r"foo\.bar"),
    ],
)
def test_the_simulator_names_what_the_assembler_would_refuse(fresh_home: Path, source, said, refused, told):
    module = wb.load_cuda(source, device="sim")
    (name,) = module
    with pytest.raises(refused, match=told):
        module[name](1, 32, np.zeros(64, np.float32))
    with pytest.raises(CompileError, match=said):
        _ = module[name].compiled.registers
    with pytest.raises(CompileError, match=said):
        wb.load_cuda(source, device="sim", machine_code=True)
    with pytest.raises(CompileError, match=said):
        compile_cuda(source, name, machine_code=True)


def test_warnings_of_the_compiler_come_with_the_ptx_and_the_assemblers_with_the_machine_code(fresh_home: Path):
    kernel = compile_cuda(WARNED, "crowded")
    assert "unused" in kernel.log
    assert "ptxas" not in kernel.log
    assert kernel.registers > 0
    assert "unused" in kernel.log
    assert "threads per SM" in kernel.log
    assert "ptxas info" not in kernel.log
    assert kernel.log == compile_cuda(WARNED, "crowded", machine_code=True).log


def test_a_launch_in_the_simulator_needs_none(fresh_home: Path):
    """Of Triton and of CUDA C++: what a launch checks is known from the PTX."""
    sim = devices.get("sim")
    x, out = np.arange(256, dtype=np.float32), np.zeros(1, np.float32)
    kernel = by_triton()
    sim.launch(kernel, 1, kernel.threads_per_block, [x, out, 256])
    turn = compile_cuda(SOURCE, "turn")
    sim.launch(turn, 1, 128, [x])
    assert (kernel.assembly.made, turn.assembly.made) == (None, None)
    assert out[0] == 255 * 128
    assert x[0] == 127
