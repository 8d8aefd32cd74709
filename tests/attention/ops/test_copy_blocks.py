"""Copying pages: every variant bit for bit, and what it asks of memory."""

import dataclasses
import random

import pytest
import torch

import workbench
from workbench import ops
from workbench.attention import copy_blocks
from workbench.attention.ops.copy_blocks import VARIANTS, CopyBlocksCase, case
from workbench.attention.ops.copy_blocks.problem import tensors_of
from workbench.attention.ops.swap_blocks import SwapBlocksCase

TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}


@pytest.mark.parametrize(
    ("variant", "kind", "count"),
    [
        *((variant, CopyBlocksCase, 8) for variant in KERNELS),
        *((variant, SwapBlocksCase, 2) for variant in ops.variants("swap_blocks") if variant.compiles),
    ],
    ids=str,
)
def test_configurations_on_an_awkward_page(variant, kind, count, judge):
    """2,640 bytes: neither a power of two nor whole chunks."""
    one = kind("awkward", 1, 5, 33, 3, block_size=8)
    legal = variant.configurations(one.problem())
    for config in random.Random(0).sample(legal, min(count, len(legal))):
        verdict = judge(variant, config, one, checks=True)
        assert verdict.ok, f"{config}: {verdict}"


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_narrow_pages(variant, judge):
    """Pages of 4 and 8 bytes more than a multiple of 16 lie apart, because every page starts on 16."""
    for words, vec in ((5, 4), (6, 8)):
        caches = torch.full((2, 7, 32), torch.nan)[:, :, :words]
        caches[:, ::2] = torch.randn(2, 4, words)
        pairs = torch.tensor([[0, 1], [6, 3]])
        before = caches.clone()
        copy_blocks(caches[:1], caches[1:], pairs, variant=variant.name)
        before[:, 1], before[:, 3] = before[:, 0], before[:, 6]
        assert torch.equal(caches.nan_to_num(7.0), before.nan_to_num(7.0)), vec


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
def test_separate_allocations_of_any_dtype(variant, dtype):
    """One allocation per layer and side, as engines make them; sources and bystanders stay as they are."""
    generator = torch.Generator().manual_seed(0)

    def cache(*shape):
        return torch.randint(256, shape, dtype=torch.uint8, generator=generator).view(dtype)

    keys = [cache(7, 2, 4, 8, 16) for _ in range(3)]
    values = [cache(7, 2, 64 // dtype.itemsize, 8 * dtype.itemsize) for _ in range(3)]
    before = [one.clone() for one in keys + values]
    pairs = torch.tensor([[4, 0], [2, 6], [4, 1]])
    copy_blocks(keys, values, pairs, variant=variant.name)
    for found, old in zip(keys + values, before, strict=True):
        expected = old.clone().view(torch.uint8)
        for source, destination in pairs.tolist():
            expected[destination] = old.view(torch.uint8)[source]
        assert torch.equal(found.view(torch.uint8), expected)


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_keys_and_values_of_a_page_side_by_side(variant):
    both = torch.randn(3, 5, 2, 16, 2, 16)
    before = both.clone()
    copy_blocks(both[:, :, 0], both[:, :, 1], torch.tensor([[1, 3]]), variant=variant.name)
    before[:, 3] = before[:, 1]
    assert torch.equal(both, before)


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_pages_past_2_to_the_31_elements(variant, sim):
    one = CopyBlocksCase("far", 1, 2, 32, 1)
    storage = torch.empty(2**31 + 2**22, dtype=torch.float16)
    caches = storage.as_strided((2, 3, 1024), (2**21, 2**30, 1))
    caches[0, 0], caches[1, 0] = torch.randn(2, 1024).half()
    pairs = torch.tensor([[0, 2]])
    t = tensors_of(caches.unbind(0), caches.unbind(0), pairs)
    variant.run(variant.default_config(one.problem()), one.problem(), t, sim)
    assert torch.equal(caches[:, 2], caches[:, 0])


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
def test_no_pairs(variant):
    caches = torch.ones(2, 3, 16)
    copy_blocks(caches[:1], caches[1:], torch.empty(0, 2, dtype=torch.int64), variant=variant.name)
    assert (caches == 1).all()


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_memory(variant, sim):
    """Every byte once, 16 bytes per lane, 16 sectors per request."""
    one = case("fork")
    config = variant.default_config(one.problem())
    report = variant.run(config, one.problem(), one.inputs(one.problem()), sim, statistics=True)
    minimum = one.minimum_bytes(one.problem())
    assert report.unique_bytes_read + report.unique_bytes_written <= 1.01 * minimum
    wide = [line for line in report.lines if line.space == "global" and "v4" in line.text and line.requests]
    assert {line.sectors / line.requests for line in wide} == {16}
    moved = sum(line.bytes for line in wide)
    assert moved == 2 * one.num_pairs * 2 * one.num_layers * one.page_bytes
    kernel = variant.compile(config, one.problem())
    assert kernel.spill_bytes == 0
    assert kernel.occupancy.fraction >= 0.5


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_defaults_are_legal(variant):
    for page_bytes in (4, 16, 20, 24, 80, 512, 2560, 4096, 32768, 1 << 20):
        problem = dataclasses.replace(case("small").problem(), page_bytes=page_bytes)
        assert not variant.broken(variant.default_config(problem), problem)


def test_compare_and_restore(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path))
    assert workbench.compare("copy_blocks", device="sim").all_correct
    assert ops.get("copy_blocks").restore_case(case("fork").to_dict()) == case("fork")
