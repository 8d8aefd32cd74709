"""Caches of more than 2**31 elements: every kernel reaches the pages at their end, and 32-bit arithmetic is caught."""

import dataclasses
import mmap

import pytest
import torch
from fitting import fitted
from mutants.ptx import ROUNDS, Mutants, Setting, judge_of
from mutants.ptx_operators import KEPT_IN_32_BITS

from workbench import ops
from workbench.attention.ops.paged_attention import VARIANTS, PagedAttentionCase
from workbench.ops.variant import Variant

KERNELS = [variant for variant in VARIANTS if variant.language != "torch"]
ONE = PagedAttentionCase("far", 2, 1, 64, (40, 7), dtype="float16", scales="tensor")
NORESERVE = 0x4000  # Linux's MAP_NORESERVE, which Python's mmap names from 3.13 on


def at_the_end(cache, spare):
    """The pages of a cache behind so many others that the last ones lie past element 2**31.

    The memory before them is reserved, not backed: what nobody touches costs nothing.
    """
    blocks = spare + len(cache)
    length = blocks * cache[0].numel() * cache.element_size()
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    large = torch.frombuffer(memory, dtype=torch.uint8).view(cache.dtype).view(blocks, *cache.shape[1:])
    large[spare:] = cache
    return large


@dataclasses.dataclass(frozen=True)
class FarCase(PagedAttentionCase):
    """A case whose pages lie at the end of caches of more than 2**31 elements."""

    def inputs(self, problem, device="cpu"):
        tensors = super().inputs(problem, device)
        spare = 2**31 // tensors.key_cache[0].numel() + 1
        caches = {name: at_the_end(getattr(tensors, name), spare) for name in ("key_cache", "value_cache")}
        tables = torch.where(tensors.block_tables < 0, tensors.block_tables, tensors.block_tables + spare)
        return dataclasses.replace(tensors, block_tables=tables, **caches)


def far(variant: Variant, kv_cache_dtype="auto"):
    one = fitted(variant, dataclasses.replace(ONE, kv_cache_dtype=kv_cache_dtype))
    return FarCase(**{item.name: getattr(one, item.name) for item in dataclasses.fields(one)})


@pytest.mark.parametrize(
    ("name", "kv_cache_dtype"),
    [
        *((variant.name, (*variant.needs, "auto")[0]) for variant in KERNELS),
        ("cuda_grouped_mma", "int8"),
        ("triton_grouped", "int8"),
    ],
)
@pytest.mark.sampled(2)
def test_pages_past_2_to_the_31_elements(name, kv_cache_dtype, judge):
    variant = ops.variant("paged_attention", name)
    one = far(variant, kv_cache_dtype)
    arch = variant.machine_arch(one.problem())
    verdict = judge(variant, variant.default_config(one.problem(arch=arch)), one, arch=arch)
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    "variant",
    [variant for variant in KERNELS if variant.name != "triton_descriptors"],  # whose offsets TMA computes
    ids=lambda variant: variant.name,
)
@pytest.mark.sampled(6)
def test_products_of_32_bits_are_caught(variant):
    """A product that is kept in 32 bits: with pages at the beginning it is right, and nothing else would show it."""
    one = fitted(variant, ONE)
    arch = variant.machine_arch(one.problem())
    config = variant.default_config(one.problem(arch=arch))
    mutants, near = (
        Mutants(Setting(str(variant), each.name, (judge_of(variant, config, each, again=True),), arch))
        for each in (far(variant), one)
    )
    caught = [mutant for mutant in mutants.of(KEPT_IN_32_BITS) if mutants.outcome(mutant, ROUNDS[:1]) != "survived"]
    assert any(near.outcome(mutant) == "survived" for mutant in caught)
