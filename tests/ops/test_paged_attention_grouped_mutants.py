"""Wrong kernels that pack the query heads of a group, in CUDA C++ and in Triton: each is caught by the common judge."""

import dataclasses

import pytest
from mutation import RANGE_MUTANTS, Mutant, caught
from sampling import named
from test_paged_attention_grouped import FEATURES
from test_paged_attention_grouped import SMALL as CUDA_SMALL
from test_paged_attention_grouped_triton import SMALL as TRITON_SMALL

from workbench.attention.ops.paged_attention import case
from workbench.attention.ops.paged_attention.cuda_grouped_mma import VARIANT as CUDA
from workbench.attention.ops.paged_attention.triton_grouped import VARIANT as TRITON

TILES, CORES = "common/paged_tiles.cuh", "common/tensor_cores.cuh"
EXPONENTIALS = "common/exponentials.cuh"
OPERANDS, EIGHT_BITS, SCALES = "common/operands.cuh", "common/eight_bits.cuh", "common/token_scales.cuh"
CUDA_MUTANTS = (
    Mutant("keys waited for too briefly", "wait_for_copies<PENDING>();", "wait_for_copies<PENDING + 1>();", count=2),
    Mutant("values waited for briefly", "wait_for_copies<PENDING>();", "wait_for_copies<PENDING + 1>();", 2, nth=1),
    Mutant("keys not waited for", "wait_for_copies<PENDING>();", "", count=2),
    Mutant("values not waited for", "wait_for_copies<PENDING>();", "", count=2, nth=1),
    Mutant("groups counted wrongly", "PENDING = 2 * (NUM_STAGES - 1) - 1;", "PENDING = 2 * NUM_STAGES - 2;"),
    *(Mutant(f"{what} not committed", "commit_copies();", "", 2, nth=i) for i, what in enumerate(("keys", "values"))),
    Mutant("nothing committed past the end", "commit_copies();", "if (tile < num_tiles) commit_copies();", count=2),
    *(Mutant(f"barrier {i + 1} removed", "__syncthreads();", "", count=3, nth=i) for i in range(3)),
    *(Mutant(f"warp barrier {i + 1} removed", "__syncwarp();", "", count=3, nth=i) for i in range(2)),
    Mutant("copied into the stage in use", "free_stage * STAGE_BYTES;", "stage * STAGE_BYTES;"),
    Mutant("stages not rotated", "free_stage = stage;", ""),
    Mutant("one stage never used", "stage + 1 < NUM_STAGES ?", "stage + 2 < NUM_STAGES ?"),
    Mutant("copied too far ahead", "tile + (NUM_STAGES - 1) * NUM_WARPS;", "tile + NUM_STAGES * NUM_WARPS;"),
    Mutant("values outside kept", "inside ? COPY : 0", "COPY", header=TILES),
    Mutant("copy ends a token early",
           "row - begin < (unsigned)(end - begin)", "row - begin < (unsigned)(end - begin - 1)", header=TILES),
    Mutant("mask missing", "if (start < begin || start + TILE_TOKENS > end) {", "if (false) {"),
    Mutant("mask of the first tile missing", "if (start < begin || start", "if (start"),
    Mutant("mask of the last tile missing", "start < begin || start + TILE_TOKENS > end", "start < begin"),
    Mutant("mask ignores the window", "8 * n + e % 2 < begin - first || ", ""),
    Mutant("mask a token late", ">= end - first", "> end - first"),
    Mutant("last token skipped", "min(seq_len - base, PARTITION_SIZE)", "min(seq_len - base - 1, PARTITION_SIZE)"),
    Mutant("window one token long", "(seq_len - sliding_window, 0) : 0;", "(seq_len - sliding_window - 1, 0) : 0;"),
    Mutant("table ignored", "> begin ? table[i] : 0", "> begin ? i : 0"),
    Mutant("table of the first partition", "table_stride + base / BLOCK_SIZE;", "table_stride;"),
    Mutant("page before the window", "(i + 1) * BLOCK_SIZE > begin ? table", "i * BLOCK_SIZE > begin ? table"),
    Mutant("wrong KV head", "key_cache + kv_head * head_stride", "key_cache"),
    Mutant("keys for values", "value_cache + kv_head", "key_cache + kv_head"),
    Mutant("query of another group", "(first_head + row) * HEAD_SIZE, row", "row * HEAD_SIZE, row"),
    Mutant("rows past the group read", "row < GROUP);", "true);"),
    Mutant("halves of a key exchanged",
           "key[step - first][0], key[step - first][1]", "key[step - first][1], key[step - first][0]"),
    Mutant("tokens of a key exchanged",
           "key[step - first][2], key[step - first][3]", "key[step - first][0], key[step - first][1]"),
    Mutant("quarters of a query exchanged", "to[1] = QUERY_TILES > 1 ? piece[2]", "to[1] = QUERY_TILES > 1 ? piece[0]"),
    Mutant("values not transposed", "load_matrices_transposed(", "load_matrices("),
    Mutant("half of the weights", "pack<Operand>(score[2 * i + 1][2 * q],", "pack<Operand>(score[2 * i][2 * q],"),
    Mutant("weights exchanged", "score[2 * i][2 * q], score[2 * i][2 * q + 1]",
           "score[2 * i][2 * q + 1], score[2 * i][2 * q]"),
    Mutant("base not changed", "1.f / soft_cap : LOG2_E);", "1.f / soft_cap : 1.f);"),
    Mutant("cap not undone", "soft_cap * LOG2_E * tanh_of", "LOG2_E * tanh_of"),
    Mutant("ALiBi from the partition", "distance = base + first", "distance = first"),
    Mutant("ALiBi of the next token", "(distance + (8 * n + e % 2))", "(distance + (8 * n + 1 - e % 2))"),
    Mutant("cap of another base", "2.f * 1.4426950408889634f * x", "2.f * x", header=EXPONENTIALS),
    Mutant("one slope for both tiles", "slope[e / 2]", "slope[0]"),
    Mutant("values not rescaled", "out[q][d][0] *= even,", ""),
    Mutant("rescaled as another query", "lane % 4 * 8 + 4) * shrink;", "lane % 4 * 8) * shrink;"),
    Mutant("sum not rescaled", "sum[q] *= rescale;", ""),
    Mutant("maximum of one lane", "new_max = max_over_lanes<1, 4>(new_max);", ""),
    Mutant("sum of one lane", "sum[q] = sum_over_lanes<1, 4>(sum[q]);", ""),
    Mutant("every warp every tile", "begin / TILE_TOKENS + warp,", "begin / TILE_TOKENS,"),
    Mutant("partial results of another head", "first_place + (long long)row * gridDim.z", "first_place + row"),
    Mutant("copies of half a chunk", '[%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)',
           '[%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes / 2)', header=CORES),
)  # fmt: skip

