"""Unmodified Triton programs in the style of Triton's tutorials: right values, no false finding, races found."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton_kernels as kernels

import workbench as wb
from workbench.errors import ArgumentError, CompileError, KernelFault, PredictedTimeWarning

PROGRAMS = Path(__file__).parent / "triton_programs"
NAMES = ("softmax", "matmul", "layer_norm", "attention", "descriptors")
# program: (what is written there, what instead, the kinds found, at the lines with this text)
PLANTED = {
    "softmax": ("out + row * out_stride + at", "out + row // 2 * out_stride + at", "global race", "tl.store(out"),
    "matmul": (
        "    rows = m * BLOCK_M + tl.arange(0, BLOCK_M)\n",
        "    rows = m // 2 * BLOCK_M + tl.arange(0, BLOCK_M)\n",
        "global race",
        "tl.store(c",
    ),
    "layer_norm": (
        "    tl.debug_barrier()  # all of the program has written before it gives the lock away\n",
        "",
        "global race",
        "tl.store(db_at",
    ),
    "layer_norm, the count": (
        "    tl.debug_barrier()  # all warps of the program have read the count before one of them changes it\n",
        "",
        "global race",
        "is_first = tl.load(count)",  # the tutorial has no barrier here: its own partial sums start with zeros
    ),
    "attention": (", mask=rows[:, None] < length)\n\n\ndef", ")\n\n\ndef", "global race", "tl.store(at"),
    "descriptors": ("writes.store([col, row], reads", "writes.store([col, 0], reads", "global race", "writes.store("),
}


def run(path: Path, **options) -> wb.driver.triton.driver.SimulatedTriton:
    """The program under a checked simulated device, in this process."""
    with warnings.catch_warnings(), wb.simulated_triton(checks=True, force=True, **options) as device:
        warnings.simplefilter("ignore", PredictedTimeWarning)
        runpy.run_path(str(path), run_name="__main__")
    return device


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_right_and_clean(name, capsys):
    device = run(PROGRAMS / f"{name}.py")
    assert f"{name.replace('_', ' ')} ok" in capsys.readouterr().out
    assert len(device.launches)
    assert device.findings == ()


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_race_is_found_at_its_line(planted, tmp_path, capsys):
    written, instead, kind, text = PLANTED[planted]
    name = planted.partition(",")[0]
    source = (PROGRAMS / f"{name}.py").read_text()
    assert source.count(written) == 1
    copy = tmp_path / f"{name}.py"
    copy.write_text(source.replace(written, instead))
    with warnings.catch_warnings(), wb.simulated_triton(checks=True, force=True) as device:
        warnings.simplefilter("ignore", PredictedTimeWarning)
        try:
            runpy.run_path(str(copy), run_name="__main__")
        except AssertionError as error:
            assert "not close" in str(error)  # noqa: PT017 (a race need not change the values)
    lines = copy.read_text().splitlines()
    sides = {
        (Path(path).name, lines[line - 1].strip())
        for one in device.findings
        if one.kind == kind
        for path, line in ((one.kernel_source, one.kernel_line), (one.other_kernel_source, one.other_kernel_line))
    }
    assert any(file == copy.name and line.startswith(text) for file, line in sides), sides


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES[:4])
def test_a_program_is_right_and_clean_for_sm_89(name):
    assert run(PROGRAMS / f"{name}.py", arch="sm_89").findings == ()


# -- one call of a JIT function --------------------------------------------------------------------------------------


def test_a_jit_function_is_checked_traced_and_compiled_by_its_call():
    x, y, out = torch.rand(1000), torch.rand(1000), torch.zeros(1000)
    call = {"grid": lambda meta: (triton.cdiv(1000, meta["BLOCK"]),), "args": [x, y, out, 1000]}
    options = {"BLOCK": 256, "num_warps": 2}
    report = wb.check_kernel(kernels.add_kernel, **call, kwargs=options)
    assert report.ok
    assert report.launch.grid == (4, 1, 1)
    torch.testing.assert_close(out, x + y)
    trace = wb.trace_kernel(kernels.add_kernel, **call, kwargs=options, record_block=(1, 0, 0))
    assert trace.buffers["out"].written_unique == 4000
    assert trace.recording.warps
    assert trace.kernel.registers
    loads = next(line for line in trace.lines if "tl.load(x + at" in line.text)
    assert Path(loads.path) == Path(kernels.__file__)
    kernel = wb.compile(kernels.add_kernel, args=[x, y, out, 1000], kwargs=options, arch="sm_89")
    assert kernel.arch == "sm_89"
    assert [one.divisibility for one in kernel.parameters if not one.scratch] == [16, 16, 16, 1]
    newer = wb.compile(kernels.add_kernel, args=[x, y, out, 1000], kwargs=options, arch="sm_100")
    assert ".target sm_100" in newer.ptx
    with wb.simulated_triton("sm_89", force=True):
        assert wb.trace_kernel(kernels.add_kernel, **call, kwargs=options).kernel.arch == "sm_89"
    sized = wb.compile(kernels.add_kernel, args=[x, y, out, 1024], kwargs=options)
    assert sized.parameters[3].divisibility == 16
    again = wb.check_kernel(sized, grid=4, args=[x, y, out, 1024 - 24 - 8])
    assert again.ok


@pytest.mark.parametrize("warps", [1, 4])
def test_warps_that_a_small_tensor_leaves_over_do_not_race(warps):
    x = torch.arange(64.0).reshape(2, 32)
    report = wb.check_kernel(kernels.in_place_kernel, grid=2, args=[x], kwargs={"COLS": 32, "num_warps": warps})
    assert report.ok, report
    assert torch.equal(x, torch.arange(-31.0, 1.0).expand(2, 32))


def test_what_a_call_gets_wrong_is_said():
    x = torch.zeros(8)
    report = wb.check_kernel(kernels.outside_kernel, grid=(1,), args=[x], kwargs={"BLOCK": 16})
    assert [(finding.kind, finding.buffer) for finding in report] == [("out-of-bounds", "x")]
    with pytest.raises(KernelFault, match="out-of-bounds"):
        wb.trace_kernel(kernels.outside_kernel, grid=1, args=[x], kwargs={"BLOCK": 16})
    fresh = wb.check_kernel(kernels.doubled_kernel, grid=1, args=[x, x.clone(), 8], uninitialised=[0])
    assert {finding.kind for finding in fresh} == {"uninitialised global read"}
    refused = {
        "block: got 32; allowed: no value": {"block": 32},
        "args: got .*missing 1 required.*BLOCK": {"kwargs": {}},
        "kwargs: got .*stages": {"kwargs": {"BLOCK": 16, "stages": 2}},
        "arch: got 'sm_70'": {"arch": "sm_70"},
        "at least one program": {"grid": (0,)},
    }
    for words, options in refused.items():
        with pytest.raises(ArgumentError, match=words):
            wb.check_kernel(kernels.outside_kernel, **({"grid": 1, "args": [x], "kwargs": {"BLOCK": 8}} | options))
    with pytest.raises(CompileError, match=r"triton_kernels\.py:\d+: [\s\S]*missing is not defined"):
        wb.check_kernel(kernels.wrong_kernel, grid=1, args=[x], kwargs={"BLOCK": 8})
    with pytest.raises(ArgumentError, match="2 configurations"):
        wb.compile(kernels.increment_kernel, args=[x, 8])
    kernel = wb.compile(kernels.racy_kernel, args=[x.int()])
    with pytest.raises(ArgumentError, match=r"kwargs: got .* only|Only @triton\.jit"):
        wb.trace_kernel(kernel, grid=1, args=[x.int()], kwargs={"BLOCK": 8})


# -- PTX of other compilers ------------------------------------------------------------------------------------------

RECORDS = """
struct Range { int first, last; double factor; };
extern "C" __global__ void scale(float *x, const __grid_constant__ Range range)
{
    int at = range.first + threadIdx.x;
    if (at < range.last) x[at] *= range.factor;
}
template <int N> __global__ void fill(int *x) { x[threadIdx.x] = N; }
template __global__ void fill<3>(int *);
__device__ int calls = 5;
extern "C" __global__ void count(int *out) { *out = ++calls; }
"""


def test_ptx_of_nvrtc_is_called_checked_and_traced(tmp_path):
    text = wb.load_cuda(RECORDS, device="sim")["scale"].compiled.ptx
    path = tmp_path / "records.ptx"
    path.write_text(text)
    module = wb.load_ptx(path, device="sim")
    x = np.ones(8, np.float32)
    record = np.zeros(1, [("first", "i4"), ("last", "i4"), ("factor", "f8")])
    record[0] = 2, 6, 3.0
    for value in (record, record[0], record.tobytes()):
        x[:] = 1
        module.scale(1, 32, x, value)
        assert x.tolist() == [1, 1, 3, 3, 3, 3, 1, 1]
    numbers = np.zeros(4, np.int32)
    module["fill<3>"](1, 4, numbers)
    assert numbers.tolist() == [3] * 4
    module["count"](1, 1, numbers)
    assert numbers[0] == 6
    record["last"] = 9
    (found,) = wb.check_kernel(module.scale, grid=1, block=32, args=[x, record])
    assert (found.kind, found.count, found.places) == ("out-of-bounds", 2, 2), "it reads and writes there"
    assert found.message.endswith("; 2 times, in 2 places of the PTX")
    record["last"] = 6
    trace = wb.trace_kernel(module.scale, grid=1, block=32, args=[x, record])
    assert any("range.factor" in line.text for line in trace.lines)
    assert module.scale.compiled.registers > 0
    with pytest.raises(ArgumentError, match=r"scale.*fill<3>.*count"):
        module.other  # noqa: B018
    with pytest.raises(ArgumentError, match="16 bytes"):
        module.scale(1, 32, x, b"short")


def test_ptx_of_triton_is_loaded():
    kernel = wb.compile(kernels.doubled_kernel.fn, args=[torch.zeros(8), torch.zeros(8), 8], kwargs={"BLOCK": 8})
    module = wb.load_ptx(kernel.ptx, device="sim")
    x, out = torch.rand(8), torch.zeros(8)
    module.doubled_kernel(1, kernel.threads_per_block, x, out, 8, None, None)
    torch.testing.assert_close(out, 2 * x)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nowhere.ptx", "readable file"),
        ("int f();\n", r"its \.target line is missing"),
        (".version 9.0\n.target sm_80\n", "without a kernel"),
    ],
)
def test_what_is_no_ptx_is_refused(text, words):
    with pytest.raises(ArgumentError, match=words):
        wb.load_ptx(text)
