"""The Triton kernel that packs the query heads of a group: values, features, bytes, machine code."""

import re

import pytest
from bytes_of_a_run import assert_each_byte_once
from declarations import assert_rules
from test_paged_attention_grouped import FEATURES, LENGTHS

from workbench.attention.ops.paged_attention import PagedAttentionCase, case
from workbench.attention.ops.paged_attention.triton_grouped import VARIANT

SMALL = {"BLOCK_SIZE": 16, "TILE_TOKENS": 32, "PARTITION_SIZE": 128, "num_warps": 2, "num_stages": 3}


@pytest.mark.parametrize("name", [*(pytest.param(name, marks=pytest.mark.long) for name in FEATURES), "all of them"])
def test_features(name, judge):
    """The grid has each feature; here the machine looks for races too."""
    one = case("small", dtype="bfloat16", layout="hnd", seq_lens=LENGTHS, **FEATURES[name])
    verdict = judge(VARIANT, SMALL, one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize(("group", "layout"), [(8, "nhd"), pytest.param(1, "hnd", marks=pytest.mark.long)])
def test_every_byte_is_asked_for_once(group, layout, sim):
    """Of a long context: distinct bytes, what must cross DRAM, and bytes asked for, whatever the caches do."""
    one = PagedAttentionCase("long", group, 1, 128, (4096,), dtype="float16", layout=layout)
    config = {**SMALL, "TILE_TOKENS": 64, "PARTITION_SIZE": 4096, "num_warps": 4, "num_stages": 5}
    report = assert_each_byte_once(VARIANT, config, one, sim)
    matrices = [line for line in report.lines if line.text.startswith("ldmatrix")]
    assert matrices
    assert all(line.wavefronts == line.ideal_wavefronts for line in matrices)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("head_size", [pytest.param(64, marks=pytest.mark.long), 128, 256])
@pytest.mark.sampled(4)
def test_machine_code(arch, head_size):
    """No spills, tensor cores, matrices, 16-byte copies of K and V (and 4-byte ones of the block table)."""
    one = case("llama-3-8b", layout="nhd", dtype="bfloat16", head_size=head_size, context=8192)
    problem = one.problem(arch=arch)
    config = VARIANT.default_config(problem)
    kernel = VARIANT.compile(config, problem, arch)
    assert kernel.spill_bytes == 0
    assert kernel.registers <= 200
    assert kernel.occupancy.blocks_per_sm >= 2
    assert "HMMA.16816.F32.BF16" in kernel.sass
    assert "LDSM.16" in kernel.sass
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^\]]*\], \[[^\]]*\], (0x\w+|\d+)", kernel.ptx)
    copied = config["TILE_TOKENS"] * head_size * 2 // (128 * 16)
    assert copies.count("0x10") == 3 * 2 * copied  # K and V of the tile in the loop, and of two ahead of it
    assert set(copies) == {"0x10", "0x4"}


def test_shared_memory_is_no_more_than_the_rule_counts():
    from workbench.attention.ops.paged_attention.triton_grouped import shared_bytes

    for stages, warps, tile, head_size in ((1, 1, 16, 64), (5, 4, 64, 128)):
        config = {**SMALL, "TILE_TOKENS": tile, "num_warps": warps, "num_stages": stages}
        problem = case("small", head_size=head_size, layout="nhd").problem(config)
        assert VARIANT.compile(config, problem).shared_bytes <= shared_bytes(config, problem)


def test_each_rule_is_named():
    base = case("small", layout="nhd").problem()
    broken = {
        "page size": ({}, {"block_size": 32}),
        "group": ({}, {"num_heads": 34}),
        "powers of two": ({"num_warps": 3}, {}),
        "whole tiles": ({"PARTITION_SIZE": 200}, {}),
        "products": ({"TILE_TOKENS": 8}, {}),
        "whole 16-byte steps": ({}, {"head_size": 36}),
        "a tile fits in registers": ({"num_warps": 1, "TILE_TOKENS": 128}, {}),
        "shared memory": ({"num_warps": 8, "TILE_TOKENS": 128, "num_stages": 7}, {"head_size": 256}),
        "partitions": ({}, {"max_seq_len": 128 * 70_000}),
        "grid": ({}, {"num_seqs": 70_000}),
    }
    assert_rules(VARIANT, SMALL, base, broken)