QUANTIZED_CUDA_MUTANTS = (
    Mutant("scale of K of the first head", "factor[q] *= *key_scales;", "factor[q] *= *k_scale;"),
    Mutant("scale of K missing", "if (k_scale && !TOKEN_SCALES)", "if (false)"),
    Mutant("scale of V for K", "factor[q] *= *key_scales;", "factor[q] *= *value_scales;"),
    Mutant("scale of V of the first head", "TOKEN_SCALES ? *value_scales", "TOKEN_SCALES ? *v_scale"),
    Mutant("scale of V missing", "all.of_values *= value_scale;", ""),
    Mutant("tokens' scales of K for V", "(to + SCALE_BYTES, value_scales,", "(to + SCALE_BYTES, key_scales,"),
    Mutant("tokens' scales of the first page", "v_scale_page, v_scale_token, start", "0, v_scale_token, start"),
    Mutant("tokens' scales of the next head", "k_scale + kv_head * k_scale", "k_scale + (kv_head ^ 1) * k_scale"),
    Mutant("one scale for two tokens", "(e % 2 ? key_scale.y : key_scale.x)", "key_scale.x"),
    Mutant("scales outside kept", "(unsigned)(end - begin) ? 4 : 0", "(unsigned)(end - begin) ? 4 : 4", header=TILES),
    Mutant("scales a token late",
           "token % PAGE_TOKENS * token_stride,\n", "(token + 1) % PAGE_TOKENS * token_stride,\n", header=TILES),
    Mutant("sums under smaller scales not shrunk", "return before / unit;", "return 1.f;", header=SCALES),
    Mutant("scales of one lane", "unit = max_over_lanes<1, 4>(unit);", "", header=SCALES),
    Mutant("unit of the sums missing", "Elements::UNIT * value_unit.sums_unit();", "Elements::UNIT;"),
    Mutant("unit of V missing", "unit = Elements::UNIT * value", "unit = value"),
    Mutant("unit of K missing", "factor[q] *= Elements::UNIT * query", "factor[q] *= query"),
    Mutant("unit of the query missing", "return unit;\n}", "return 1.f;\n}", header=OPERANDS),
    Mutant("e4m3 read as e5m2", "(marked & 0xff00ff00u) >> 1 |", "(marked & 0xff00ff00u) |", header=EIGHT_BITS),
    Mutant("sign of e4m3 lost", "<< 7 | (four << 8 & 0x80008000u);", "<< 7;", header=EIGHT_BITS),
    Mutant("even int8 unsigned", "0x04800480, 0x6a", "0x04000400, 0x6a", header=EIGHT_BITS),
    Mutant("odd int8 unsigned", "both(0xdc00)", "both(0x8000)", header=EIGHT_BITS),
    Mutant("zero point of int8", "both(0x0480)", "both(0x0481)", header=EIGHT_BITS),
    Mutant("bytes of int8 exchanged", "0u, 0x4341)", "0u, 0x4143)", header=EIGHT_BITS),
    Mutant("query as it lies", "element % 2 * 8 + element / 4 * 2 + element % 4 / 2;", "element;", header=OPERANDS),
    Mutant("sums as they lie", "return element % 2 * 8 + element / 2;", "return element;", header=OPERANDS),
    Mutant("even for odd keys", "widen(matrices[i], to[i % 2][i / 2 * 2], to[i % 2][i / 2 * 2 + 1])",
           "widen(matrices[i], to[i % 2][i / 2 * 2 + 1], to[i % 2][i / 2 * 2])", header=OPERANDS),
    Mutant("even for odd values", "odd<Cache>(matrices[i], to[i % 2][i / 2 * 2], to[i % 2][i / 2 * 2 + 1])",
           "odd<Cache>(matrices[i], to[i % 2][i / 2 * 2 + 1], to[i % 2][i / 2 * 2])", header=OPERANDS),
)  # fmt: skip
# Code of sm_89 and newer, where an instruction converts e4m3.
CONVERTING_CUDA_MUTANTS = (
    Mutant("query as it lies", "element % 4 / 2 * 8 + element / 4 * 2 + element % 2", "element", header=OPERANDS),
    Mutant("query in the order of the values", "DISTANCE == 1 ? element", "DISTANCE == 0 ? element", header=OPERANDS),
    Mutant("values as keys", "== 2 ? four :", "<= 2 ? four :", header=EIGHT_BITS),
    Mutant("halves exchanged", "mov.b32 {low, high}", "mov.b32 {high, low}", header=EIGHT_BITS),
    Mutant("the other code", "cvt.rn.f16x2.e4m3x2 %1", "cvt.rn.f16x2.e5m2x2 %1", header=EIGHT_BITS),
    Mutant("unit of the bits", "UNIT = 1.f;\n  static constexpr int DISTANCE = 1;",
           "UNIT = 256.f;\n  static constexpr int DISTANCE = 1;", header=EIGHT_BITS),
)  # fmt: skip
WIDEN = "triton_eight_bits.py"
TRITON_MUTANTS = (
    Mutant("K ignored", "score = tl.dot(q, tl.trans(key)) *", "score = 0.0 * tl.dot(q, tl.trans(key)) *"),
    Mutant("wrong KV head", "slot = kv_head * KV_HEAD +", "slot ="),
    Mutant("query of another group", "heads = kv_head * GROUP + rows", "heads = rows"),
    Mutant("base not changed", "if SOFT_CAP else LOG2_E)", "if SOFT_CAP else 1.0)"),
    Mutant("cap not undone", "soft_cap * LOG2_E * (1.0", "LOG2_E * (1.0"),
    Mutant("ALiBi from the start", "(token - (seq_len - 1))[None, :]", "token[None, :]"),
    Mutant("one slope for the group", "alibi_slopes + heads,", "alibi_slopes + heads * 0,"),
    *RANGE_MUTANTS,
    Mutant("window starts at a tile", "valid &= token >= begin", "valid &= token >= 0"),
    Mutant("mask missing", 'score = tl.where(valid[None, :], score, float("-inf"))', "score = score"),
    Mutant("values outside kept", "mask=valid[:, None] & inside[None, :],", "mask=inside[None, :],", 2, nth=1),
    Mutant("sums not rescaled", "value, acc * rescale[:, None])", "value, acc)"),
    Mutant("total not rescaled", "total = total * rescale + tl.sum", "total = total + tl.sum"),
    Mutant("wrong maximum kept", "        max_score = new_max\n", "        max_score = new_max * 0.5\n"),
    Mutant("table ignored", "tl.load(table + token // BLOCK_SIZE, mask=valid, other=0)", "(token // BLOCK_SIZE)"),
    Mutant("slots ignored", "token % BLOCK_SIZE * KV_TOKEN", "tokens % BLOCK_SIZE * 0"),
    Mutant("keys for values", "value_cache + (block", "key_cache + (block"),
    Mutant("rows past the group written", "max_score, mask=rows < GROUP)", "max_score, mask=rows < ROWS)"),
    Mutant("partial results of another head", "first_place + rows * tl.num_programs(2)", "first_place + rows"),
)  # fmt: skip

