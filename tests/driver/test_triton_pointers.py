"""Triton kernels that take addresses from memory, on the PTX machine."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

import workbench as wb  # noqa: E402


@triton.jit
def grouped_gemm(a_table, b_table, c_table, sizes, K: tl.constexpr, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    rows = tl.load(sizes + group)
    a = tl.load(a_table + group).to(tl.pointer_type(tl.float16))
    b = tl.load(b_table + group).to(tl.pointer_type(tl.float16))
    c = tl.load(c_table + group).to(tl.pointer_type(tl.float16))
    m, k, n = tl.arange(0, BLOCK), tl.arange(0, K), tl.arange(0, BLOCK)
    left = tl.load(a + m[:, None] * K + k[None, :], mask=m[:, None] < rows, other=0.0)
    right = tl.load(b + k[:, None] * BLOCK + n[None, :])
    tl.store(c + m[:, None] * BLOCK + n[None, :], tl.dot(left, right).to(tl.float16), mask=m[:, None] < rows)


@triton.jit
def add_one(p, SIZE: tl.constexpr):
    at = p + tl.arange(0, SIZE)
    tl.store(at, tl.load(at) + 1)


@triton.jit
def swap_neighbours(p, SIZE: tl.constexpr):
    c = tl.arange(0, SIZE)
    tl.store(p + c, tl.load(p + (c ^ 1)))


def test_grouped_gemm() -> None:
    torch.manual_seed(0)
    rows = [3, 16, 9]
    a = [torch.randn(n, 32).half() for n in rows]
    b = [torch.randn(32, 16).half() for _ in rows]
    c = [torch.zeros(n, 16).half() for n in rows]
    tables = [torch.tensor([one.data_ptr() for one in each]) for each in (a, b, c)]
    sizes = torch.tensor(rows, dtype=torch.int32)
    report = wb.check_kernel(grouped_gemm, grid=(3,), args=[*tables, sizes], kwargs={"K": 32, "BLOCK": 16})
    assert report.ok, report
    for left, right, out in zip(a, b, c, strict=True):
        torch.testing.assert_close(out.float(), left.float() @ right.float(), atol=0.02, rtol=0.01)
    sizes[0] = 4
    report = wb.check_kernel(grouped_gemm, grid=(3,), args=[*tables, sizes], kwargs={"K": 32, "BLOCK": 16})
    assert {(finding.kind, finding.buffer) for finding in report} == {
        ("out-of-bounds", "a_table[0]"), ("out-of-bounds", "c_table[0]"),
    }, report  # fmt: skip


@pytest.mark.parametrize("size", [1, 16, 64, 512])
def test_copies_of_an_element_do_not_race(size: int) -> None:
    data = torch.arange(size, dtype=torch.float32)
    report = wb.check_kernel(add_one, grid=(1,), args=[data], kwargs={"SIZE": size})
    assert report.ok, report
    assert data.tolist() == [i + 1.0 for i in range(size)]


def test_elements_of_neighbours_race() -> None:
    report = wb.check_kernel(swap_neighbours, grid=(1,), args=[torch.zeros(128)], kwargs={"SIZE": 128})
    assert {finding.kind for finding in report} == {"global race"}, report
