"""The Triton kernel that packs the query heads of a group: values, features, bytes, machine code, and mutants."""

import dataclasses
import re

import pytest
from mutation import Mutant, caught
from test_paged_attention_grouped import FEATURES, LENGTHS, every_third

from workbench.ops.paged_attention import Case, case
from workbench.ops.paged_attention.triton_grouped import VARIANT

SMALL = {"BLOCK_SIZE": 16, "TILE_TOKENS": 32, "PARTITION_SIZE": 128, "num_warps": 2, "num_stages": 3}


@pytest.mark.parametrize("group", [1, 3, pytest.param(5, marks=pytest.mark.long), 8, 16])
def test_groups(group, judge):
    dtype, layout = ("float16", "nhd") if group % 2 else ("bfloat16", "hnd")
    one = Case("groups", 2 * group, 2, 64, (1, 33, 200), dtype=dtype, layout=layout, seed=group)
    verdict = judge(VARIANT, SMALL, one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    "head_size", [32, 80, *(pytest.param(size, marks=pytest.mark.long) for size in (64, 96, 112, 120, 128, 192)), 256]
)
def test_head_sizes(head_size, judge):
    one = Case("heads", 4, 1, head_size, (1, 33, 150), dtype="float16", layout="nhd")
    verdict = judge(VARIANT, SMALL, one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize("layout", VARIANT.layouts)
@pytest.mark.parametrize(
    ("block_size", "tile"),
    [(8, 64), (128, 32), *(pytest.param(size, 32, marks=pytest.mark.long) for size in (8, 16, 32, 64))],
)
def test_lengths_around_pages_and_partitions(block_size, layout, tile, judge):
    pages = (block_size - 1, block_size, block_size + 1)
    one = Case("edges", 8, 2, 64, (0, 1, *pages, *LENGTHS, 256, 257), dtype="float16", layout=layout)
    verdict = judge(VARIANT, {**SMALL, "BLOCK_SIZE": block_size, "TILE_TOKENS": tile}, one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize("name", [*(pytest.param(name, marks=pytest.mark.long) for name in FEATURES), "all of them"])
@pytest.mark.parametrize("layout", VARIANT.layouts)
def test_features(name, layout, judge):
    one = case("small", dtype="bfloat16", layout=layout, seq_lens=LENGTHS, **FEATURES[name])
    verdict = judge(VARIANT, SMALL, one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize(("group", "layout"), [(8, "nhd"), pytest.param(1, "hnd", marks=pytest.mark.long)])
def test_every_byte_is_asked_for_once(group, layout, sim):
    """Of a long context: distinct bytes, what must cross DRAM, and bytes asked for, whatever the caches do."""
    one = Case("long", group, 1, 128, (4096,), dtype="float16", layout=layout)
    config = {**SMALL, "TILE_TOKENS": 64, "PARTITION_SIZE": 4096, "num_warps": 4, "num_stages": 5}
    problem = one.problem(config)
    tensors = one.inputs(problem)
    report = VARIANT.run(config, problem, tensors, sim, statistics=True)
    assert one.check(tensors.out).ok
    minimum = one.minimum_bytes(problem)
    distinct = report.unique_bytes_read + report.unique_bytes_written
    asked = sum(line.bytes_moved for line in report.lines if line.space == "global")
    assert minimum <= distinct <= 1.02 * minimum
    assert minimum <= asked <= 1.02 * minimum
    matrices = [line for line in report.parts[0].lines if line.text.startswith("ldmatrix")]
    assert matrices
    assert all(line.wavefronts == line.ideal_wavefronts for line in matrices)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("head_size", [pytest.param(64, marks=pytest.mark.long), 128, 256])
def test_machine_code(arch, head_size):
    """No spills, tensor cores, matrices, 16-byte copies of K and V (and 4-byte ones of the block table)."""
    one = case("llama-3-8b", layout="nhd", dtype="bfloat16", head_size=head_size, context=8192)
    problem = one.problem(arch=arch)
    config = VARIANT.default_config(problem)
    kernel = VARIANT.compile(config, problem, arch)
    assert kernel.spill_bytes == 0
    assert kernel.registers <= 192
    assert kernel.occupancy.blocks_per_sm >= 2
    assert "HMMA.16816.F32.BF16" in kernel.sass
    assert "LDSM.16" in kernel.sass
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^\]]*\], \[[^\]]*\], (0x\w+|\d+)", kernel.ptx)
    copied = config["TILE_TOKENS"] * head_size * 2 // (128 * 16)
    assert copies.count("0x10") == 3 * 2 * copied  # K and V of the tile in the loop, and of two ahead of it
    assert set(copies) == {"0x10", "0x4"}


