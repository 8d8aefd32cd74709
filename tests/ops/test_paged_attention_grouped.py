"""The CUDA kernel that packs the query heads of a group: values, features, bytes, banks, machine code, and mutants."""

import dataclasses
from collections import Counter

import pytest
from mutation import Mutant, caught

from workbench.ops.paged_attention import Case, case
from workbench.ops.paged_attention.cuda_grouped_mma import VARIANT
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


LAYOUT = {0: "nhd", 1: "hnd"}
DTYPE = {0: "float16", 1: "bfloat16"}


@pytest.mark.parametrize("group", [*range(1, 9), 12, 16])
def test_groups(group, judge):
    dtype, layout = DTYPE[group % 2], LAYOUT[group // 2 % 2]
    one = Case("groups", 2 * group, 2, 64, (1, 33, 200), dtype=dtype, layout=layout, seed=group)
    verdict = judge(VARIANT, SMALL, one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("head_size", "group", "layout"),
    [
        *((size, 2, "nhd") for size in (32, 80, 112, 192)),
        *((size, 16, "hnd") for size in (96, 120, 256)),
        *(pytest.param(size, 2, "hnd", marks=pytest.mark.long) for size in (64, 96, 120, 128, 160, 256)),
        *(pytest.param(size, 16, "nhd", marks=pytest.mark.long) for size in (32, 64, 80, 112, 128, 160, 192)),
    ],
)
def test_head_sizes(head_size, group, layout, judge):
    one = Case("heads", group, 1, head_size, (1, 33, 150), dtype="float16", layout=layout)
    verdict = judge(VARIANT, {**SMALL, "NUM_STAGES": 2}, one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("block_size", "layout", "tile"),
    [
        *((8, "nhd", 16), (8, "hnd", 32), (16, "nhd", 32), (32, "hnd", 16), (64, "nhd", 32), (128, "hnd", 16)),
        *(pytest.param(size, "nhd", 16, marks=pytest.mark.long) for size in (16, 32, 64, 128)),
        *(pytest.param(size, "hnd", 32, marks=pytest.mark.long) for size in (16, 32, 64, 128)),
    ],
)
def test_lengths_around_pages_and_partitions(block_size, layout, tile, judge):
    pages = (block_size - 1, block_size, block_size + 1)
    one = Case("edges", 8, 2, 64, (0, 1, *pages, *LENGTHS, 256, 257), dtype="float16", layout=layout)
    verdict = judge(VARIANT, {**SMALL, "BLOCK_SIZE": block_size, "TILE_TOKENS": tile}, one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize(
    ("dtype", "layout"),
    [
        ("float16", "nhd"),
        ("bfloat16", "hnd"),
        pytest.param("float16", "hnd", marks=pytest.mark.long),
        pytest.param("bfloat16", "nhd", marks=pytest.mark.long),
    ],
)
def test_features(name, dtype, layout, judge):
    one = case("small", dtype=dtype, layout=layout, seq_lens=LENGTHS, **FEATURES[name])
    verdict = judge(VARIANT, SMALL, one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize(("stages", "threads"), [(2, 32), (3, 96), (4, 64), (5, 256)])
def test_stages_and_warps(stages, threads, judge):
    """Also more of both than there are tiles."""
    config = {**SMALL, "NUM_STAGES": stages, "NUM_THREADS": threads}
    verdict = judge(VARIANT, config, case("small", layout="nhd", seq_lens=LENGTHS), checks=True)
    assert verdict.ok, verdict


def statistics(one, config, sim):
    problem = one.problem(config)
    tensors = one.inputs(problem)
    report = VARIANT.run(config, problem, tensors, sim, statistics=True)
    assert one.check(tensors.out).ok
    return report, one.minimum_bytes(problem)


@pytest.mark.parametrize("layout", VARIANT.layouts)
@pytest.mark.parametrize(("group", "dtype"), [(1, "float16"), (4, "bfloat16"), (8, "float16"), (16, "float16")])
def test_every_byte_is_asked_for_once(group, dtype, layout, sim):
    """Of a long context: distinct bytes, what must cross DRAM, and bytes asked for, whatever the caches do.

    The second kernel and the partial results count too.
    """
    one = Case("long", group, 1, 128, (4096,), dtype=dtype, layout=layout)
    config = {**SMALL, "PARTITION_SIZE": 4096, "NUM_THREADS": 128}
    report, minimum = statistics(one, config, sim)
    distinct = report.unique_bytes_read + report.unique_bytes_written
    asked = sum(line.bytes_moved for line in report.lines if line.space == "global")
    assert minimum <= distinct <= 1.02 * minimum
    assert minimum <= asked <= 1.02 * minimum


@pytest.mark.parametrize(
    ("head_size", "group"), [(32, 16), (64, 8), (80, 8), (96, 16), (112, 8), (120, 16), (128, 16), (256, 8)]
)
def test_no_bank_conflicts(head_size, group, sim):
    """Not one, of any store, asynchronous copy or matrix load; of other loads too where a warp keeps to a row."""
    one = Case("banks", group, 1, head_size, (200,), dtype="float16", layout="nhd")
    report, _ = statistics(one, {**SMALL, "NUM_STAGES": 2}, sim)
    shared = [line for line in report.parts[0].lines if line.space == "shared" and line.requests]
    assert sum("ldmatrix" in line.text for line in shared) >= 2 * head_size // 16
    across_rows = "ld.shared.f32" if head_size % 32 else "none"
    assert all(line.wavefronts == line.ideal_wavefronts for line in shared if not line.text.startswith(across_rows))


def test_copies_fill_their_sectors(sim):
    """Each asynchronous copy of a warp is 512 bytes on 16 sectors; nothing else touches the cache."""
    one = case("llama-3-8b", context=512, num_seqs=1, layout="nhd", num_heads=8, num_kv_heads=2)
    report, _ = statistics(one, SMALL, sim)
    copies = [line for line in report.parts[0].lines if line.text.startswith("cp.async.cg") and line.space == "global"]
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
def test_machine_code(arch, head_size, group, tile, registers):
    """No spills, registers for the blocks that shared memory leaves room for, 16-byte copies, products and matrices."""
    one = case("small", head_size=head_size, num_heads=2 * group, layout="nhd", dtype="bfloat16")
    config = {**SMALL, "TILE_TOKENS": tile, "NUM_STAGES": 2}
    kernels = VARIANT.kernels(config, one.problem(config, arch=arch), arch)
    assert [kernel.spill_bytes for kernel in kernels] == [0, 0]
    assert kernels[0].registers <= registers
    counts = sum(counts_by_ptx_line(kernels[0]).values(), Counter())
    copies = tile * head_size * 2 // 512
    assert counts["LDGSTS.128"] == 4 * copies  # K and V of the first tile, and of the one ahead
    assert sum(number for name, number in counts.items() if name.startswith("LDGSTS")) == counts["LDGSTS.128"]
    products = tile // 16 * head_size // 16
    assert counts["HMMA"] == products * (2 + -(-group // 8))
    assert counts["LDSM.4"] == 2 * products + head_size // 16
    assert not any(name.startswith(("LDL", "STL")) for name in counts)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
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


def test_one_long_sequence_fills_the_gpu():
    problem = case("llama-3-70b", context=65_536, num_seqs=1, layout="nhd").problem(arch="sm_90")
    size = VARIANT.default_config(problem)["PARTITION_SIZE"]
    assert problem.num_kv_heads * (65_536 // size) >= 2 * 132
    assert problem.num_kv_heads * (65_536 // (2 * size)) < 2 * 132


def test_each_rule_is_named():
    base = case("small", layout="nhd").problem()
    assert not VARIANT.broken(SMALL, base)
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
    assert set(broken) == {rule.name for rule in VARIANT.restrictions}
    for name, (changes, sizes) in broken.items():
        rules = VARIANT.broken({**SMALL, **changes}, dataclasses.replace(base, **sizes))
        assert name in {rule.name for rule in rules}


def test_shared_memory_is_what_the_rule_counts():
    one = case("small", layout="nhd")
    for block_size, group in ((8, 4), (128, 16)):
        config = {**SMALL, "BLOCK_SIZE": block_size, "PARTITION_SIZE": 512}
        problem = dataclasses.replace(one.problem(config), num_heads=2 * group)
        kernel = VARIANT.compile(config, problem)
        rows = 8 if group <= 8 else 16
        assert kernel.shared_bytes <= rows * 128 + 4 * 512 // block_size + 8 * rows * 2 + 128
        assert kernel.dynamic_shared_bytes == 2 * 3 * 2 * 16 * 128  # warps, stages, K and V, tokens, bytes of a head


MUTANTS = (
    Mutant("keys waited for too briefly", "wait_for_copies<PENDING>();", "wait_for_copies<PENDING + 1>();", count=2),
    Mutant("values waited for briefly", "wait_for_copies<PENDING>();", "wait_for_copies<PENDING + 1>();", 2, nth=1),
    Mutant("keys not waited for", "wait_for_copies<PENDING>();", "", count=2),
    Mutant("values not waited for", "wait_for_copies<PENDING>();", "", count=2, nth=1),
    Mutant("groups counted wrongly", "PENDING = 2 * (NUM_STAGES - 1) - 1;", "PENDING = 2 * NUM_STAGES - 2;"),
    Mutant("nothing committed", "commit_copies();", ""),
    Mutant("nothing committed past the end", "    commit_copies();", "    if (tile < num_tiles) commit_copies();"),
    *(Mutant(f"barrier {i + 1} removed", "__syncthreads();", "", count=2, nth=i) for i in range(2)),
    *(Mutant(f"warp barrier {i + 1} removed", "__syncwarp();", "", count=3, nth=i) for i in range(2)),
    Mutant("copied into the stage in use", "free_stage * 2 * TILE_BYTES;", "stage * 2 * TILE_BYTES;"),
    Mutant("stages not rotated", "free_stage = stage;", ""),
    Mutant("one stage never used", "stage + 1 < NUM_STAGES ?", "stage + 2 < NUM_STAGES ?"),
    Mutant("copied too far ahead", "tile + (NUM_STAGES - 1) * NUM_WARPS;", "tile + NUM_STAGES * NUM_WARPS;"),
    Mutant("values outside kept", "inside ? 16 : 0", "16"),
    Mutant("copy ends a token early", "< (unsigned)(end - begin)", "< (unsigned)(end - begin - 1)"),
    Mutant("mask missing", "if (token < begin || token >= end) score", "if (false) score"),
    Mutant("mask ignores the window", "token < begin || token >= end", "token >= end"),
    Mutant("last token skipped", "min(seq_len - base, PARTITION_SIZE)", "min(seq_len - base - 1, PARTITION_SIZE)"),
    Mutant("window one token long", "seq_len - sliding_window, 0) - base", "seq_len - sliding_window - 1, 0) - base"),
    Mutant("table ignored", "> begin ? table[i] : 0", "> begin ? i : 0"),
    Mutant("table of the first partition", "table_stride + base / BLOCK_SIZE;", "table_stride;"),
    Mutant("page before the window", "(i + 1) * BLOCK_SIZE > begin ? table", "i * BLOCK_SIZE > begin ? table"),
    Mutant("wrong KV head", "key_cache + kv_head * head_stride", "key_cache"),
    Mutant("keys for values", "value_cache + kv_head", "key_cache + kv_head"),
    Mutant("query of another group", "(first_head + row) * HEAD_SIZE + element]", "row * HEAD_SIZE + element]"),
    Mutant("rows past the group read", "row < GROUP && element < HEAD_SIZE", "element < HEAD_SIZE"),
    Mutant("halves of a key exchanged", "queries[step], key[0], key[1]", "queries[step], key[1], key[0]"),
    Mutant("tokens of a key exchanged", "queries[step], key[2], key[3]", "queries[step], key[0], key[1]"),
    Mutant("quarters of a query exchanged", "to[1] = QUERY_TILES > 1 ? piece[2]", "to[1] = QUERY_TILES > 1 ? piece[0]"),
    Mutant("values not transposed", "load_matrices_transposed(", "load_matrices("),
    Mutant("half of the weights", "pack<Scalar>(score[2 * i + 1][2 * q],", "pack<Scalar>(score[2 * i][2 * q],"),
    Mutant("weights exchanged", "score[2 * i][2 * q], score[2 * i][2 * q + 1]",
           "score[2 * i][2 * q + 1], score[2 * i][2 * q]"),
    Mutant("base not changed", "1.f / soft_cap : LOG2_E);", "1.f / soft_cap : 1.f);"),
    Mutant("cap not undone", "soft_cap * LOG2_E * tanhf", "LOG2_E * tanhf"),
    Mutant("ALiBi from the partition", "slope[e / 2] * (base + token", "slope[e / 2] * (token"),
    Mutant("one slope for both tiles", "slope[e / 2]", "slope[0]"),
    Mutant("values not rescaled", "out[q][d][0] *= even,", ""),
    Mutant("rescaled as another query", "lane % 4 * 8 + 4);", "lane % 4 * 8);"),
    Mutant("sum not rescaled", "sum[q] *= rescale;", ""),
    Mutant("maximum of one lane", "new_max = max_over_lanes<1, 4>(new_max);", ""),
    Mutant("sum of one lane", "sum[q] = sum_over_lanes<1, 4>(sum[q]);", ""),
    Mutant("every warp every tile", "begin / TILE_TOKENS + warp,", "begin / TILE_TOKENS,"),
    Mutant("each warp its own maximum", "[row * OUT_STRIDE + element] * rescale;", "[row * OUT_STRIDE + element];"),
    Mutant("one warp's sum", "block_sum += warp_sum", "block_sum = warp_sum"),
    Mutant("partial results of another head", "+ first_head + row) * gridDim.z", "+ row) * gridDim.z"),
    Mutant("sink left out of the sum", "float sum = sinks ? exp2f(", "float sum = false ? exp2f(",
           header="common/partitions.cuh"),
    Mutant("copies of half a chunk", '[%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)',
           '[%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes / 2)', header="common/tensor_cores.cuh"),
)  # fmt: skip
ONE = case("small", head_size=32, layout="nhd", seq_lens=(1, 129, 300))
RUNS = (
    (ONE, SMALL),
    (
        dataclasses.replace(ONE, layout="hnd", num_heads=24, dtype="bfloat16", **FEATURES["all of them"]),
        {**SMALL, "BLOCK_SIZE": 8, "TILE_TOKENS": 32, "NUM_STAGES": 2},
    ),
    (dataclasses.replace(ONE, sliding_window=3), SMALL),
)


def every_third(mutants):
    """A third of them in every run; the others are long."""
    return [
        pytest.param(mutant, id=mutant.name, marks=[pytest.mark.long] if index % 3 else [])
        for index, mutant in enumerate(mutants)
    ]


@pytest.mark.parametrize("mutant", every_third(MUTANTS))
def test_mutant_in_cuda_is_caught(mutant, judge, tmp_path):
    ok, seen = caught(VARIANT, mutant, RUNS, judge, tmp_path)
    assert ok, seen


def test_the_right_kernel_passes_what_catches_the_mutants(judge):
    for one, config in RUNS:
        verdict = judge(VARIANT, config, one, checks=True)
        assert verdict.ok, verdict


def test_the_mutants_take_every_barrier_and_wait():
    # The last of the three for a warp comes after a matrix load, which the whole warp does at once: the machine sees
    # the order without it.
    source = VARIANT.source.read_text()
    words = ("__syncthreads", "__syncwarp", "wait_for_copies<", "commit_copies")
    assert [source.count(word) for word in words] == [2, 3, 2, 1]
