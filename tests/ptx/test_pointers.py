"""Addresses that lie in memory: tables of pointers, structs of pointers, and what leads nowhere."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest

import workbench as wb
from workbench import ptx
from workbench.errors import KernelFault
from workbench.ptx import pointers
from workbench.toolchain import compile_cuda_module

torch = pytest.importorskip("torch")

SOURCE = """
struct Params { const float* a; float* out; int n; float scale; };
extern "C" __global__ void table(float** rows, const int* sizes, float* out, int reach) {
  const float* row = rows[blockIdx.x];
  float sum = 0;
  for (int i = 0; i < sizes[blockIdx.x] + reach; i++) sum += row[i];
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
extern "C" __global__ void by_value(Params p) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) p.out[i] = p.a[i] * p.scale;
}
extern "C" __global__ void by_address(const Params* p, long far) {
  int i = threadIdx.x;
  if (i < p->n) p->out[i + far] = p->a[i] * p->scale;
}
extern "C" __global__ void increment(float** rows) { rows[blockIdx.x][threadIdx.x] += 1; }
"""
PARAMS = np.dtype([("a", "u8"), ("out", "u8"), ("n", "i4"), ("scale", "f4")])


@pytest.fixture(scope="module")
def program() -> ptx.Program:
    return ptx.Program.from_text(next(iter(compile_cuda_module(SOURCE, arch="sm_80").kernels.values())).ptx)


def rows_of(sizes: list[int]) -> list[torch.Tensor]:
    return [torch.arange(n, dtype=torch.float32) + 1 for n in sizes]


def table_of(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([row.data_ptr() for row in rows], dtype=torch.int64)


def test_a_table_of_pointers(program: ptx.Program) -> None:
    rows = rows_of([5, 300, 17])
    out, sizes = torch.zeros(3), torch.tensor([5, 300, 17], dtype=torch.int32)
    args = [table_of(rows), sizes, out, 0]
    report = program["table"].launch(3, 32, args, checks=True)
    assert report.findings == []
    assert out.tolist() == [float(row.sum()) for row in rows]
    facts = program["table"].launch(3, 1, args, statistics=True).buffers
    assert {buffer.name: buffer.size for buffer in facts} == {
        "argument 0": 24, "argument 1": 12, "argument 2": 12,
        "argument 0[0]": 20, "argument 0[1]": 1200, "argument 0[2]": 68,
    }  # fmt: skip


def test_bounds_are_those_of_the_allocation(program: ptx.Program) -> None:
    rows = rows_of([5, 300, 16])
    sizes = torch.tensor([5, 300, 16], dtype=torch.int32)
    args = [table_of(rows), sizes, torch.zeros(3), 1]
    with pytest.raises(KernelFault, match=r"0 bytes past the end of argument 0\[0\], which has 20 bytes") as fault:
        program["table"].launch(3, 1, args)
    assert fault.value.finding.buffer == "argument 0[0]"
    (finding,) = program["table"].launch(3, 1, args, checks=True).findings
    assert (finding.kind, finding.count, finding.buffer) == ("out-of-bounds", 3, "argument 0[0]")


def test_entries_into_one_tensor_that_is_an_argument_too(program: ptx.Program) -> None:
    whole = torch.arange(64, dtype=torch.float32).reshape(4, 16)
    table = torch.tensor([row.data_ptr() for row in whole], dtype=torch.int64)
    program["table"].launch(4, 1, [table, torch.full((4,), 16, dtype=torch.int32), whole[0, :4], 0])
    assert whole[0, :4].tolist() == [120.0, 376.0, 632.0, 888.0]


@pytest.mark.parametrize("kind", ["record array", "bytes", "through memory"])
def test_a_struct_of_pointers(program: ptx.Program, kind: str) -> None:
    a, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    params = np.array([(a.ctypes.data, out.ctypes.data, 100, 2.5)], PARAMS)
    value = params.tobytes() if kind == "bytes" else params
    if kind == "through memory":
        program["by_address"].launch(1, 128, [params, 0], checks=True)
    else:
        report = program["by_value"].launch(4, 32, [value], checks=True)
        assert report.findings == []
    np.testing.assert_array_equal(out, a * np.float32(2.5))


def test_kernels_of_load_cuda_take_records() -> None:
    module = wb.load_cuda(SOURCE, device="sim")
    a, out = torch.rand(40), torch.zeros(40)
    params = np.array([(a.data_ptr(), out.data_ptr(), 40, 3.0)], PARAMS)
    module.by_value(2, 32, params)
    torch.testing.assert_close(out, 3 * a)


def test_both_orders_of_a_check_start_from_the_same_values() -> None:
    module = wb.load_cuda(SOURCE, device="sim")
    rows = [torch.zeros(32), torch.zeros(32)]
    assert wb.check_kernel(module.increment, grid=2, block=32, args=[table_of(rows)]).ok
    assert [row.tolist() for row in rows] == [[1.0] * 32] * 2


def test_a_wild_address_is_laid_to_its_own_argument_or_none(program: ptx.Program) -> None:
    a, out = np.ones(32, np.float32), np.ones(32, np.float32)
    params = np.array([(a.ctypes.data, out.ctypes.data, 32, 1.0)], PARAMS)
    with pytest.raises(KernelFault) as fault:
        program["by_address"].launch(1, 32, [params, 1 << 32])
    assert fault.value.finding.buffer is None
    assert "no address of this process" in str(fault.value) or "memory" in str(fault.value)
    source = 'extern "C" __global__ void far(float* a, float* b, long at) { a[at] = b[0]; }'
    far = ptx.Program.from_text(next(iter(compile_cuda_module(source, arch="sm_80").kernels.values())).ptx)["far"]
    for at in (-(1 << 20), 1 << 28, -(1 << 33)):
        with pytest.raises(KernelFault) as fault:
            far.launch(1, 1, [a, out, at])
        assert fault.value.finding.buffer == "argument 0"


def test_what_leads_nowhere_is_described(program: ptx.Program) -> None:
    out, sizes = torch.zeros(1), torch.tensor([4], dtype=torch.int32)
    freed = torch.zeros(1 << 20)
    table = torch.tensor([freed.data_ptr()], dtype=torch.int64)
    program["table"].launch(1, 1, [table, sizes, out, 0])
    del freed
    gc.collect()
    cases = [
        (table, "memory of a float32 [1048576] that has been freed"),
        (torch.zeros(1, dtype=torch.int64), "a null pointer"),
        (torch.tensor([0x7777_7777_7770]), "no memory of this process"),
        (torch.tensor([12345678912]), "no address of"),
    ]
    for words, told in cases:
        with pytest.raises(KernelFault, match=re.escape(told)) as fault:
            program["table"].launch(1, 1, [words, sizes, out, 0])
        assert fault.value.finding.buffer is None


def test_integers_that_are_no_addresses_cost_no_search(program: ptx.Program, monkeypatch) -> None:
    monkeypatch.setattr("workbench.ptx.pointers._KNOWN.scan", lambda: pytest.fail("searched"))
    source = 'extern "C" __global__ void k(long* p) { p[0] += 1; }'
    kernel = ptx.Program.from_text(next(iter(compile_cuda_module(source, arch="sm_80").kernels.values())).ptx)["k"]
    kernel.launch(1, 1, [torch.tensor([1 << 40, -5, 1 << 62, 7])])


def test_tensors_of_a_compiler_are_passed_over():
    """Their memory begins at 0 and ends at a symbol; those of an earlier `torch.compile` may be alive."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    fake = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(7))
    assert not isinstance(fake.untyped_storage().nbytes(), int)
    real = torch.arange(5)
    assert pointers.lookup([real.data_ptr()])[real.data_ptr()].owner is real