def test_shared_memory_is_no_more_than_the_rule_counts():
    from workbench.ops.paged_attention.triton_grouped import _shared_bytes

    for stages, warps, tile, head_size in ((1, 1, 16, 64), (5, 4, 64, 128), (7, 8, 32, 256)):
        config = {**SMALL, "TILE_TOKENS": tile, "num_warps": warps, "num_stages": stages}
        problem = case("small", head_size=head_size, layout="nhd").problem(config)
        assert VARIANT.compile(config, problem).shared_bytes <= _shared_bytes(config, problem)


def test_each_rule_is_named():
    base = case("small", layout="nhd").problem()
    assert not VARIANT.broken(SMALL, base)
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
    assert set(broken) == {rule.name for rule in VARIANT.restrictions}
    for name, (changes, sizes) in broken.items():
        rules = VARIANT.broken({**SMALL, **changes}, dataclasses.replace(base, **sizes))
        assert name in {rule.name for rule in rules}


FUNCTION = "triton_reduction.py"
MUTANTS = (
    Mutant("K ignored", "tl.dot(q, tl.trans(key)) * factor", "tl.dot(q, tl.trans(key)) * 0.0"),
    Mutant("wrong KV head", "slot = kv_head * KV_HEAD +", "slot ="),
    Mutant("query of another group", "heads = kv_head * GROUP + rows", "heads = rows"),
    Mutant("base not changed", "if SOFT_CAP else LOG2_E)", "if SOFT_CAP else 1.0)"),
    Mutant("cap not undone", "soft_cap * LOG2_E * (1.0", "LOG2_E * (1.0"),
    Mutant("ALiBi from the start", "(token - (seq_len - 1))[None, :]", "token[None, :]"),
    Mutant("one slope for the group", "alibi_slopes + heads,", "alibi_slopes + heads * 0,"),
    Mutant("last token skipped", "+ 1) * PARTITION_SIZE, seq_len)", "+ 1) * PARTITION_SIZE, seq_len - 1)"),
    Mutant("window one token long", "begin, seq_len - sliding_window)", "begin, seq_len - sliding_window - 1)"),
    Mutant("window starts at a tile", "(token >= begin) & (token < end)", "token < end"),
    Mutant("mask missing", 'score = tl.where(valid[None, :], score, float("-inf"))', "score = score"),
    Mutant("values outside kept", "mask=valid[:, None] & inside[None, :],", "mask=inside[None, :],", count=2, nth=1),
    Mutant("sums not rescaled", "value, acc * rescale[:, None])", "value, acc)"),
    Mutant("total not rescaled", "total = total * rescale + tl.sum", "total = total + tl.sum"),
    Mutant("another maximum kept", "        max_score = new_max\n", "        max_score = new_max * 0.5\n"),
    Mutant("table ignored", "tl.load(table + token // BLOCK_SIZE, mask=valid, other=0)", "(token // BLOCK_SIZE)"),
    Mutant("slots ignored", "token % BLOCK_SIZE * KV_TOKEN", "tokens % BLOCK_SIZE * 0"),
    Mutant("keys for values", "value_cache + (block", "key_cache + (block"),
    Mutant("rows past the group written", "max_score, mask=rows < GROUP)", "max_score, mask=rows < ROWS)"),
    Mutant("partial results of another head", "num_heads + heads) * tl.num_programs(2)",
           "num_heads + (heads ^ 1)) * tl.num_programs(2)"),
    Mutant("last partition dropped", "tl.cdiv(seq_len, PARTITION_SIZE)", "seq_len // PARTITION_SIZE", header=FUNCTION),
    Mutant("sink left out of the sum", "total = 1.0", "total = 0.0", header=FUNCTION),
)  # fmt: skip
ONE = case("small", head_size=32, layout="nhd", seq_lens=(1, 129, 300))
RUNS = (
    (ONE, SMALL),
    (dataclasses.replace(ONE, layout="hnd", num_heads=12, **FEATURES["all of them"]), SMALL),
    (dataclasses.replace(ONE, sliding_window=3), SMALL),
)


@pytest.mark.parametrize("mutant", every_third(MUTANTS))
def test_mutant_in_triton_is_caught(mutant, judge, tmp_path):
    ok, seen = caught(VARIANT, mutant, RUNS, judge, tmp_path)
    assert ok, seen


def test_the_right_kernel_passes_what_catches_the_mutants(judge):
    for one, config in RUNS:
        verdict = judge(VARIANT, config, one, checks=True)
        assert verdict.ok, verdict