QUANTIZED_TRITON_MUTANTS = (
    Mutant("scale of K of the first head", "tl.load(k_scale + kv_head * k_scale_head)", "tl.load(k_scale)"),
    Mutant("scale of V for K", "tl.load(k_scale + kv_head *", "tl.load(v_scale + kv_head *"),
    Mutant("scale of V of the first head", "v_scale + kv_head * v_scale_head)", "v_scale)"),
    Mutant("tokens' scales of K for V", "tl.load(v_scale + of_value,", "tl.load(k_scale + of_value,"),
    Mutant("tokens' scales of the first page", "block * v_scale_page + ", ""),
    Mutant("tokens' scales of the first slot", "token % BLOCK_SIZE * k_scale_token + ", ""),
    Mutant("tokens' scales of the next head", "k_scale_token + kv_head * k", "k_scale_token + (kv_head ^ 1) * k"),
    Mutant("sums under smaller scales not shrunk", "rescale *= value_unit / new_unit", "rescale *= 1.0"),
    Mutant("unit of the sums missing", "UNIT * value_unit if", "UNIT if"),
    Mutant("unit of V missing", "UNIT * value_unit if", "value_unit if"),
    Mutant("odd elements of V not rescaled", "odd, acc_odd * rescale[:, None])", "odd, acc_odd)"),
    Mutant("odd elements of K left out", "tl.dot(q_odd, tl.trans(odd), tl.dot(q, tl.trans(even)))",
           "tl.dot(q, tl.trans(even))"),
    Mutant("odd elements of the query taken twice", "tl.dot(q, tl.trans(even))", "tl.dot(q_odd, tl.trans(even))"),
    Mutant("unit of K missing", "factor *= UNIT * unit", "factor *= unit"),
    Mutant("unit of the query missing", "factor *= UNIT * unit", "factor *= UNIT * (unit * 0 + 1)"),
    Mutant("e4m3 read as e5m2", "shr.u32 odd, odd, 1;", "", header=WIDEN),
    Mutant("sign of e4m3 lost", "or.b32 $1, odd, sign;", "mov.b32 $1, odd;", header=WIDEN),
    Mutant("even int8 unsigned", "0x04800480, 0x6a", "0x04000400, 0x6a", header=WIDEN),
    Mutant("odd int8 unsigned", "0xdc00dc00", "0x80008000", header=WIDEN),
    Mutant("zero point of int8", "offset, 0x04800480", "offset, 0x04810481", header=WIDEN),
    Mutant("bytes of int8 exchanged", "0, 0x4341;", "0, 0x4143;", header=WIDEN),
)  # fmt: skip
CONVERTING_TRITON_MUTANTS = (
    Mutant("bytes as they lie", "prmt.b32 placed, $2, 0, 0x3120;", "mov.b32 placed, $2;", header=WIDEN),
    Mutant("halves exchanged", "mov.b32 {even, odd}, placed;", "mov.b32 {odd, even}, placed;", header=WIDEN),
    Mutant("the other code", "cvt.rn.f16x2.e4m3x2 $1", "cvt.rn.f16x2.e5m2x2 $1", header=WIDEN),
    Mutant("unit of the bits", "1.0 if has_e4m3(problem) else 2.0**8", "2.0**8", header=WIDEN),
)  # fmt: skip

