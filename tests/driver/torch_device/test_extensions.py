"""Extensions of torch: built as their sources say, with shorter headers where these do; machine code is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from workbench.driver.clients import nvcc as wrapper
from workbench.driver.clients.host_programs import include_options
from workbench.driver.clients.torch_headers import BINDINGS, OPERATORS, TENSORS, compile_shorter, shorter_headers
from workbench.driver.torch_device.library import installed_torch
from workbench.errors import MissingToolError
from workbench.toolchain import nvcc

_TORCH = installed_torch()
_TAKES_GPU_BUILD = pytest.mark.skipif(
    _TORCH is None or _TORCH.problem is not None, reason="takes torch's build for CUDA 13"
)
EXTENSION = "#include <torch/extension.h>\n__global__ void k(float* x) {}\n"
BUILDS = r"""
import workbench as wb
wb.simulated_gpu(force=True)
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
__global__ void scale(const float* x, float* y, long n) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i] * FACTOR;
}
torch::Tensor scaled(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scaled", [&] { TORCH_CHECK(sizeof(scalar_t) == 4); });
  scale<<<4, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return MORE;
}
'''
x = torch.randn(1000, device="cuda")
for number, (factor, more, wanted) in enumerate((
    (2, "y", x * 2), (3, "at::relu(y) - torch::clamp_min(-y, 0) + torch::zeros_like(y)", x * 3),
    (5, "torch::real(torch::fft::ifft(torch::fft::fft(y)))", x * 5),  # of no shorter header
)):
    source = SOURCE.replace("FACTOR", f"{factor}.f").replace("MORE", more)
    built = load_inline(f"scaled_{number}", cpp_sources="torch::Tensor scaled(torch::Tensor x);", cuda_sources=source,
                        functions=["scaled"])
    torch.testing.assert_close(built.scaled(x), wanted, atol=1e-5, rtol=1e-5)
print("right")
"""
PREBUILT = r"""
#include <cuda_runtime.h>
__global__ void k(float* x) { x[0] = 1; }
extern "C" const char* launch() {
  float* x = nullptr;
  cudaMalloc(&x, 4);
  k<<<1, 1>>>(x);
  return cudaGetErrorString(cudaGetLastError());
}
"""
LOADS = """
import ctypes, sys
import workbench as wb
wb.simulated_gpu(force=True)
import torch
built = ctypes.CDLL(sys.argv[1])
built.launch.restype = ctypes.c_char_p
print(built.launch().decode())
"""


NAMED = EXTENSION + "torch::Tensor f(torch::Tensor x) { return torch::empty_like(x + at::relu(x)).sum(); }\n"


@pytest.mark.parametrize(
    ("text", "words", "folders"),
    [
        (EXTENSION, ["-c", "k.cu"], [OPERATORS]),
        (EXTENSION.replace("extension", "all"), ["-c", "k.cu"], [OPERATORS]),
        ("#include <ATen/ATen.h>\n#include <vector>\n#include <cuda_fp16.h>", ["-c", "k.cu"], [OPERATORS]),
        (EXTENSION, ["k.cu"], []),
        (EXTENSION, ["-c", "k.cu", "k.cu"], []),
        (EXTENSION, ["-c", "none.cu"], []),
        ("#include <cuda_fp16.h>", ["-c", "k.cu"], []),
        (EXTENSION + "PYBIND11_MODULE(k, m) {}", ["-c", "k.cu"], [BINDINGS, OPERATORS]),
        (EXTENSION.replace("__global__", "") + "PYBIND11_MODULE(k, m) {}", ["-c", "k.cpp"], [BINDINGS, OPERATORS]),
        (EXTENSION + "torch::nn::Linear layer(1, 1);", ["-c", "k.cu"], []),
        # Without all operators these could mean something else: an int where a bool is expected, no gradients.
        (EXTENSION + "auto f(at::Tensor x) { return at::std(x, 1); }", ["-c", "k.cu"], [TENSORS]),
        (EXTENSION + "auto f(at::Tensor x) { return var(x, 1); }", ["-c", "k.cu"], [TENSORS]),
        (EXTENSION + "auto f() { return torch::ones(2, torch::requires_grad()); }", ["-c", "k.cu"], [TENSORS]),
        (EXTENSION + '#include "own.h"', ["-c", "k.cu"], [TENSORS]),
        (EXTENSION + '#include "own.h"', ["-c", "k.cpp"], []),
    ],
)
def test_a_file_gets_the_shortest_headers_that_it_can_do_with(tmp_path, monkeypatch, text, words, folders):
    operators = tmp_path / "include" / "ATen" / "ops"
    operators.mkdir(parents=True)
    for name in ("k.cu", "k.cpp"):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    found = shorter_headers([*words, "-isystem", "include"])
    assert [word for word in found if word.startswith("-I")] == [f"-I{folder}" for folder in folders]
    assert ("-DAT_PER_OPERATOR_HEADERS" in found) == (OPERATORS in folders)


def test_the_operators_that_a_file_names_are_included(tmp_path, monkeypatch):
    operators = tmp_path / "include" / "ATen" / "ops"
    operators.mkdir(parents=True)
    for name in ("empty_like", "relu", "sum", "exp"):
        (operators / f"{name}.h").touch()
    (tmp_path / "k.cu").write_text(NAMED)
    monkeypatch.chdir(tmp_path)
    found = shorter_headers(["-c", "k.cu", "-Iinclude"])
    assert [word for word in found if "/ops/" in word] == ["ATen/ops/empty_like.h", "ATen/ops/relu.h"]
    assert OPERATORS.as_posix() not in "".join(shorter_headers(["-c", "k.cu"])), "torch's headers are not found"


def test_a_compiler_cache_gets_the_text_that_nvcc_expands(tmp_path, monkeypatch):
    """ccache keys what it keeps by what -E writes to its -o."""
    called = []
    monkeypatch.setattr(wrapper, "call_nvcc", lambda words: called.append(list(words)) or 0)
    words = ["-E", "-o", str(tmp_path / "k.ii"), "k.cu"]
    assert wrapper.main(words) == 0
    assert called == [words]


def _run(program: str, *words: object, **variables: object) -> subprocess.CompletedProcess:
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    command = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200)


@_TAKES_GPU_BUILD
@pytest.mark.long
def test_extensions_that_differ_in_a_number_are_built_apart(tmp_path):
    done = _run(BUILDS, TORCH_EXTENSIONS_DIR=tmp_path / "built", CCACHE_DIR=tmp_path / "ccache", MAX_JOBS=2)
    assert done.stdout.endswith("right\n"), done.stdout + done.stderr


KERNELS = r"""
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
__global__ void k(float* x) { x[threadIdx.x] *= 2; }
torch::Tensor scaled(torch::Tensor x, std::optional<at::Tensor> bias) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "x is ", x.scalar_type());
  const c10::cuda::CUDAGuard guard(device_of(x).value());
  auto y = at::relu(x) - torch::clamp_min(-x, 0) + torch::zeros({1}, x.options().dtype(torch::kFloat));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scaled", [&] { TORCH_CHECK(sizeof(scalar_t) == 4); });
  k<<<1, 32, 0, at::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>());
  return bias ? y + *bias * 2.0 : y.sum(0);
}
"""
BOUND = r"""
#include <torch/extension.h>
torch::Tensor scaled(torch::Tensor x, std::optional<at::Tensor> bias);
PYBIND11_MODULE(k, m) { m.def("scaled", torch::wrap_pybind_function(scaled), "scaled"); }
"""


@_TAKES_GPU_BUILD
@pytest.mark.long
def test_kernels_and_bindings_compile_with_the_headers_of_the_operators_that_they_name(tmp_path, monkeypatch):
    include = _TORCH.folder / "include"
    folders = [include, include / "torch" / "csrc" / "api" / "include", sysconfig.get_paths()["include"]]
    words = ["-c", "-std=c++20", *(word for folder in folders for word in ("-isystem", str(folder)))]
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text(KERNELS)
    Path("k.cpp").write_text(BOUND)
    assert compile_shorter([str(nvcc.program()), *include_options()], [*words, "k.cu", "-o", "cu.o"]) == 0
    assert compile_shorter(["c++", *include_options()], [*words, "k.cpp", "-o", "cpp.o"]) == 0


@_TAKES_GPU_BUILD
@pytest.mark.long
def test_an_extension_of_machine_code_alone_is_refused_by_its_file(tmp_path):
    try:
        compiler = nvcc.program()
    except MissingToolError as error:
        pytest.skip(str(error))
    source, built = tmp_path / "prebuilt.cu", tmp_path / "prebuilt.so"
    source.write_text(PREBUILT)
    root = compiler.resolve().parent.parent
    flags = ["-shared", "-Xcompiler", "-fPIC", "-cudart=shared", "-cudadevrt=none", f"-L{root / 'lib'}"]
    flags += ["-Xlinker", "--allow-shlib-undefined,--unresolved-symbols=ignore-all"]
    flags += ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90"]
    runtime = tmp_path / "libcudart.so"  # the name that -cudart=shared links
    runtime.symlink_to(next((root / "lib").glob("libcudart.so.*")))
    subprocess.run([compiler, *flags, f"-L{tmp_path}", source, "-o", built], check=True, capture_output=True)
    done = _run(LOADS, built)
    wanted = f"the fatbin in {built} has no PTX that this device, sm_90, runs "
    wanted += "(machine code for sm_80, machine code for sm_90): build that file from its source here, or compile with"
    assert wanted in done.stdout, done.stdout + done.stderr
    assert re.search(r"code=compute_XX", done.stdout)
