"""Statements of ptxas about the code: kept with the machine code, at their lines, whoever runs ptxas."""

from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest
import triton
import triton.language as tl

import workbench as wb
from workbench.toolchain import compile_cuda, compile_cuda_module, compile_triton
from workbench.toolchain.ptx_text import kernels_of_ptx

HEAD = r"""
#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(n) : "memory")
#define LESS asm volatile("setmaxnreg.dec.sync.aligned.u32 40;")
#define MORE asm volatile("setmaxnreg.inc.sync.aligned.u32 232;")
typedef unsigned long long tile;
__device__ __forceinline__ void product(float (&d)[4], tile a) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\n wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
    "{%0,%1,%2,%3}, %4, %4, p, 1, 1, 0, 0;}" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a));
}
__device__ __forceinline__ void product(float (&d)[4], unsigned (&a)[4], tile b) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\n wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1, 0;}" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
"""
ONE = """extern "C" __global__ void __launch_bounds__(128) k(float *o, tile a, int n) {
  float d[4] = {0, 0, 0, 0};
"""
SUM = "o[threadIdx.x] = d[0] + d[1] + d[2] + d[3];"
GROUPS = """extern "C" __global__ void __launch_bounds__(BOUNDS) k(float *o, int n) {
  if (threadIdx.x >= 128) MORE;  // C7508 C7504 C7505
  else LESS;  // C7508 C7504 C7505
  o[threadIdx.x] = n;
}
"""
REMARKED = {
    "no wait": (ONE + f"FENCE; product(d, a); COMMIT;\n {SUM}  // C7517\n}}", {"C7517"}),
    "no fence": (ONE + f"d[0] = o[n]; product(d, a); COMMIT; WAIT(0); {SUM} }}", {"C7519"}),
    "read too early": (
        ONE + "for (int i = 0; i < n; ++i) { FENCE; product(d, a); COMMIT; WAIT(1); o[i] = d[0]; }\n"
        "WAIT(0); o[9] = d[1]; }",
        {"C7514"},
    ),
    "written between products": (
        ONE + f"FENCE; product(d, a); COMMIT;\n d[0] *= o[3];  // C7517\n product(d, a); COMMIT; WAIT(0); {SUM} }}",
        {"C7511", "C7517", "C7519"},
    ),
    "factor written": (
        ONE + f"""unsigned f[4] = {{1, 2, 3, 4}};
        FENCE; for (int i = 0; i < n; ++i) {{ product(d, f, a); f[0] += o[i]; COMMIT; }} WAIT(0); {SUM} }}""",
        {"C7515", "C7519"},
    ),
    "across a function": (
        f"__device__ __noinline__ void f(float (&d)[4], tile a) {{ product(d, a); COMMIT; }}\n"
        f"{ONE} FENCE; product(d, a); COMMIT; f(d, a); WAIT(0); {SUM} }}",
        {"C7510", "C7517", "C7519"},
    ),
    "divergent": (
        ONE + f"if (threadIdx.x < o[5]) {{ d[0] += o[8]; FENCE; product(d, a); COMMIT; }}\n"
        f"if (threadIdx.x < o[9]) {SUM} if (threadIdx.x > o[6]) WAIT(0); o[8] = d[1]; }}",
        {"C7520"},
    ),
    "registers unknown": (GROUPS.replace("BOUNDS", "384"), {"C7508"}),
}  # fmt: skip
BOUNDED = GROUPS.replace("BOUNDS", "384, 1")
CLEAN = {
    "waited for": ONE + f"FENCE; product(d, a); COMMIT; WAIT(0); {SUM} }}",
    "registers known": BOUNDED,
}
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None or shutil.which("g++") is None, reason="nvcc is missing")


def compiled(source, **options):
    return compile_cuda(HEAD + source, "k", arch="sm_90a", **options)


def lines_with(source, code):
    return {at for at, line in enumerate((HEAD + source).splitlines(), 1) if code in line}


def check_places(kernel, source):
    for remark in kernel.remarks:
        expected = lines_with(source, remark.code)
        if expected and remark.kernel == "k":
            assert remark.line in expected
            assert remark.ptx_line


