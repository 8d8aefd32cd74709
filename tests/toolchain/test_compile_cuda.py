"""CUDA C++ through NVRTC and nvcc: what comes out, what errors say, and when the cache answers."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

import pytest

from workbench.errors import ArgumentError, CompileError, MissingToolError, UnknownNameError
from workbench.toolchain import compile_cuda, compile_cuda_module, disk_cache, nvrtc, tools

SOURCE = """\
#include <cuda_fp16.h>
#include <stdint.h>

struct Pair { int32_t first; float second; };

template <typename T, int N>
__global__ void __launch_bounds__(128) scale(T *__restrict__ x, float factor, Pair pair)
{
    __shared__ T tile[64];
    tile[threadIdx.x & 63] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = (T)((float)tile[63 - (threadIdx.x & 63)] * factor * N + pair.first);
}

extern "C" __global__ void plain(float *out, int n, unsigned char flag) { out[n] = flag; }

__global__ void mangled(float *out) { out[0] = 1; }
"""

needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None or shutil.which("g++") is None, reason="nvcc or its host compiler is not installed"
)
COMPILERS = ["nvrtc", pytest.param("nvcc", marks=needs_nvcc)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_template_instance_and_its_resources(compiler: str):
    kernel = compile_cuda(SOURCE, "scale<__half, 2>", compiler=compiler, threads_per_block=128)
    assert kernel.name.startswith("_Z5scaleI6__half")
    assert (kernel.label, kernel.language, kernel.arch) == ("scale<__half, 2>", "cuda", "sm_80")
    assert kernel.shared_bytes == 128
    assert 4 <= kernel.registers <= 32
    assert (kernel.spill_bytes, kernel.stack_bytes) == (0, 0)
    assert kernel.occupancy.fraction == 1.0
    assert [(p.name, p.type, p.size, p.align) for p in kernel.parameters] == [
        ("x", "u64", 8, 8),
        ("factor", "f32", 4, 4),
        ("pair", "b8", 8, 4),
    ]
    assert kernel.compiler.startswith(f"{compiler} 1")
    assert kernel.cubin.startswith(b"\x7fELF")
    assert "EXIT" in kernel.sass
    assert "LDS" in kernel.sass
    assert "plain" not in kernel.sass, "the SASS of one kernel only"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_kernel_of_a_source(compiler: str):
    module = compile_cuda_module(SOURCE, compiler=compiler)
    assert set(module) == {"plain", "mangled"}
    assert module["mangled"].name == "_Z7mangledPf"
    assert [p.type for p in module["plain"].parameters] == ["u64", "u32", "u8"]
    assert module["plain"] != module["mangled"]
    assert compile_cuda(SOURCE, "mangled", compiler=compiler).name == "_Z7mangledPf"


def test_overloads_stay_apart():
    module = compile_cuda_module("__global__ void f(int *x) { *x = 1; }\n__global__ void f(float *x) { *x = 2; }\n")
    assert {kernel.name for kernel in module.values()} == {"_Z1fPi", "_Z1fPf"}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"])
def test_real_architectures(arch: str):
    kernel = compile_cuda(SOURCE, "plain", arch=arch, threads_per_block=64)
    assert f".target {arch}" in kernel.ptx
    assert kernel.occupancy.blocks_per_sm > 0


def test_lines_of_the_source_are_in_the_ptx(tmp_path: Path):
    file = tmp_path / "kernel.cu"
    file.write_text(SOURCE)
    ptx = compile_cuda(file, "plain").ptx
    number = next(line.split()[1] for line in ptx.splitlines() if ".file" in line and str(file) in line)
    assert f".loc\t{number} 15 " in ptx


def test_lines_of_a_source_without_a_file_lead_to_a_copy(fresh_home: Path):
    ptx = compile_cuda(SOURCE, "plain").ptx
    named = next(line.split('"')[1] for line in ptx.splitlines() if ".file" in line and "source.cu" in line)
    assert Path(named).read_text() == SOURCE


def test_spills_and_stack_are_reported():
    body = "\n".join(f"float v{i} = x[{i} * n];" for i in range(120))
    total = " + ".join(f"v{i} * v{(i * 7) % 120}" for i in range(120))
    source = f'extern "C" __global__ void wide(float *x, int n) {{ {body} __syncthreads(); x[0] = {total}; }}'
    kernel = compile_cuda(source, "wide", options=["--maxrregcount=24"])
    assert kernel.registers <= 24
    assert kernel.spill_bytes > 0
    assert kernel.stack_bytes > 0


def test_macros_options_and_standard():
    source = 'extern "C" __global__ void k(float *x) { x[0] = SCALE * (FLAG ? N : 0); }'
    ptx = compile_cuda(source, "k", macros={"SCALE": 1.5, "FLAG": True, "N": 4}).ptx
    assert str(0x40C00000) in ptx, "the bits of 6.0"
    with pytest.raises(CompileError, match="SCALE"):
        compile_cuda(source, "k")
    concepts = "template <typename T> concept C = true; __global__ void k(int *x) { *x = 1; }"
    assert compile_cuda(concepts, "k", options=["--std=c++20"]).registers
    with pytest.raises(CompileError):
        compile_cuda(concepts, "k")


def test_clocks_of_time_h():
    source = """#include <time.h>
    #include <ctime>
    __global__ void k(clock_t *x) { *x = clock(); }"""
    assert "clock" in compile_cuda(source, "k").ptx


def test_headers_that_ordinary_sources_include():
    names = "stdint.h cstdint float.h cfloat limits.h climits stddef.h cstddef math.h cmath stdio.h cstdio assert.h "
    names += "cassert stdlib.h cstdlib string.h cstring cuda_runtime.h cuda_bf16.h cuda_fp8.h mma.h cuda_pipeline.h"
    source = "".join(f"#include <{name}>\n" for name in names.split())
    source += """extern "C" __global__ void k(float *x, std::uint64_t n, intptr_t p) {
        assert(n < SIZE_MAX); printf("%d", INT_MAX); size_t i = n;
        x[i] = std::sqrt(x[0]) * FLT_MAX + INFINITY + std::fmax(x[1], NAN) + CHAR_BIT + (p < 0); }"""
    assert compile_cuda(source, "k").registers


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_compile_error_names_file_and_line(tmp_path: Path, compiler: str):
    file = tmp_path / "wrong.cu"
    file.write_text('extern "C" __global__ void k(float *x)\n{\n    x[0] = missing_name;\n}\n')
    with pytest.raises(CompileError) as error:
        compile_cuda(file, "k", compiler=compiler)
    assert f"{file}(3): error:" in str(error.value)
    assert "missing_name" in error.value.log


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_compile_error_in_a_header_names_the_header(tmp_path: Path, compiler: str):
    (tmp_path / "common").mkdir()
    header = tmp_path / "common" / "helpers.cuh"
    header.write_text("#pragma once\n\n__device__ int helper() { return oops; }\n")
    file = tmp_path / "wrong.cu"
    file.write_text('#include "common/helpers.cuh"\nextern "C" __global__ void k(int *x) { x[0] = helper(); }\n')
    with pytest.raises(CompileError) as error:
        compile_cuda(file, "k", compiler=compiler)
    assert "helpers.cuh(3): error:" in str(error.value)


def test_an_error_in_text_is_the_same_everywhere(fresh_home: Path):
    with pytest.raises(CompileError) as error:
        compile_cuda("__global__ void k(int *x) {\n  x[0] = oops;\n}", "k")
    assert "\nsource.cu(2): error:" in str(error.value)
    assert str(fresh_home) not in str(error.value)
    assert "__nv_name_map" not in str(error.value), "no complaints about our own name expressions"


def test_a_template_with_arguments_that_do_not_fit_shows_the_compilers_lines():
    with pytest.raises(CompileError, match="no_such_type"):
        compile_cuda(SOURCE, "scale<no_such_type, 4>")


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("compiler", "name"),
    [
        ("nvrtc", "nope"),
        ("nvrtc", "scale"),
        ("nvrtc", "nope<int>"),
        pytest.param("nvcc", "nope", marks=needs_nvcc),
        pytest.param("nvcc", "scale", marks=needs_nvcc),
    ],
)
def test_a_missing_kernel_lists_those_that_are_there(compiler: str, name: str):
    with pytest.raises(UnknownNameError, match=r"scale<\.\.\.>, plain, mangled"):
        compile_cuda(SOURCE, name, compiler=compiler)


def test_a_source_without_kernels_says_so():
    with pytest.raises(UnknownNameError, match="defines no kernel"):
        compile_cuda("__device__ int f() { return 1; }", "f")
    assert len(compile_cuda_module("__device__ int f() { return 1; }")) == 0


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"arch": "sm_70"}, "arch"),
        ({"arch": "compute_80"}, "arch"),
        ({"options": ["--no-such-option"]}, "options"),
        ({"macros": {"1X": 1}}, "macros"),
        ({"compiler": "gcc"}, "compiler"),
        ({"include_dirs": ["/no/such/folder"]}, "include_dirs"),
    ],
)
def test_arguments_that_cannot_be_used(keywords: dict, named: str):
    with pytest.raises(ArgumentError) as error:
        compile_cuda(SOURCE, "plain", **keywords)
    assert error.value.argument == named


def test_a_file_that_is_not_there():
    for source in ("no_such_file.cu", Path("no_such_file.cu")):
        with pytest.raises(ArgumentError, match=r"no_such_file\.cu"):
            compile_cuda(source, "k")


@pytest.mark.parametrize(
    ("macros", "taken"), [({"BLOCK": 4, "value": 7}, "macro value=7 replaces"), ({"BLOCK": 4, "MINE": "="}, "")]
)
def test_a_macro_whose_name_a_header_of_cuda_uses_is_in_the_first_line(macros: dict[str, object], taken: str):
    source = '#include <cuda_fp16.h>\nextern "C" __global__ void f(int *x) { *x = BLOCK; int MINE = 3; }'
    with pytest.raises(CompileError) as error:
        compile_cuda(source, "f", macros={"MINE": 1} | macros)
    first = str(error.value).splitlines()[0]
    assert (taken in first and "BLOCK" not in first) if taken else "refused" in first


def test_host_code_gets_advice(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(CompileError, match='compiler="nvcc"'):
        compile_cuda("#include <iostream>\n__global__ void k() {}", "k")
    monkeypatch.setattr(tools, "library_includes", list)
    with pytest.raises(CompileError, match="cuda-toolkit\\[cccl\\]"):
        compile_cuda("#include <cub/cub.cuh>\n__global__ void k() {}", "k")


@pytest.mark.parametrize("header", ["cublas_v2.h", "curand_kernel.h", "cufft.h"])
def test_headers_of_libraries_get_advice(monkeypatch: pytest.MonkeyPatch, header: str):
    monkeypatch.setattr(tools, "pip_folders", list)
    monkeypatch.setattr(nvrtc, "toolkit_dirs", lambda: [tools.stub_headers()])
    package = re.split(r"[_.]", header)[0]
    with pytest.raises(CompileError, match=rf"'cuda-toolkit\[{package}\]>=13,<14'.*include_dirs=\[FOLDER\]"):
        compile_cuda(f"#include <{header}>\n__global__ void k() {{}}", "k")


def test_the_first_error_comes_first_and_in_full():
    source = "\n".join(
        ["__global__ void k(int *x) {", "  int unused;", *(f"  x[0] = absent{i};" for i in range(12)), "}"]
    )
    with pytest.raises(CompileError) as caught:
        compile_cuda(source, "k")
    message, log = str(caught.value).splitlines(), caught.value.log
    assert message[1].startswith("source.cu(3): error: identifier")
    assert message[2:4] == ["    x[0] = absent0;", "           ^"]
    assert message[message.index("also:") + 1].startswith("  source.cu(")
    assert len(message) < 20 < len(log.splitlines())
    assert "variable" in log, "the warning is in the whole of it"
    one = CompileError("refused:", "a.cu(1): error: only this\n  code\n")
    assert str(one) == "refused:\na.cu(1): error: only this\n  code"


def test_missing_compilers_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(tools, "pip_folders", list)
    monkeypatch.setattr(tools, "toolkit_folders", list)
    monkeypatch.setattr(tools.Path, "glob", lambda self, pattern: iter(()))
    nvrtc.library.cache_clear()
    try:
        with pytest.raises(MissingToolError, match=r"NVRTC.*pip install 'cuda-toolkit"):
            nvrtc.library()
        with pytest.raises(MissingToolError, match=r"headers.*pip install 'cuda-toolkit"):
            compile_cuda(SOURCE, "plain")
    finally:
        nvrtc.library.cache_clear()


def test_missing_nvcc_and_tools_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("shutil.which", lambda *_: None)
    with pytest.raises(MissingToolError, match=r"nvcc was not found.*CUDA_HOME"):
        compile_cuda(SOURCE, "plain", compiler="nvcc")
    with pytest.raises(MissingToolError, match=r"cuobjdump.*pip install triton"):
        tools.find_program("cuobjdump")


# ---- cache -----------------------------------------------------------------------------------------------------------


def test_the_second_time_comes_from_the_cache(fresh_home: Path):
    first = compile_cuda(SOURCE, "scale<float, 4>", threads_per_block=128)
    second = compile_cuda(SOURCE, "scale<float, 4>", threads_per_block=64)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert first == second
    assert hash(first) == hash(second)
    assert (second.ptx, second.cubin, second.parameters) == (first.ptx, first.cubin, first.parameters)
    assert (second.compile_seconds, second.threads_per_block) == (first.compile_seconds, 64)


def test_everything_that_matters_is_in_the_key(fresh_home: Path, tmp_path: Path):
    file = tmp_path / "k.cu"
    file.write_text(SOURCE)
    kernels = [
        compile_cuda(SOURCE, "plain"),
        compile_cuda(SOURCE + "\n// a comment", "plain"),
        compile_cuda(SOURCE, "plain", arch="sm_90"),
        compile_cuda(SOURCE, "plain", macros={"A": 1}),
        compile_cuda(SOURCE, "plain", macros={"A": 2}),
        compile_cuda(SOURCE, "plain", options=["--use_fast_math"]),
        compile_cuda(SOURCE, "mangled"),
        compile_cuda(file, "plain"),
    ]
    assert not any(kernel.from_cache for kernel in kernels)
    assert len(set(kernels)) == len(kernels)


def test_another_compiler_version_recompiles(fresh_home: Path, monkeypatch: pytest.MonkeyPatch):
    compile_cuda(SOURCE, "plain")
    monkeypatch.setattr(nvrtc, "version", lambda: "99.0")
    assert not compile_cuda(SOURCE, "plain").from_cache


def _with_headers(folder: Path) -> Path:
    (folder / "common").mkdir()
    (folder / "common" / "outer.cuh").write_text('#include "inner.cuh"\n')
    (folder / "common" / "inner.cuh").write_text("#define VALUE 1\n")
    file = folder / "kernel.cu"
    file.write_text('#include "common/outer.cuh"\nextern "C" __global__ void k(int *x) { x[0] = VALUE; }\n')
    return file


def test_a_changed_header_recompiles(fresh_home: Path, tmp_path: Path):
    file = _with_headers(tmp_path)
    before = compile_cuda(file, "k")
    assert compile_cuda(file, "k").from_cache
    (tmp_path / "common" / "inner.cuh").write_text("#define VALUE 2\n")
    after = compile_cuda(file, "k")
    assert not after.from_cache
    assert before != after
    assert before.ptx != after.ptx


def test_a_header_that_appears_and_shadows_recompiles(fresh_home: Path, tmp_path: Path):
    file = _with_headers(tmp_path)
    source = file.read_text().replace('"common/outer.cuh"', '"only.cuh"')
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (second / "only.cuh").write_text("#define VALUE 1\n")
    before = compile_cuda(source, "k", include_dirs=[first, second])
    (first / "only.cuh").write_text("#define VALUE 2\n")
    after = compile_cuda(source, "k", include_dirs=[first, second])
    assert not after.from_cache
    assert before.ptx != after.ptx


def test_has_include_is_part_of_the_key(fresh_home: Path, tmp_path: Path):
    source = '#if __has_include("maybe.cuh")\n#define V 2\n#else\n#define V 1\n#endif\n'
    source += 'extern "C" __global__ void k(int *x) { x[0] = V; }'
    before = compile_cuda(source, "k", include_dirs=[tmp_path])
    (tmp_path / "maybe.cuh").write_text("")
    after = compile_cuda(source, "k", include_dirs=[tmp_path])
    assert not after.from_cache
    assert before.ptx != after.ptx


def test_an_include_through_a_macro_is_followed_or_never_cached(fresh_home: Path, tmp_path: Path):
    header = tmp_path / "chosen.cuh"
    header.write_text("#define VALUE 1\n")
    source = '#include HEADER\nextern "C" __global__ void k(int *x) { x[0] = VALUE; }'
    macros = {"HEADER": '"chosen.cuh"'}
    compile_cuda(source, "k", macros=macros, include_dirs=[tmp_path])
    assert compile_cuda(source, "k", macros=macros, include_dirs=[tmp_path]).from_cache
    header.write_text("#define VALUE 2\n")
    assert not compile_cuda(source, "k", macros=macros, include_dirs=[tmp_path]).from_cache
    hidden = '#define HEADER "chosen.cuh"\n' + source
    for _ in range(2):
        assert not compile_cuda(hidden, "k", include_dirs=[tmp_path]).from_cache


def test_a_damaged_entry_is_rebuilt(fresh_home: Path):
    first = compile_cuda(SOURCE, "plain")
    entries = list(disk_cache.cache_folder().rglob("*.bin"))
    assert len(entries) == 1
    for damage in (lambda data: data[:-7], lambda data: data[:100] + b"\0" + data[101:], lambda data: b""):
        entries[0].write_bytes(damage(entries[0].read_bytes()))
        again = compile_cuda(SOURCE, "plain")
        assert not again.from_cache
        assert again == first
        assert compile_cuda(SOURCE, "plain").from_cache


def test_an_error_is_not_cached(fresh_home: Path, tmp_path: Path):
    header = tmp_path / "value.cuh"
    header.write_text("#define VALUE nothing\n")
    source = '#include "value.cuh"\nextern "C" __global__ void k(int *x) { x[0] = VALUE; }'
    for _ in range(2):
        with pytest.raises(CompileError):
            compile_cuda(source, "k", include_dirs=[tmp_path])
    header.write_text("#define VALUE 1\n")
    assert compile_cuda(source, "k", include_dirs=[tmp_path]).registers


def test_the_disassembly_is_made_when_first_asked_for_and_kept(fresh_home: Path, monkeypatch: pytest.MonkeyPatch):
    first = compile_cuda(SOURCE, "plain")
    sass = first.sass

    def gone(name: str) -> Path:
        raise MissingToolError(f"{name} was not found. Install it.")

    monkeypatch.setattr(tools, "find_program", gone)
    assert compile_cuda(SOURCE, "plain").sass == sass
    with pytest.raises(MissingToolError, match="nvdisasm"):
        _ = compile_cuda(SOURCE, "mangled").sass


def test_threads_compile_at_once(fresh_home: Path):
    results, errors = {}, []

    def work(index: int) -> None:
        try:
            results[index] = compile_cuda(SOURCE, f"scale<float, {index % 4 + 1}>")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len({kernel.cubin for kernel in results.values()}) == 4
    for index, kernel in results.items():
        assert f"Li{index % 4 + 1}E" in kernel.name


def test_the_text_form_is_short_and_without_addresses():
    kernel = compile_cuda(SOURCE, "plain")
    assert repr(kernel) == (
        f"<cuda kernel plain for sm_80: {kernel.registers} registers, 0 bytes spilled, 0 bytes shared>"
    )
    assert repr(compile_cuda_module(SOURCE)) == "<module of plain, mangled>"


def test_occupancy_wants_a_block_size():
    with pytest.raises(ArgumentError, match="threads_per_block"):
        _ = compile_cuda(SOURCE, "plain").occupancy
