"""``load_cuda``: a user's own kernels, called by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.base.time_limit import seconds_of
from workbench.errors import (
    ArgumentError,
    CompileError,
    DeviceUnavailableError,
    KernelFault,
    KernelTimeout,
    UnknownNameError,
)
from workbench.launch import Trace
from workbench.ptx import LaunchReport

SOURCE = """\
#ifndef FACTOR
#define FACTOR 2
#endif
extern "C" __global__ void multiply(float *x, int n) { int i = threadIdx.x; if (i < n) x[i] *= FACTOR; }
__global__ void add(float *x, const float *y) { x[threadIdx.x] += y[threadIdx.x]; }
template <typename T, int N> __global__ void fill(T *x) { x[threadIdx.x] = N; }
"""


@pytest.fixture(scope="module")
def module() -> object:
    return wb.load_cuda(SOURCE, device="sim")


def test_kernels_run_on_tensors_and_arrays(module):
    x, y = torch.ones(32), np.full(32, 3, np.float32)
    module.multiply(1, 32, x, 16)
    assert x.tolist() == [2.0] * 16 + [1.0] * 16
    report = module.add(1, 32, y, x)
    assert y.tolist() == [5.0] * 16 + [4.0] * 16
    assert report.instructions > 0


def test_a_template_instance_by_expression(module):
    x = torch.zeros(32, dtype=torch.int32)
    module["fill<int, 7>"](1, 32, x)
    assert x.tolist() == [7] * 32
    assert module["fill<int, 7>"] is module["fill<int, 7>"]
    with pytest.raises(CompileError, match="no_type"):
        module["fill<no_type, 7>"]


def test_a_file_and_macros(tmp_path: Path):
    file = tmp_path / "user.cu"
    file.write_text(SOURCE)
    for source in (file, str(file)):
        x = torch.ones(32)
        wb.load_cuda(source, macros={"FACTOR": 5}, device="sim").multiply(1, 32, x, 32)
        assert x.tolist() == [5.0] * 32


def test_names_are_listed_and_unknown_ones_refused(module):
    assert [name for name in dir(module) if not name.startswith("_")] == ["add", "multiply"]
    with pytest.raises(UnknownNameError, match="multiply, add"):
        _ = module.multipy
    with pytest.raises(UnknownNameError, match=r"fill<\.\.\.>"):
        module["fil<int, 1>"]
    assert not hasattr(module, "nothing")


def test_text_forms_are_the_same_everywhere(module):
    assert repr(module).startswith("<CUDA module of multiply, add")
    assert repr(module).endswith("for sm_80 on sim>")
    assert repr(module.multiply) == "<kernel multiply(x: pointer, n: u32) for sm_80 on sim>"


def test_errors_of_a_launch_name_kernel_and_parameter(module):
    with pytest.raises(ArgumentError, match=r"multiply\(\): argument 1 'n'"):
        module.multiply(1, 32, torch.ones(32), 1.5)
    with pytest.raises(ArgumentError, match=r"arguments of multiply.*x \(pointer\), n \(u32\)"):
        module.multiply(1, 32, torch.ones(32))
    with pytest.raises(KernelFault):
        module.multiply(1, 64, torch.ones(32), 64)


def test_errors_of_the_source_and_the_device(tmp_path: Path):
    with pytest.raises(CompileError, match=r"source\.cu\(1\)"):
        wb.load_cuda("__global__ void k(float *x) { x = y; }", device="sim")
    with pytest.raises(ArgumentError, match=r"nothing\.cu"):
        wb.load_cuda(tmp_path / "nothing.cu", device="sim")
    with pytest.raises(UnknownNameError, match="device"):
        wb.load_cuda(SOURCE, device="tpu")


def test_cuda_is_refused_with_the_reason_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("workbench.launch.gpu.problem", lambda: "no driver. Install one.")
    with pytest.raises(DeviceUnavailableError, match=r"no driver\. Install one"):
        wb.load_cuda(SOURCE, device="cuda")


def test_the_compiled_kernel_is_at_hand(module):
    assert module.add.compiled.registers > 0
    assert "ld.global" in module.add.compiled.ptx


RACY = """\
extern "C" __global__ void racy(float *x) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = tile[threadIdx.x ^ 32];
}
extern "C" __global__ void fine(float *x) { x[threadIdx.x] *= 2; }
"""


def test_a_checked_module_shows_findings_and_goes_on(capsys: pytest.CaptureFixture[str]):
    module = wb.load_cuda(RACY, checks=True)
    x = np.arange(64, dtype=np.float32)
    report = module.racy(1, 64, x)
    assert isinstance(report, LaunchReport)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "shared race" in shown.err
    assert "tile[threadIdx.x] = x[threadIdx.x];" in shown.err
    assert x.tolist() != list(range(64)), "results are written"
    assert module.fine(1, 64, x).findings == []
    assert capsys.readouterr().err == ""
    assert repr(module).endswith("for sm_80 on sim, checked>")


def test_a_traced_module_returns_traces(capsys: pytest.CaptureFixture[str]):
    x = np.ones(64, np.float32)
    found = wb.load_cuda(RACY, trace=True).fine(1, 64, x)
    assert isinstance(found, Trace)
    assert (found.global_requests, found.global_sectors) == (4, 16)
    assert x.tolist() == [2.0] * 64
    both = wb.load_cuda(RACY, trace=True, checks=True).racy(1, 64, x)
    assert isinstance(both, Trace)
    assert both.report.findings
    assert "shared race" in capsys.readouterr().err


def test_a_trace_is_predicted_on_a_gpu_that_runs_the_code():
    source = 'extern "C" __global__ void one(float* x) { x[threadIdx.x] = 1; }'
    for arch, named in (("sm_80", " on A100-"), ("sm_90a", " on H")):
        trace = wb.load_cuda(source, arch=arch, device="sim", trace=True).one(1, 32, torch.zeros(32))
        assert named in str(trace.prediction())


def test_checks_and_traces_need_the_machine():
    with pytest.raises(ArgumentError, match="'auto' or 'sim' with checks and trace"):
        wb.load_cuda(RACY, device="cuda", checks=True, trace=True)


def test_a_stride_that_a_pointer_does_not_carry_is_a_note(capsys: pytest.CaptureFixture[str]):
    module = wb.load_cuda(RACY, checks=True, strided=True)
    x = torch.arange(128, dtype=torch.float32)
    for _ in range(2):
        module.fine(1, 64, x[::2])
    said = "note: x is a tensor of shape (64,) with strides (2,): the kernel gets its address, but not its strides"
    assert capsys.readouterr().err.count(said) == 1, "once is enough"
    assert x[:64].tolist() == [4.0 * value for value in range(64)]
    report = wb.check_kernel(module.fine, grid=1, block=64, args=[x[::2]])
    assert report.ok
    assert said in str(report)
    assert said in report._repr_html_()
    assert "note" not in str(wb.check_kernel(module.fine, grid=1, block=64, args=[x]))


ENDLESS = 'extern "C" __global__ void endless(volatile int *x) { while (!x[0]); }'


def test_a_launch_ends_after_its_seconds():
    x = torch.zeros(1, dtype=torch.int32)
    module = wb.load_cuda(ENDLESS, device="sim", seconds_limit=0.05)
    with pytest.raises(KernelTimeout, match=r"limit: 0\.05 s.*seconds_limit= sets another"):
        module.endless(1, 1, x)
    with pytest.raises(KernelTimeout, match=r"limit: 0\.02 s"):
        module.endless(1, 1, x, seconds_limit=0.02)
    with pytest.raises(KernelTimeout, match=r"limit: 0\.03 s"):
        wb.load_ptx(module.endless.compiled.ptx, device="sim", seconds_limit=0.03).endless(1, 1, x)
    with pytest.raises(ArgumentError, match="seconds_limit: got 0; allowed: more than 0"):
        wb.load_cuda(ENDLESS, device="sim", seconds_limit=0)


def test_in_a_notebook_every_launch_has_a_limit(monkeypatch: pytest.MonkeyPatch):
    ipython = pytest.importorskip("IPython")
    assert seconds_of("auto") is None
    monkeypatch.setattr(ipython, "get_ipython", object)
    assert seconds_of("auto") == 60
    assert seconds_of(None) is None
    monkeypatch.setattr("workbench.base.time_limit.NOTEBOOK_SECONDS", 0.05)
    with pytest.raises(KernelTimeout, match=r"limit: 0\.05 s"):
        wb.load_cuda(ENDLESS, device="sim").endless(1, 1, torch.zeros(1, dtype=torch.int32))


def test_kernels_of_an_included_header_are_the_modules_own(tmp_path: Path):
    (tmp_path / "kernels.cuh").write_text(SOURCE)
    (tmp_path / "main.cu").write_text('#include "kernels.cuh"\n')
    module = wb.load_cuda(tmp_path / "main.cu", device="sim")
    assert repr(module).startswith("<CUDA module of multiply, add, fill<...>")
    x = np.ones(4, np.float32)
    module["fill<float, 7>"](1, 4, x)
    assert x.tolist() == [7.0] * 4
    with pytest.raises(UnknownNameError, match=r"multiply, add, fill<\.\.\.>"):
        module["absent"]


def test_an_instance_is_found_however_its_numbers_are_written():
    source = """template <unsigned N> __global__ void tk(float *x) { x[threadIdx.x] = N; }
    template __global__ void tk<128>(float *);"""
    module = wb.load_cuda(source, device="sim")
    (name,) = module
    assert module["tk<128>"] is module["tk<128u>"] is module[name]
    assert wb.load_ptx(module[name].compiled.ptx, device="sim")["tk<128>"].compiled.name == module[name].compiled.name
    other = """template <auto N> __global__ void tk(int *x) { *x = sizeof(N); }
    template __global__ void tk<1LL>(int *);"""
    x = np.zeros(1, np.int32)
    wb.load_cuda(other, device="sim")["tk<1>"](1, 1, x)
    assert x[0] == 4, "with auto they are others"