@pytest.mark.parametrize("what", REMARKED)
def test_each_statement_has_its_code_and_its_line(what):
    source, codes = REMARKED[what]
    kernel = compiled(source)
    assert {remark.code for remark in kernel.remarks} == codes
    check_places(kernel, source)
    for remark in kernel.remarks:
        assert remark.remedy
        assert f"({remark.code})" in kernel.log
        assert "around line" not in str(remark)


@pytest.mark.parametrize("what", CLEAN)
def test_code_that_ptxas_takes_as_it_is_has_none(what):
    kernel = compiled(CLEAN[what])
    assert kernel.remarks == ()
    assert "ptxas" not in kernel.log


@pytest.mark.parametrize(("option", "code"), [("--relocatable-device-code=true", "C7504"), ("-G", "C7505")])
def test_options_that_make_ptxas_ignore_registers(option, code):
    kernel = compiled(BOUNDED, options=[option], machine_code=True)
    assert [(remark.code, remark.line) for remark in kernel.remarks] == [
        (code, line) for line in sorted(lines_with(BOUNDED, code))
    ]


@needs_nvcc
def test_nvcc_says_the_same():
    source, _ = REMARKED["registers unknown"]
    kernels = [compiled(source, compiler=compiler) for compiler in ("nvrtc", "nvcc")]
    assert len({tuple((one.code, one.text, one.line) for one in kernel.remarks) for kernel in kernels}) == 1
    check_places(kernels[1], source)


def test_ptx_of_any_compiler_and_machine_code_from_the_cache():
    source, codes = REMARKED["no wait"]
    kernel = compiled(source)
    (same,) = kernels_of_ptx(kernel.ptx).values()
    assert [(one.code, one.line) for one in same.remarks] == [(one.code, one.line) for one in kernel.remarks]
    again = compiled(source)
    assert again.remarks == kernel.remarks
    assert {one.code for one in pickle.loads(pickle.dumps(kernel)).remarks} == codes


def test_of_several_kernels_only_the_one_whose_registers_are_ignored():
    text = HEAD + BOUNDED + REMARKED["registers unknown"][0].replace(" k(", " unbounded(")
    module = compile_cuda_module(text, arch="sm_90a")
    assert module["k"].remarks == ()
    assert [remark.kernel for remark in module["unbounded"].remarks] == ["unbounded"] * 2


def test_a_warning_without_a_code():
    source = 'extern "C" __global__ void __launch_bounds__(1024, 32) k(int *x) { x[0] = x[1]; }'
    (remark,) = compile_cuda(source, "k").remarks
    assert (remark.severity, remark.code, remark.kernel) == ("warning", "", "k")
    assert "threads per SM" in remark.text


@triton.jit
def product(out, a, b, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for _ in range(4):
        total = tl.dot(tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + j[None, :]), total) * 1.5
    tl.store(out + i[:, None] * N + j[None, :], total)


@pytest.mark.parametrize(("columns", "codes"), [(256, {"C7511"}), (64, set())])
def test_tritons_own_assembler_is_heard(columns, codes):
    signature = {"out": "*fp32", "a": "*fp16", "b": "*fp16"}
    kernel = compile_triton(product, signature, {"M": 128, "N": columns, "K": 16}, arch="sm_90", num_stages=1)
    assert "wgmma" in kernel.ptx
    assert {remark.code for remark in kernel.remarks} == codes


def test_checks_and_traces_say_it():
    source, _ = REMARKED["registers unknown"]
    kernels = [wb.load_cuda(HEAD + text, arch="sm_90a", device="sim").k for text in (source, BOUNDED)]
    launch = {"grid": 1, "block": 384, "args": [np.zeros(384, np.float32), 3]}
    told, silent = [wb.check_kernel(kernel, **launch) for kernel in kernels]
    assert told.ok
    (note,) = told.notes
    assert "(C7508)" in note
    assert all(f":{line}" in note for line in lines_with(source, "C7508"))
    assert silent.notes == ()
    traced, plain = [wb.trace_kernel(kernel, **launch) for kernel in kernels]
    hints = [hint for hint in traced.hints() if hint.name == "said by ptxas"]
    assert {hint.line.line for hint in hints} == lines_with(source, "C7508")
    assert "__launch_bounds__(threads, 1)" in traced._repr_html_()
    assert "said by ptxas" not in str(plain)
