"""Extensions of torch: built as their sources say, with shorter headers where these do; machine code is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from workbench.driver.clients import nvcc as wrapper
from workbench.driver.clients.torch_headers import FOLDER, shorter_headers
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
    (2, "y", x * 2), (3, "y", x * 3),
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


@pytest.mark.parametrize(
    ("text", "words", "shorter"),
    [
        (EXTENSION, ["-c", "k.cu"], True),
        (EXTENSION.replace("extension", "all"), ["-c", "k.cu"], True),
        (EXTENSION, ["k.cu"], False),
        (EXTENSION, ["-c", "k.cu", "k.cu"], False),
        (EXTENSION, ["-c", "none.cu"], False),
        (EXTENSION + "PYBIND11_MODULE(k, m) {}", ["-c", "k.cu"], False),
        (EXTENSION + "torch::nn::Linear layer(1, 1);", ["-c", "k.cu"], False),
        ("#include <ATen/ATen.h>", ["-c", "k.cu"], False),
    ],
)
def test_kernels_that_need_tensors_alone_get_the_shorter_header(tmp_path, monkeypatch, text, words, shorter):
    (tmp_path / "k.cu").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert shorter_headers(words) == ([f"-I{FOLDER}"] if shorter else [])


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
