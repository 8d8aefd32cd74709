"""Paged layouts: what is written is found where the layout's formula says, and comes back."""

import itertools

import pytest
import torch

from workbench.attention.cache_formats.layouts import LAYOUTS, PagedGeometry, detect, from_paged, to_paged, x_of
from workbench.errors import ArgumentError, UnknownNameError

KV_HEADS, HEAD_SIZE, BLOCK_SIZE, NUM_BLOCKS = 3, 32, 4, 9
LENGTHS = (1, 3, 4, 5, 0, 9)
TABLES = torch.tensor([[7, -1, -1], [0, -1, -1], [5, -1, -1], [2, 8, -1], [-1, -1, -1], [6, 1, 4]], dtype=torch.int32)


def sequences(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, KV_HEADS, HEAD_SIZE, generator=generator).to(dtype) for n in LENGTHS]


def paged(layout, dtype=torch.float32):
    keys, values = sequences(dtype), [-tokens for tokens in sequences()]
    values = [tokens.to(dtype) for tokens in values]
    return to_paged(keys, values, TABLES, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, layout=layout), keys, values


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2]
)
def test_round_trip(layout, dtype):
    (key_cache, value_cache), keys, values = paged(layout, dtype)
    found = from_paged(key_cache, value_cache, TABLES, LENGTHS, layout=layout)
    for got, expected in zip(itertools.chain(*found), itertools.chain(keys, values), strict=True):
        assert got.dtype == dtype
        assert torch.equal(got.float(), expected.float())


def test_elements_are_where_the_formula_says():
    x = x_of(torch.float32)
    (key_x, value_x), keys, values = paged("x")
    (key_nhd, value_nhd), _, _ = paged("nhd")
    (key_hnd, value_hnd), _, _ = paged("hnd")
    sequence, head, element = 5, 1, 13
    for token in range(LENGTHS[sequence]):
        page, slot = int(TABLES[sequence, token // BLOCK_SIZE]), token % BLOCK_SIZE
        key, value = keys[sequence][token, head, element], values[sequence][token, head, element]
        assert key == key_x[page, head, element // x, slot, element % x]
        assert key == key_nhd[page, slot, head, element]
        assert key == key_hnd[page, head, slot, element]
        assert value == value_x[page, head, element, slot]
        assert value == value_nhd[page, slot, head, element]
        assert value == value_hnd[page, head, slot, element]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_every_unused_slot_is_nan(layout, dtype):
    caches, _, _ = paged(layout, dtype)
    used = sum(LENGTHS) * KV_HEADS * HEAD_SIZE
    for cache in caches:
        assert int(cache.float().isnan().sum()) == cache.numel() - used


def test_detection():
    for layout in LAYOUTS:
        (key_cache, value_cache), _, _ = paged(layout)
        expected = PagedGeometry(layout, NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_SIZE)
        assert detect(key_cache, value_cache, layout) == expected
        if layout == "x":
            assert detect(key_cache, value_cache) == expected
        else:
            with pytest.raises(ArgumentError, match="layout"):
                detect(key_cache, value_cache)


def test_refusals():
    (key_cache, value_cache), _, _ = paged("x")
    with pytest.raises(UnknownNameError, match="x, nhd, hnd"):
        detect(key_cache, value_cache, "hdn")
    with pytest.raises(ArgumentError, match="key_cache"):
        detect(key_cache, value_cache[:-1])
    with pytest.raises(ArgumentError, match="key_cache"):
        detect(key_cache, value_cache, "nhd")
    with pytest.raises(ArgumentError, match="multiple of x = 16"):
        PagedGeometry("x", 1, 16, 1, 120).key_shape(torch.int8)
