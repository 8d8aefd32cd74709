"""The CUDA kernel that packs the query heads of a group: values, features, bytes, banks, machine code."""

import dataclasses
import itertools
from collections import Counter

import pytest
from bytes_of_a_run import assert_each_byte_once, counted
from declarations import assert_rules

from workbench.attention.ops.paged_attention import PagedAttentionCase, case
from workbench.attention.ops.paged_attention.cuda_grouped_mma import VARIANT
from workbench.attention.ops.paged_attention.triton_grouped import VARIANT as TRITON
from workbench.toolchain.sass_counts import counts_by_ptx_line

SMALL = {"BLOCK_SIZE": 16, "PARTITION_SIZE": 128, "TILE_TOKENS": 16, "NUM_STAGES": 3, "NUM_THREADS": 64}
LENGTHS = (1, 127, 128, 129, 300, 0)

FEATURES = {
    "alibi": {"alibi": True},
    "window inside a partition": {"sliding_window": 40},
    "window of one token": {"sliding_window": 1},
    "window across partitions": {"sliding_window": 130},
    "window longer than any sequence": {"sliding_window": 10_000},
    "soft cap": {"soft_cap": 5.0},
    "sinks": {"sinks": True},
    "all of them": {"sliding_window": 150, "alibi": True, "soft_cap": 20.0, "sinks": True},
}


@pytest.mark.parametrize("name", FEATURES)
def test_features(name, judge):
    dtype, layout = VARIANT.dtypes[len(name) % 2], VARIANT.layouts[len(name) // 2 % 2]
    one = case("small", dtype=dtype, layout=layout, seq_lens=LENGTHS, **FEATURES[name])
    verdict = judge(VARIANT, SMALL, one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize(("stages", "threads"), [(2, 32), (3, 96), (5, 256)])
def test_stages_and_warps(stages, threads, judge):
    """Also more of both than there are tiles."""
    config = {**SMALL, "NUM_STAGES": stages, "NUM_THREADS": threads}
    verdict = judge(VARIANT, config, case("small", layout="nhd", seq_lens=LENGTHS), checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("group", "dtype", "layout"),
    [(1, "float16", "hnd"), (4, "bfloat16", "nhd"), (8, "float16", "nhd"), (16, "float16", "hnd")],
)
@pytest.mark.sampled(2)
def test_every_byte_is_asked_for_once(group, dtype, layout, sim):
    """Of a long context: distinct bytes, what must cross DRAM, and bytes asked for, whatever the caches do."""
    one = PagedAttentionCase("long", group, 1, 128, (4096,), dtype=dtype, layout=layout)
    config = {**SMALL, "PARTITION_SIZE": 4096, "NUM_THREADS": 128}
    assert_each_byte_once(VARIANT, config, one, sim)


@pytest.mark.parametrize(("head_size", "group"), [(32, 16), (80, 8), (120, 16), (256, 8)])
def test_no_bank_conflicts(head_size, group, sim):
    """Not one, of asynchronous copies, matrix loads and sums; of others too where a warp keeps to a row."""
    one = PagedAttentionCase("banks", group, 1, head_size, (200,), dtype="float16", layout="nhd")
    report, _ = counted(VARIANT, {**SMALL, "NUM_STAGES": 2}, one, sim)
    shared = [line for line in report.lines if line.space == "shared" and line.requests]
    assert sum("ldmatrix" in line.text for line in shared) >= 2 * head_size // 16
    across_rows = (
        ("ld.shared.f32", "st.shared.v4") if head_size % 32 else ("none",)
    )  # the stores of combined partitions
    assert all(line.wavefronts == line.ideal_wavefronts for line in shared if not line.text.startswith(across_rows))


def test_copies_fill_their_sectors(sim):
    """Each asynchronous copy of a warp is 512 bytes on 16 sectors; nothing else touches the cache."""
    one = case("llama-3-8b", context=512, num_seqs=1, layout="nhd", num_heads=8, num_kv_heads=2)
    report, _ = counted(VARIANT, SMALL, one, sim)
    copies = [line for line in report.lines if line.text.startswith("cp.async.cg") and line.space == "global"]
    assert {line.sectors / line.requests for line in copies} == {16.0}
    assert sum(line.bytes for line in copies) == 2 * 512 * 2 * 128 * 2


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("head_size", "group", "tile", "registers"),
    [
        (128, 8, 16, 168),
        pytest.param(64, 8, 16, 128, marks=pytest.mark.long),
        pytest.param(128, 1, 16, 168, marks=pytest.mark.long),
        pytest.param(128, 16, 32, 255, marks=pytest.mark.long),
        pytest.param(192, 16, 32, 255, marks=pytest.mark.long),
        pytest.param(256, 8, 32, 255, marks=pytest.mark.long),
        (256, 16, 16, 255),
    ],
)
@pytest.mark.sampled(4)
def test_machine_code(arch, head_size, group, tile, registers):
    """No spills, registers for the blocks that shared memory leaves room for, 16-byte copies, products and matrices."""
    one = case("small", head_size=head_size, num_heads=2 * group, layout="nhd", dtype="bfloat16")
    config = {**SMALL, "TILE_TOKENS": tile, "NUM_STAGES": 2}
    kernel = VARIANT.compile(config, one.problem(config, arch=arch), arch)
    assert kernel.spill_bytes == 0
    assert kernel.registers <= registers
    counts = sum(counts_by_ptx_line(kernel).values(), Counter())
    copies = tile * head_size * 2 // 512
    assert counts["LDGSTS.128"] == 4 * copies  # K and V of the first tile, and of the one ahead
    assert sum(number for name, number in counts.items() if name.startswith("LDGSTS")) == counts["LDGSTS.128"]
    products = tile // 16 * head_size // 16
    assert counts["HMMA"] == products * (2 + -(-group // 8))
    assert counts["LDSM.4"] == 2 * products + head_size // 16
    assert not any(name.startswith(("LDL", "STL")) for name in counts)


@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.long), "sm_90"])
def test_defaults_leave_room_for_several_warps(arch):
    for name in ("llama-2-7b", "llama-3-70b"):
        one = case(name, layout="hnd", context=8192)
        problem = one.problem(arch=arch)
        config = VARIANT.default_config(problem)
        kernel = VARIANT.compile(config, problem, arch)
        assert kernel.spill_bytes == 0
        assert kernel.occupancy.blocks_per_sm >= (2 if arch == "sm_90" else 1)
        # Bytes on their way per multiprocessor: what Little's law asks for on an H100 is about 32 KiB.
        ahead = (config["NUM_STAGES"] - 1) * 4 * 2 * config["TILE_TOKENS"] * 256
        assert kernel.occupancy.blocks_per_sm * ahead >= 64 * 1024