ONE = case("small", head_size=32, layout="nhd", seq_lens=(1, 129, 300))
ALL = {"layout": "hnd", "dtype": "bfloat16", **FEATURES["all of them"]}
RUNS = {
    CUDA: (
        (ONE, CUDA_SMALL),
        (
            dataclasses.replace(ONE, num_heads=24, **ALL),
            {**CUDA_SMALL, "BLOCK_SIZE": 8, "TILE_TOKENS": 32, "NUM_STAGES": 2},
        ),
        (dataclasses.replace(ONE, sliding_window=3), CUDA_SMALL),
    ),
    TRITON: (
        (ONE, TRITON_SMALL),
        (dataclasses.replace(ONE, num_heads=12, **{**ALL, "dtype": "float16"}), TRITON_SMALL),
        (dataclasses.replace(ONE, sliding_window=3), TRITON_SMALL),
    ),
}
INT8, E4M3 = (dataclasses.replace(ONE, kv_cache_dtype=name) for name in ("int8", "fp8_e4m3"))
E4M3 = dataclasses.replace(E4M3, scales="token", dtype="bfloat16")
QUANTIZED_RUNS = {
    CUDA: ((INT8, CUDA_SMALL), (E4M3, {**CUDA_SMALL, "BLOCK_SIZE": 8})),
    TRITON: ((INT8, TRITON_SMALL), (E4M3, {**TRITON_SMALL, "BLOCK_SIZE": 8})),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("mutant", named(CUDA_MUTANTS))
def test_mutant_in_cuda_is_caught(mutant, judge, tmp_path):
    ok, seen = caught(CUDA, mutant, RUNS[CUDA], judge, tmp_path)
    assert ok, seen


@pytest.mark.sampled(12)
@pytest.mark.parametrize("mutant", named(QUANTIZED_CUDA_MUTANTS))
def test_mutant_of_quantization_in_cuda_is_caught(mutant, judge, tmp_path):
    ok, seen = caught(CUDA, mutant, QUANTIZED_RUNS[CUDA], judge, tmp_path)
    assert ok, seen


@pytest.mark.sampled(12)
@pytest.mark.parametrize("mutant", named(CONVERTING_CUDA_MUTANTS))
def test_mutant_of_the_conversion_in_cuda_is_caught(mutant, judge, tmp_path):
    ok, seen = caught(CUDA, mutant, QUANTIZED_RUNS[CUDA][1:], judge, tmp_path, arch="sm_90")
    assert ok, seen


@pytest.mark.sampled(12)
@pytest.mark.parametrize("mutant", named(CONVERTING_TRITON_MUTANTS))
def test_mutant_of_the_conversion_in_triton_is_caught(mutant, judge, tmp_path):
    ok, seen = caught(TRITON, mutant, QUANTIZED_RUNS[TRITON][1:], judge, tmp_path, arch="sm_90")
    assert ok, seen


@pytest.mark.sampled(12)
@pytest.mark.parametrize("mutant", named(TRITON_MUTANTS))
def test_mutant_in_triton_is_caught(mutant, judge, tmp_path):
    ok, seen = caught(TRITON, mutant, RUNS[TRITON], judge, tmp_path)
    assert ok, seen


@pytest.mark.sampled(12)
@pytest.mark.parametrize("mutant", named(QUANTIZED_TRITON_MUTANTS))
def test_mutant_of_quantization_in_triton_is_caught(mutant, judge, tmp_path):
    ok, seen = caught(TRITON, mutant, QUANTIZED_RUNS[TRITON], judge, tmp_path)
    assert ok, seen


@pytest.mark.sampled(2)
@pytest.mark.parametrize("variant", [CUDA, TRITON], ids=lambda variant: variant.name)
def test_the_right_kernel_passes_what_catches_the_mutants(variant, judge):
    for one, config in RUNS[variant] + QUANTIZED_RUNS[variant]:
        verdict = judge(variant, config, one, checks=True)
        assert verdict.ok, verdict
    one, config = QUANTIZED_RUNS[variant][1]
    verdict = judge(variant, config, one, checks=True, arch="sm_90")
    assert verdict.ok, verdict


def test_the_mutants_take_every_barrier_and_wait():
    # The last of the three for a warp comes after a matrix load, which the whole warp does at once: the machine sees
    # the order without it.
    source = CUDA.source.read_text()
    words = ("__syncthreads", "__syncwarp", "wait_for_copies<", "commit_copies")
    assert [source.count(word) for word in words] == [3, 3, 2, 2]
