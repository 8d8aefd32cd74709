"""The stages of a kernel from its source to machine code, each line with the line of the source that it comes from."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import workbench as wb
from workbench.analysis.stages import _llvm, _mlir

SOURCE = """\
__device__ float twice(float x) { return x + x; }
extern "C" __global__ void scale(float *x, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n)
    x[i] = twice(x[i]);  // here
}
"""


@triton.jit
def add(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value + tl.sum(value, 0), mask=at < n)


LOAD = add.fn.__code__.co_firstlineno + 3


def texts(stage, path, line):
    return " ".join(one.text for one in stage.of(path, line))


def test_of_cuda_there_are_ptx_with_its_runs_and_sass():
    kernel = wb.load_cuda(SOURCE, device="sim").scale
    trace = wb.trace_kernel(kernel, grid=2, block=64, args=[torch.ones(128), 128])
    ptx, sass = trace.stages
    assert [ptx.name, sass.name] == ["ptx", "sass"]
    path, line = next((one.path, one.line) for one in trace.lines if "// here" in one.text)
    assert "ld.global" in texts(ptx, path, line)
    assert "st.global" in texts(ptx, path, line)
    assert "LDG" in texts(sass, path, line)
    ran = {one.text.split()[0]: one.executions for one in ptx.of(path, line)}
    assert ran["ld.global.f32"] == 4, "two blocks of two warps"
    linked = sum(one.executions or 0 for one in ptx.lines)
    assert linked == trace.instructions
    assert not any(one.text.lstrip().startswith(".loc") for one in ptx.lines)


def test_of_triton_all_that_the_compiler_made(fresh_home):
    arguments = {"grid": (2,), "args": [torch.empty(256), torch.ones(256), 256], "kwargs": {"BLOCK": 128}}
    for _ in range(2):  # compiled, then as it is kept
        trace = wb.trace_kernel(add, **arguments)
        stages = {stage.name: stage for stage in trace.stages}
        assert list(stages) == ["ttir", "ttgir", "llir", "ptx", "sass"]
        (path,) = {one.path for one in trace.lines if one.line == LOAD}
        assert "tt.load" in texts(stages["ttir"], path, LOAD)
        assert "#blocked" in texts(stages["ttgir"], path, LOAD)
        assert "ld.global" in texts(stages["llir"], path, LOAD)
        assert "ld.global" in texts(stages["ptx"], path, LOAD)
        assert "LDG" in texts(stages["sass"], path, LOAD)
        assert "tt.reduce" in texts(stages["ttir"], path, LOAD + 1), "the library's code counts at the kernel's line"


def test_a_compiled_kernel_keeps_its_stages_in_the_cache(fresh_cache):
    from workbench.toolchain import compile_triton

    signature = {"out": "*fp32", "x": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    first, second = (compile_triton(add, signature, {"BLOCK": 128}) for _ in range(2))
    assert second.from_cache
    assert dict(first.stages) == dict(second.stages)
    assert list(second.stages) == ["ttir", "ttgir", "llir"]


MLIR = """\
#loc = loc("/k.py":1:0)
#loc3 = loc("/lib.py":40:9)
#loc4 = loc("/k.py":7:11)
#loc5 = loc("value"(#loc4))
#loc6 = loc(callsite(#loc3 at #loc5))
module {
  %0 = tt.load %p : !tt.ptr<f32> loc(#loc5)
  %1 = arith.addf %0, %0 : f32 loc(#loc6)
  tt.return loc("/k.py":9:3)
  %2 = tt.what loc(#loc99)
} loc(#loc)
"""
LLVM = """\
define void @k(ptr %0) !dbg !4 {
  %2 = load float, ptr %0, align 4, !dbg !7
  %3 = fadd float %2, %2, !dbg !8
  ret void
}
!1 = !DIFile(filename: "k.py", directory: "/src")
!2 = !DIFile(filename: "lib.py", directory: "/src")
!4 = distinct !DISubprogram(name: "k", file: !1, line: 1)
!5 = distinct !DISubprogram(name: "f", file: !2, line: 30)
!7 = !DILocation(line: 7, column: 3, scope: !4)
!8 = !DILocation(line: 40, column: 3, scope: !5, inlinedAt: !9)
!9 = !DILocation(line: 8, column: 3, scope: !4)
"""


@pytest.mark.parametrize(("own", "expected"), [
    ("/k.py", [("/k.py", 1), ("/k.py", 7), ("/k.py", 7), ("/k.py", 9), ("", 0)]),
    ("", [("/k.py", 1), ("/k.py", 7), ("/lib.py", 40), ("/k.py", 9), ("", 0)]),
])  # fmt: skip
def test_locations_of_mlir(own, expected):
    module, load, addition, end, unknown, close = _mlir(MLIR, own)
    assert [close.place, *(one.place for one in (load, addition, end, unknown))] == expected
    assert load.text == "  %0 = tt.load %p : !tt.ptr<f32>"
    assert module.place == ("", 0)


@pytest.mark.parametrize(("own", "place"), [("/src/k.py", ("/src/k.py", 8)), ("", ("/src/lib.py", 40))])
def test_locations_of_llvm(own, place):
    head, load, addition, *_ = _llvm(LLVM, own)
    assert head.place == ("", 0)
    assert load.place == ("/src/k.py", 7)
    assert addition.place == place
    assert addition.text == "  %3 = fadd float %2, %2"
