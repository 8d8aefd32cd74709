"""Triton's matrix products for sm_100 and sm_120 on the machine: right, and accused of nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
import triton_blackwell
import triton_hopper
from sampling import long_if
from triton.tools.tensor_descriptor import TensorDescriptor

import workbench as wb
from workbench.analysis.device_models import device_model
from workbench.analysis.prediction.counting import launch_counts
from workbench.analysis.prediction.tensor_flops import tensor_clocks

SHAPE = (128, 128, 256)
PRODUCT = {"sm_100": "tcgen05.mma", "sm_120": "mma.sync"}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


@dataclass(frozen=True)
class Scaled:
    """A format of elements with scales, and what Triton makes of its products on sm_100 and sm_120."""

    element: str
    vec: int
    kinds: dict[str, str]

    @property
    def pack(self) -> int:
        return 2 if self.element == "e2m1" else 1

    def factor(self, rows: int, depth: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The stored elements of a matrix, its scales, and its values in float64."""
        codes = torch.randint(0, 256, (rows, depth // self.pack), dtype=torch.uint8)
        if self.element == "e2m1":
            halves = torch.stack([codes & 15, codes >> 4], -1).reshape(rows, depth).long()
            values = E2M1[halves & 7] * (1 - 2 * (halves >> 3))
            stored = codes
        else:
            stored = torch.randn(rows, depth).to(torch.float8_e4m3fn)
            values = stored.double()
        if self.vec == 16:
            scales = (0.5 + torch.rand(rows, depth // 16)).to(torch.float8_e4m3fn)
            factors = scales.double()
        else:
            scales = torch.randint(124, 131, (rows, depth // 32), dtype=torch.uint8)
            factors = 2.0 ** (scales.double() - 127)
        return stored, scales, values * factors.repeat_interleave(self.vec, 1)


SCALED = {
    "mxfp8": Scaled("e4m3", 32, {"sm_100": "kind::mxf8f6f4", "sm_120": "kind::mxf8f6f4"}),
    "nvfp4": Scaled("e2m1", 16, {"sm_100": "kind::mxf4nvf4", "sm_120": "kind::mxf4nvf4"}),
    "mxfp4": Scaled("e2m1", 32, {"sm_100": "kind::mxf4", "sm_120": "kind::mxf4nvf4"}),
}


def run_scaled(name: str, arch: str, tiles: tuple[int, int, int] = (128, 128, 128), **options: int) -> str:
    """Check a product with scales against float64; return its PTX."""
    torch.manual_seed(0)
    scaled, (m, n, k) = SCALED[name], SHAPE
    (a, a_scale, a_values), (b, b_scale, b_values) = (scaled.factor(rows, k) for rows in (m, n))
    c = torch.zeros(m, n)
    sizes = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tiles, strict=True))
    with wb.simulated_triton(arch, checks=True) as device:
        triton_blackwell.scaled_product[(m // tiles[0], n // tiles[1])](
            a, a_scale, b, b_scale, c, n, k, FORMAT=scaled.element, VEC=scaled.vec, PACK=scaled.pack, **sizes, **options
        )
    assert device.findings == ()
    exact = a_values @ b_values.T
    bound = 2.0**-18 * (a_values.abs() @ b_values.T.abs())
    assert ((c.double() - exact).abs() <= bound).all()
    return device.launches[-1].kernel.ptx


@pytest.mark.parametrize("arch", ["sm_100", long_if(True, "sm_120")])
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", long_if(True, "mxfp4")])
def test_a_product_with_scales(name: str, arch: str) -> None:
    assert SCALED[name].kinds[arch] in run_scaled(name, arch, num_warps=4)


def test_products_are_counted_timed_and_drawn() -> None:
    scaled, (m, n, k) = SCALED["nvfp4"], SHAPE
    (a, a_scale, _), (b, b_scale, _) = (scaled.factor(rows, k) for rows in (m, n))
    kwargs = {"FORMAT": "e2m1", "VEC": 16, "PACK": 2, "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 128, "num_warps": 4}
    args = (a, a_scale, b, b_scale, torch.zeros(m, n), n, k)
    traced = wb.trace(
        triton_blackwell.scaled_product, grid=(1, 1), args=args, kwargs=kwargs, arch="sm_100", record_block=0
    )
    assert traced.products == m * n * k
    assert traced.scale_bytes == (m + n) * k // 16
    counts, b200 = launch_counts(traced.report, traced.kernel), device_model("b200")
    assert counts["tensor_flops"] == counts["tensor_flops_4_bits"] == 2 * m * n * k
    assert tensor_clocks(counts, b200) == 2 * m * n * k / 32768
    assert tensor_clocks(counts, replace(b200, tensor_flops_per_clock_4_bits=None)) == 2 * m * n * k / 16384
    assert 0 < traced.summary()["tensor cores"].value < 1
    pipeline = traced.recording.pipeline()
    assert pipeline.tensor_cycles == k // 64 * n // 2  # of a product 64 deep, half a cycle for each column
    assert pipeline.held
    assert all(held.columns >= n for held in pipeline.held)
    last = max(product.end for product in pipeline.products)
    assert any(phase.completed == last for phase in pipeline.phases)


@pytest.mark.long
@pytest.mark.parametrize("arch", PRODUCT)
@pytest.mark.parametrize("tiles", [(128, 64, 128), (128, 128, 256), (64, 64, 128)], ids=str)
@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("name", SCALED)
def test_products_with_scales_of_every_tile(name: str, tiles: tuple, warps: int, arch: str) -> None:
    if (name, arch, tiles[0]) == ("nvfp4", "sm_100", 64):
        pytest.skip("Triton 3.7 fails to compile NVFP4 with 64 rows for sm_100")
    run_scaled(name, arch, tiles, num_warps=warps, num_stages=2)


@pytest.mark.parametrize("arch", PRODUCT)
@pytest.mark.parametrize(
    ("dtype", "error"),
    [
        (torch.float8_e4m3fn, 1e-2),
        long_if(True, torch.float16, 1e-3),
        long_if(True, torch.bfloat16, 1e-3),
        long_if(True, torch.float32, 0.05),
    ],
    ids=str,
)
@pytest.mark.parametrize("warps", [4, long_if(True, 8)])
def test_a_product(dtype: torch.dtype, error: float, warps: int, arch: str) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(rows, 128).to(dtype) for rows in (128, 128))
    c = torch.zeros(128, 128)
    with wb.simulated_triton(arch, checks=True) as device:
        triton_hopper.product[(1, 2)](a, b, c, 128, 128, BLOCK_M=128, BLOCK_N=64, BLOCK_K=64, num_warps=warps)
    assert device.findings == ()
    assert PRODUCT[arch] in device.launches[-1].kernel.ptx
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=0, atol=error)


def test_rows_are_gathered_and_scattered() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(40, 64), torch.zeros(32, 64)
    rows, into = torch.randint(0, 41, (32,), dtype=torch.int32), torch.randperm(32).to(torch.int32)
    maps = [TensorDescriptor.from_tensor(one, [1, 32]) for one in (x, y)]
    with wb.simulated_triton("sm_100", checks=True) as device:
        triton_blackwell.doubled_rows[(1,)](*maps, rows, into, 32)
    assert device.findings == ()
    text = device.launches[-1].kernel.ptx
    assert "tile::gather4" in text
    assert "tile::scatter4" in text
    want = torch.zeros_like(y)
    want[into.long(), :32] = 2 * torch.cat([x, torch.zeros(1, 64)])[rows.long(), 32:]  # a row past the end is zeros
    assert y.equal(want)
