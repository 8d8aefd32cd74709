"""Kernels that move tiles of tokens between pages and rows: their rules and machine code."""

import dataclasses

import pytest
from declarations import assert_rules, default_of

from workbench import ops
from workbench.attention.cache_formats.layouts import LAYOUTS
from workbench.attention.ops.gather_cache import GatherCacheCase
from workbench.attention.ops.reshape_and_cache import case

CASES = {
    "gather_cache": [GatherCacheCase("pages", 4, 128, (256,), kv_cache_dtype="int8")],
    "reshape_and_cache": [dataclasses.replace(case("llama-3-8b-prefill"), layout=layout) for layout in LAYOUTS],
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["cuda_tiled", "triton_tiled"])
@pytest.mark.parametrize("op", CASES)
def test_no_spills_and_stores_of_16_bytes(op, name, arch):
    variant = ops.variant(op, name)
    for one in CASES[op]:
        kernel = variant.compile(default_of(variant, one), one.problem(arch=arch), arch)
        assert kernel.spill_bytes == 0
        assert kernel.occupancy.fraction >= 0.5
        assert "st.global.wb.v4" in kernel.ptx or "st.global.v4" in kernel.ptx


BROKEN = {
    "whole vectors": ({}, {"head_size": 36, "layout": "nhd"}),
    "16-byte values": ({}, {"dtype": "float32"}),
    "a run of tokens stays in its page": ({}, {"block_size": 4}),
    "value rows are those of layout x": ({}, {"layout": "hnd"}),
    "whole x groups": ({"VEC_SIZE": 4}, {"head_size": 20}),
    "threads per block": ({"NUM_THREADS": 48}, {}),
    "shared memory": ({"TILE_TOKENS": 64}, {"head_size": 256}),
}
BROKEN_IN = {
    "gather_cache": {"16-byte stores": ({}, {"dtype": "float32"}), "grid": ({}, {"num_seqs": 70_000})},
    "reshape_and_cache": {"aligned vectors": ({}, {"alignment": 2}), "grid": ({}, {"num_kv_heads": 70_000})},
}


@pytest.mark.parametrize("op", BROKEN_IN)
def test_rules_are_named(op):
    variant, one = ops.variant(op, "cuda_tiled"), ops.get(op).case("small")
    assert_rules(variant, default_of(variant, one), one.problem(), BROKEN | BROKEN_IN[op])