@pytest.mark.parametrize("variant", [VARIANT, TRITON], ids=lambda variant: variant.name)
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "int8"])
def test_defaults_split_a_long_context_evenly(variant, kv_cache_dtype):
    """At least 128 tokens a partition; two blocks on every multiprocessor of an H100, and never half of them idle."""
    for kv_heads, num_seqs, context in itertools.product((4, 8, 32), (1, 8, 64), (8192, 32_768, 131_072)):
        one = PagedAttentionCase(
            "waves", 32, kv_heads, 128, (context,) * num_seqs, layout="nhd", kv_cache_dtype=kv_cache_dtype
        )
        problem = dataclasses.replace(one.problem(), block_size=16, arch="sm_90")
        config = variant.default_config(problem)
        variant.check(config, problem)
        assert config["PARTITION_SIZE"] >= 128
        blocks = kv_heads * num_seqs * -(-context // config["PARTITION_SIZE"])
        assert blocks >= 1.6 * 132
        assert blocks / (132 * -(-blocks // 132)) > 0.8, (kv_heads, num_seqs, context, config)


def test_short_contexts_are_not_split():
    problem = case("llama-3-70b", context=100, num_seqs=64, layout="nhd").problem(arch="sm_90")
    assert VARIANT.default_config(problem)["PARTITION_SIZE"] >= 128


def test_each_rule_is_named():
    base = case("small", layout="nhd").problem()
    broken = {
        "page size": ({}, {"block_size": 32}),
        "group": ({}, {"num_heads": 34}),
        "whole 16-byte steps": ({}, {"head_size": 36}),
        "pages and tiles": ({"TILE_TOKENS": 64}, {}),
        "offsets inside a page": ({}, {"num_kv_heads": 2**22, "num_heads": 2**22}),
        "whole tiles": ({"PARTITION_SIZE": 200}, {}),
        "stages": ({"NUM_STAGES": 1}, {}),
        "threads per block": ({"NUM_THREADS": 48}, {}),
        "shared memory": ({"NUM_THREADS": 256, "NUM_STAGES": 4}, {"head_size": 256}),
        "partitions": ({}, {"max_seq_len": 128 * 70_000}),
        "grid": ({}, {"num_seqs": 70_000}),
    }
    assert_rules(VARIANT, SMALL, base, broken)


def test_shared_memory_is_what_the_rule_counts():
    one = case("small", layout="nhd")
    for block_size, group in ((8, 4), (128, 16)):
        config = {**SMALL, "BLOCK_SIZE": block_size, "PARTITION_SIZE": 512}
        problem = dataclasses.replace(one.problem(config), num_heads=2 * group)
        kernel = VARIANT.compile(config, problem)
        rows = 8 if group <= 8 else 16
        assert kernel.shared_bytes <= rows * 128 + 4 * 512 // block_size + 8 * rows * 2 + 8 * rows + 256
        assert kernel.dynamic_shared_bytes == 2 * 3 * 2 * 16 * 128  # warps, stages, K and V, tokens, bytes of a head
