"""Products of block-scaled matrices for sm_100a, and what quantizes matrices for them, against float64."""

from __future__ import annotations

import pytest
import torch
from sampling import long_if

from benchmarks.block_scaled import FORMATS, BlockScaled, multiply, quantize
from workbench.analysis.exact.elements import MODULUS, matrix_product
from workbench.analysis.exact.elements import elements as of_ring

SIZES = [(128, 128, 256), long_if(True, (256, 384, 1280))]
LARGEST = {"mxfp8": 448.0, "nvfp4": 6.0}
SPACING = {"mxfp8": (2.0**-3, 2.0**-9), "nvfp4": (0.5, 0.5)}  # of elements: relative to their power of two, and least


def matrix(rows: int, k: int, seed: int) -> torch.Tensor:
    """Rows of different sizes, with a group of zeros and one of a single size."""
    x = torch.randn(rows, k, generator=torch.Generator().manual_seed(seed))
    x *= torch.exp2(torch.arange(rows) % 9 - 4.0)[:, None]
    x[3, :32], x[5, 32:64] = 0.0, 2.5
    return x


@pytest.mark.parametrize("kind", FORMATS)
def test_quantized_to_the_nearest(kind: str) -> None:
    x = matrix(128, 256, 1)
    found, report = quantize(kind, x, checks=True)
    assert report.findings == []
    groups, scales = x.double().unflatten(1, (-1, FORMATS[kind].group)), found.scale_values()
    largest = groups.abs().amax(-1)
    if kind == "mxfp8":  # the least power of two with which the largest is an element
        assert torch.equal(scales[largest > 0], torch.exp2(torch.ceil(torch.log2(largest / 448)))[largest > 0])
    else:
        assert torch.equal(scales, (largest / 6).to(torch.float8_e4m3fn).double())
    elements = groups / scales.where(scales > 0, 1)[..., None]
    relative, least = SPACING[kind]
    spacing = torch.exp2(torch.floor(torch.log2(elements.abs().clamp(min=1e-9)))) * relative
    error = (found.values().unflatten(1, (-1, FORMATS[kind].group)) / scales.where(scales > 0, 1)[..., None]) - elements
    past = (elements.abs() - LARGEST[kind]).clamp(min=0)  # a scale that was rounded down
    assert (error.abs() <= spacing.clamp(min=least) / 2 + past + 1e-6).all()
    assert (found.values()[3, :32] == 0).all()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", FORMATS)
def test_products(kind: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = (quantize(kind, matrix(rows, k, rows))[0] for rows in (m, n))
    expected = a.values() @ b.values().T
    bound = 1e-6 * a.values().abs() @ b.values().abs().T
    for order in ({}, {"last_warp_first": True}, {"copies_early": True}, {"strict": True}):
        c, report = multiply(a, b, checks=True, **order)
        assert report.findings == []
        assert ((c - expected).abs() <= bound).all()
    # On elements of a ring, where codes and scales are what they are, the product is exact.
    x, y = (
        of_ring(one.code_values()) * of_ring(one.scale_values()).repeat_interleave(FORMATS[kind].group, 1) % MODULUS
        for one in (a, b)
    )
    assert torch.equal(of_ring(multiply(a, b, exact=True)[0]), matrix_product(x, y.mT))


@pytest.mark.parametrize("kind", FORMATS)
def test_every_scale_counts(kind: str) -> None:
    """Multiply ones with scales all their own, so that one in the place of another shows."""
    generator = torch.Generator().manual_seed(0)
    ones = torch.full((128, 256 * FORMATS[kind].bits // 8), 0x38 if kind == "mxfp8" else 0x22, dtype=torch.uint8)
    codes = (120, 135) if kind == "mxfp8" else (40, 80)
    a, b = (
        BlockScaled(kind, ones, torch.randint(*codes, (128 * 256 // FORMATS[kind].group,), generator=generator).byte())
        for _ in range(2)
    )
    c, _ = multiply(a, b)
    expected = a.values() @ b.values().T
    torch.testing.assert_close(c.double(), expected, rtol=3e-5, atol=0)
