"""Rows of few bits: their bytes, every code and rounding by the formats' own formulas, refusals."""

import itertools

import pytest
import torch

from workbench.attention.cache_formats.token_rows import ROW_CODECS, row_codec
from workbench.errors import ArgumentError, UnknownNameError

BITS = {"int4": 4.25, "int3": 3.25, "int2": 2.25, "mxfp4": 4.25, "nvfp4": 4.5}
INTEGERS = {"int4": 4, "int3": 3, "int2": 2}


def tokens(head_size=64):
    drawn = torch.randn(9, 3, head_size, generator=torch.Generator().manual_seed(2))
    drawn[3] *= 1000.0
    drawn[4] = 0.0
    drawn[5] = 7.5
    return drawn


@pytest.mark.parametrize("name", BITS)
def test_bits_of_an_element_are_those_of_the_rows(name):
    rows = row_codec(name).pack(tokens(128))
    assert rows.dtype == torch.uint8
    assert row_codec(name).bits(128) == rows.shape[-1] * 8 / 128 == BITS[name]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_the_nearest_level(name):
    x, bits = tokens(), INTEGERS[name]
    found = row_codec(name).unpack(row_codec(name).pack(x))
    low, step = x.amin(-1), (x.amax(-1) - x.amin(-1)) / (2**bits - 1)
    assert ((found - x).abs() <= (step / 2 + 2.0**-10 * x.abs().amax(-1))[..., None]).all()
    assert all(len(row.unique()) <= 2**bits for row in found[0])
    torch.testing.assert_close(found.amin(-1), low, rtol=2.0**-10, atol=0)
    assert (found[4] == 0).all()
    assert (found[5] == 7.5).all()


@pytest.mark.parametrize("name", INTEGERS)
def test_codes_lie_in_order_from_the_lowest_bit_on(name):
    """A row whose elements are their own codes, read by Python's integers."""
    bits = INTEGERS[name]
    codes = torch.arange(64) * 5 % 2**bits
    row = row_codec(name).pack(codes.float())
    stream = int.from_bytes(bytes(row[:-4].tolist()), "little")
    assert [stream >> bits * place & 2**bits - 1 for place in range(64)] == codes.tolist()
    assert row[-4:].view(torch.float16).tolist() == [0.0, 1.0]


def test_mxfp4_by_its_formula():
    """By search through the 16 values for every element, with the scale of the specification."""
    x = torch.cat([tokens().flatten(), torch.tensor([7.9, *[0.25] * 31])])
    rows = row_codec("mxfp4").pack(x.view(-1, 32))
    found = row_codec("mxfp4").unpack(rows)
    values = torch.tensor([sign * v for v, sign in itertools.product((0, 0.5, 1, 1.5, 2, 3, 4, 6), (1, -1))])
    for group, got, row in zip(x.view(-1, 32), found, rows, strict=True):
        if not group.any():
            assert not got.any()
            continue
        scale = 2.0 ** (torch.floor(torch.log2(group.abs().max())) - 2)
        assert 2.0 ** (int(row[-1]) - 127) == scale
        nearest = (group[:, None] - values * scale).abs().amin(1)
        torch.testing.assert_close((got - group).abs(), nearest, rtol=1e-6, atol=0)
    assert found[-1, 0] == 6.0


def test_refusals():
    assert set(ROW_CODECS) == set(BITS)
    with pytest.raises(ArgumentError, match="a multiple of 32"):
        row_codec("mxfp4").row_bytes(80)
    with pytest.raises(UnknownNameError, match="int3"):
        row_codec("int5")
