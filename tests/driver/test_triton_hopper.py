"""What Triton compiles for sm_90, wgmma and TMA, on the machine: right, and accused of nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton_hopper as kernels
from triton.tools.tensor_descriptor import TensorDescriptor

import workbench as wb

M, N, K = 100, 192, 128
TILES = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
GRID = (2, 3)
WORDS = ("wgmma.mma_async", "cp.async.bulk.tensor", "setmaxnreg", ".reqnctapercluster")
SPECIALISED = ["wgmma.mma_async", "cp.async.bulk.tensor", "setmaxnreg"]


def factors(dtype: torch.dtype = torch.float16, rows: int = M) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A, B and room for A B^T, which has the float64 product's rows."""
    torch.manual_seed(0)
    a, b = (torch.randn(count, K).to(dtype) for count in (rows, N))
    return a, b, torch.zeros(rows, N)


def check(device: Any, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, error: float = 1e-3) -> list[str]:
    """The words of ``device``'s last PTX that only sm_90 has."""
    assert device.findings == ()
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=0, atol=error)
    return [word for word in WORDS if word in device.launches[-1].kernel.ptx]


def described(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[TensorDescriptor]:
    blocks = ([64, 64], [64, 64], [64, 64])
    return [TensorDescriptor.from_tensor(one, block) for one, block in zip((a, b, c), blocks, strict=True)]


@pytest.mark.parametrize("ctas", [1, 2])
def test_descriptors_from_the_host(ctas: int) -> None:
    a, b, c = factors()
    with wb.simulated_triton("sm_90", checks=True) as device:
        kernels.described_product[GRID](*described(a, b, c), K, **TILES, num_warps=4, num_stages=2, num_ctas=ctas)
    words = check(device, a, b, c)
    assert words == ["wgmma.mma_async", "cp.async.bulk.tensor"] + [".reqnctapercluster"] * (ctas == 2)


def test_descriptors_from_the_kernel() -> None:
    a, b, c = factors()
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.uint8))
    with wb.simulated_triton("sm_90", checks=True) as device:
        kernels.device_described_product[GRID](a, b, c, M, N, K, **TILES, num_warps=4, num_stages=2)
    assert check(device, a, b, c) == ["wgmma.mma_async", "cp.async.bulk.tensor"]


@pytest.mark.parametrize("built", ["host", "kernel"])
def test_a_persistent_kernel_with_specialised_warps(built: str) -> None:
    a, b, c = factors()
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.uint8))
    with wb.simulated_triton("sm_90", checks=True) as device:
        if built == "host":
            kernels.specialised_product[(2,)](*described(a, b, c), M, N, K, **TILES, num_warps=4, num_stages=2)
        else:
            kernels.persistent_product[(2,)](a, b, c, M, N, K, **TILES, num_warps=4, num_stages=2)
    assert check(device, a, b, c) == SPECIALISED


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.float16])
def test_reductions_have_the_type_of_the_descriptor(dtype: torch.dtype) -> None:
    x, before = torch.tensor([-1, -2, 7, 3, 5, 5, 5, 5] * 2), torch.tensor([5, -3, -1, 9] * 4)
    if dtype == torch.uint32:
        x, before = x & 0xFFFFFFFF, before & 0xFFFFFFFF
    want = [torch.minimum(before, x), torch.maximum(before, x), (before + x).to(dtype).long()]
    results = [before.to(dtype) for _ in want]
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.uint8))
    with wb.simulated_triton("sm_90", checks=True) as device:
        kernels.reductions[(1,)](*results, x.to(dtype))
    assert device.findings == ()
    assert "cp.reduce.async.bulk.tensor" in device.launches[-1].kernel.ptx
    for got, one in zip(results, want, strict=True):
        assert got.tolist() == one.tolist()


@pytest.mark.long
@pytest.mark.parametrize("ctas", [1, 2])
def test_a_check_in_both_orders_of_warps_and_copies(ctas: int) -> None:
    a, b, c = factors()
    options = {**TILES, "num_warps": 4, "num_stages": 3}
    where = {"grid": (2,), "arch": "sm_90"}
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.uint8))
    for kernel, args in (
        (kernels.specialised_product, described(a, b, c)),
        (kernels.persistent_product, (a, b, c)),
    ):
        report = wb.check_kernel(kernel, args=(*args, M, N, K), kwargs=options, **where)
        assert report.ok, report
    report = wb.check_kernel(
        kernels.described_product,
        args=(*described(a, b, c), K),
        kwargs=options | {"num_ctas": ctas},
        **where | {"grid": GRID},
    )
    assert report.ok, report


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "error"),
    [(torch.float16, 1e-3), (torch.bfloat16, 1e-3), (torch.float32, 0.05), (torch.float8_e4m3fn, 1e-2)],
    ids=str,
)
@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("warps", [4, 8])
def test_products_of_every_type(dtype: torch.dtype, error: float, ctas: int, warps: int) -> None:
    a, b, c = factors(dtype, 128)
    with wb.simulated_triton("sm_90", checks=True) as device:
        kernels.product[GRID](a, b, c, N, K, **TILES, num_warps=warps, num_stages=2, num_ctas=ctas)
    assert "wgmma.mma_async" in check(device, a, b, c, error)
