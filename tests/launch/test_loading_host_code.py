"""``load_cuda`` of a file with host code: its kernels come through nvcc, where that is installed."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import workbench as wb
from workbench.errors import CompileError, HostCodeError, MissingToolError
from workbench.toolchain import nvcc

TEXT = """#include <map>
template <int by> __global__ void scale(float* values) { values[threadIdx.x] *= by; }
__global__ void add(float* values) { values[threadIdx.x] += 1; }
int main() {
  std::map<int, float*> all;
  add<<<1, 32>>>(all[0]);
}
"""


def installed() -> bool:
    try:
        nvcc.program()
    except MissingToolError:
        return False
    return shutil.which("g++") is not None


def absent() -> None:
    raise MissingToolError('nvcc was not found. Get it with "workbench setup nvcc".')


def test_without_nvcc_the_error_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(nvcc, "program", absent)
    with pytest.raises(HostCodeError, match=r'(?s)has host code.*workbench setup nvcc.*"map"'):
        wb.load_cuda(TEXT, device="sim")
    with pytest.raises(CompileError, match='compiler="nvcc"'):
        wb.load_cuda(TEXT, device="sim", compiler="nvrtc")
    assert wb.load_cuda("__global__ void k() {}", device="sim").compiler == "nvrtc"
    with pytest.raises(CompileError) as wrong:  # no host code: nvcc is not asked
        wb.load_cuda("__global__ void k() { absent(); }", device="sim")
    assert not isinstance(wrong.value, HostCodeError)
    assert "compiled by nvcc" not in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.skipif(not installed(), reason="needs nvcc and g++")
def test_kernels_of_a_program_are_loaded_by_nvcc_and_it_is_said_once(capsys):
    for _ in range(2):
        module = wb.load_cuda(TEXT, device="sim")
        assert module.compiler == "nvcc"
        assert module.add.compiled.compiler.startswith("nvcc ")
    assert capsys.readouterr().err.count("has host code: its kernels are compiled by nvcc") == 1
    values = np.ones(32, np.float32)
    module.add(1, 32, values)
    module["scale<3>"](1, 32, values)
    assert (values == 6).all()
    report = wb.check_kernel(module.add, grid=1, block=33, args=[values])
    assert "source.cu:3" in str(report)
