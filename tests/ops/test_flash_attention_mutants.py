"""Wrong kernels of causal attention, forward and backward, in CUDA C++ and in Triton: each is caught by the judge."""

import dataclasses

import pytest
from mutation import Mutant, caught, with_text
from sampling import named_of

from workbench.attention.ops.causal_attention import Case
from workbench.attention.ops.causal_attention.cuda_mma import VARIANT as CUDA
from workbench.attention.ops.causal_attention.triton_descriptors import VARIANT as DESCRIPTORS
from workbench.attention.ops.causal_attention.triton_flash import VARIANT as TRITON
from workbench.attention.ops.causal_attention_backward import Case as Backward
from workbench.attention.ops.causal_attention_backward.triton_flash import VARIANT as GRADIENTS

CORES = "common/tensor_cores.cuh"
CUDA_MUTANTS = (
    Mutant("keys waited for too briefly", "wait_for_copies<PENDING>();", "wait_for_copies<PENDING + 1>();", count=2),
    Mutant("values waited for briefly", "wait_for_copies<PENDING>();", "wait_for_copies<PENDING + 1>();", 2, nth=1),
    Mutant("keys not waited for", "wait_for_copies<PENDING>();", "", count=2),
    Mutant("values not waited for", "wait_for_copies<PENDING>();", "", count=2, nth=1),
    Mutant("queries not waited for", "wait_for_copies<2 * (NUM_STAGES - 1)>();", ""),
    Mutant("queries waited for briefly",
           "wait_for_copies<2 * (NUM_STAGES - 1)>", "wait_for_copies<2 * NUM_STAGES - 1>"),
    *(
        Mutant(f"{what} not committed", "commit_copies();", "", 3, nth=i)
        for i, what in enumerate(("queries", "keys", "values"))
    ),
    Mutant("nothing committed past the end", "commit_copies();", "if (tile < num_tiles) commit_copies();", 3, nth=2),
    *(
        Mutant(f"barrier of {what} removed", "__syncthreads();", "", count=3, nth=i)
        for i, what in enumerate(("queries", "keys", "values"))
    ),
    Mutant("no order in a warp's output", "__syncwarp();", "", count=2, nth=1),
    Mutant("copied into the stage in use", "copy_keys(free_stage,", "copy_keys(stage,"),
    Mutant("values into the stage in use", "copy_values(free_stage,", "copy_values(stage,"),
    Mutant("stages not rotated", "free_stage = stage;", ""),
    Mutant("copied too far ahead",
           "copy_keys(free_stage, tile + NUM_STAGES - 1)", "copy_keys(free_stage, tile + NUM_STAGES)"),
    Mutant("padding of keys and values kept", "row < count && chunk", "chunk"),
    Mutant("copy ends a row early", "row < count &&", "row < count - 1 &&"),
    Mutant("copied past the head", "&& chunk * 8 < HEAD_SIZE", ""),
    Mutant("mask missing", "if (on_diagonal && 8", "if (false && 8"),
    Mutant("mask a token late", "8 * n + e % 2 > seen", "8 * n + e % 2 > 1 + seen"),
    Mutant("mask a token early", "8 * n + e % 2 > seen", "8 * n + e % 2 >= seen"),
    Mutant("one mask for both rows", "> seen + e / 2 * 8)", "> seen)"),
    Mutant("diagonal of the first warp", "> position + warp * WARP_ROWS;", "> position + BLOCK_M - 1;"),
    Mutant("causal from the first token", "position = seq_len - query_len + first_row;", "position = first_row;"),
    Mutant("diagonal a row late", "seq_len - query_len + first_row;", "seq_len - query_len + first_row + 1;"),
    Mutant("last tile skipped", "(end + BLOCK_N - 1) / BLOCK_N", "end / BLOCK_N"),
    Mutant("lengths of another sequence", "seq_lens[seq]", "seq_lens[0]"),
    Mutant("query lengths ignored", "query_lens ? query_lens[seq] : num_queries", "num_queries"),
    Mutant("wrong KV head", "key + seq * key_seq_stride + head / group", "key + seq * key_seq_stride + head % group"),
    Mutant("values of the first head", "head / group * value_head_stride", "0 * value_head_stride"),
    Mutant("keys of the first sequence", "key + seq * key_seq_stride", "key"),
    Mutant("keys for values", "values = value + seq", "values = key + seq"),
    Mutant("queries of the first block", "+ first_row * query_token_stride", ""),
    Mutant("halves of a key exchanged", "queries[r][step], piece[0], piece[1]", "queries[r][step], piece[1], piece[0]"),
    Mutant("values not transposed", "load_matrices_transposed(", "load_matrices("),
    Mutant("halves of a value exchanged", "weights[r], piece[2], piece[3]", "weights[r], piece[3], piece[2]"),
    Mutant("weights of one half", "score[r][n + i / 2][i % 2 * 2]", "score[r][n][i % 2 * 2]"),
    Mutant("swizzled otherwise on reading",
           "swizzled<CHUNKS>(8 * n + token_of_lane,", "swizzled<CHUNKS / 2>(8 * n + token_of_lane,"),
    Mutant("rows collide", "(row * CHUNKS + (chunk", "(row / 2 * CHUNKS + (chunk", header=CORES),
    Mutant("scale missing", "factor = scale * LOG2_E", "factor = LOG2_E"),
    Mutant("base not changed", "factor = scale * LOG2_E", "factor = scale"),
    Mutant("maximum of one lane", "new_max = max_over_lanes<1, 4>(new_max);", ""),
    Mutant("maximum not kept", "max_score[r][half] = new_max;", ""),
    Mutant("maximum not subtracted", "exp2_or_zero(score[r][n][e] - new_max)", "exp2_or_zero(score[r][n][e])"),
    Mutant("sum not rescaled", "sum[r][half] *= rescale;", ""),
    Mutant("output not rescaled", "out[r][d][2 * half] *= rescale,", ""),
    Mutant("sum of one lane", "sum_over_lanes<1, 4>(sum[r][half])", "sum[r][half]"),
    Mutant("not divided", "__fdividef(1.f, total)", "1.f"),
    Mutant("logarithm without the maximum", "(max_score[r][half] + __log2f(total))", "__log2f(total)"),
    Mutant("logarithm without the sum", "(max_score[r][half] + __log2f(total))", "max_score[r][half]"),
    Mutant("logarithm to base 2", "__log2f(total)) * LN_2", "__log2f(total))"),
    Mutant("logarithm of padding", "row < num_rows ? (max", "true ? (max"),
    Mutant("output of padding", "row < num_rows ? pair : 0u", "pair"),
    Mutant("rows past the end written", "if (row < rows_to_write)\n", "if (true)\n"),
    Mutant("logarithms past the end", "lane % 4 == 0 && row < rows_to_write", "lane % 4 == 0"),
    Mutant("logarithms that nobody wants", "if (lse && lane", "if (lane"),
    Mutant("padding not written", "rows_to_write = min(num_queries - first_row, BLOCK_M)", "rows_to_write = num_rows"),
)  # fmt: skip
TRITON_MUTANTS = (
    Mutant("K ignored", "tl.dot(q, tl.trans(k)) * factor", "tl.dot(q, tl.trans(k)) * 0.0"),
    Mutant("base not changed", "factor = scale * LOG2_E", "factor = scale"),
    Mutant("mask missing", "    if DIAGONAL:\n            score =", "    if DIAGONAL:\n            unused ="),
    Mutant("mask a token late", "token[None, :] <= position[:, None]", "token[None, :] <= position[:, None] + 1"),
    Mutant("mask a token early", "token[None, :] <= position[:, None]", "token[None, :] < position[:, None]"),
    Mutant("diagonal a tile late", "(first_position + 1) // BLOCK_N", "(first_position + BLOCK_M) // BLOCK_N"),
    Mutant("diagonal a tile early, the rest twice",
           "q, keys, values, position, diagonal, end,", "q, keys, values, position, 0, end,"),
    Mutant("causal from the first token", "position = seq_len - query_len + row", "position = row"),
    Mutant("last tokens skipped", "first_position + BLOCK_M, seq_len)", "first_position, seq_len)"),
    Mutant("padding kept", "value_stride, last, not DIAGONAL", "value_stride, last, True"),
    Mutant("keys of padding kept", "key_stride, last, not DIAGONAL", "key_stride, last + BLOCK_N, not DIAGONAL"),
    Mutant("maximum not subtracted", "tl.exp2(score - new_max[:, None])", "tl.exp2(score)"),
    Mutant("sums not rescaled", "v, acc * rescale[:, None])", "v, acc)"),
    Mutant("total not rescaled", "total = total * rescale + tl.sum", "total = total + tl.sum"),
    Mutant("maximum not kept", "        max_score = new_max\n", ""),
    Mutant("wrong KV head", "key_seq_stride + head // group", "key_seq_stride + head % group"),
    Mutant("values of the first head", "head // group * value_head_stride", "0 * value_head_stride"),
    Mutant("values of the first sequence", "value + seq * value_seq_stride", "value"),
    Mutant("not divided", "acc / tl.where(valid, total, 1.0)[:, None]", "acc"),
    Mutant("logarithm to base 2", "* LN_2, float", "* 1.0, float"),
    Mutant("logarithm without the maximum", "(max_score + tl.log2(total))", "(tl.log2(total))"),
    Mutant("logarithm of padding", "tl.where(valid, (max", "tl.where(row >= 0, (max"),
    Mutant("rows past the end written", "row, num_queries, out,", "row, num_queries + 1, out,"),
    Mutant("logarithms past the end", "mask=(row < num_queries) & (", "mask=(row >= 0) & ("),
    Mutant("logarithms that nobody wants", " & (wants_lse != 0)", ""),
)  # fmt: skip
DESCRIPTOR_MUTANTS = (
    Mutant("keys of the first tile", "k = keys.load([start, 0])", "k = keys.load([first, 0])"),
    Mutant("values of the first tile", "v = values.load([start, 0])", "v = values.load([first, 0])"),
    Mutant("keys for values", "v = values.load(", "v = keys.load("),
    Mutant("mask missing",
           "    if DIAGONAL:\n            score =", "    if DIAGONAL:\n            unused ="),
    Mutant("queries of the first block", ").load([first_row, 0])", ").load([0, 0])"),
    Mutant("queries of another head", "+ head * query_head_stride", ""),
    Mutant("values of padding kept", "values, [tokens, HEAD_SIZE]", "values, [num_tokens, HEAD_SIZE]"),
    Mutant("the last token missing", "tokens = tl.maximum(seq_len, 1)", "tokens = tl.maximum(seq_len - 1, 1)"),
    Mutant("rows of keys too close", "[key_token_stride, 1]", "[HEAD_SIZE - 8, 1]"),
    Mutant("rows of values too close", "[value_token_stride, 1]", "[HEAD_SIZE - 8, 1]"),
    Mutant("wrong KV head", "key_seq_stride + head // group", "key_seq_stride + head % group"),
    Mutant("values of the first head", "head // group * value_head_stride", "0 * value_head_stride"),
    Mutant("values of the first sequence", "value + seq * value_seq_stride", "value"),
    Mutant("columns past the head written",
           "[num_queries, HEAD_SIZE], [HEAD_SIZE, 1]", "[num_queries, HEAD_PADDED], [HEAD_SIZE, 1]"),
    Mutant("rows past the end written", "[num_queries, HEAD_SIZE], [H", "[num_queries + 1, HEAD_SIZE], [H"),
    Mutant("the last row not written", "[num_queries, HEAD_SIZE], [H", "[num_queries - 1, HEAD_SIZE], [H"),
    Mutant("written to the first block", "outputs.store([first_row, 0]", "outputs.store([0, 0]"),
    Mutant("logarithms past the end", "mask=(row < num_queries) & (", "mask=(row >= 0) & ("),
    Mutant("logarithms that nobody wants", " & (wants_lse != 0)", ""),
)  # fmt: skip
DESCRIPTOR_MUTANTS = tuple(dataclasses.replace(one, header="triton_flash.py") for one in DESCRIPTOR_MUTANTS)
GRADIENT_MUTANTS = (
    Mutant("delta missing", "found = tl.sum(o", "found = 0.0 * tl.sum(o"),
    Mutant("gradient of lse ignored", "found -= tl.load(d_lse", "found -= 0.0 * tl.load(d_lse"),
    Mutant("gradient of lse added", "found -= tl.load(d_lse", "found += tl.load(d_lse"),
    Mutant("one head of the group",
           "range(kv_head * group, kv_head * group + group)", "range(kv_head * group, kv_head * group + 1)"),
    Mutant("heads of the next group",
           "range(kv_head * group, kv_head * group + group)", "range(kv_head, kv_head + group)"),
    Mutant("logarithms of another head", "tl.num_programs(1) * group + head)", "tl.num_programs(1) * group + kv_head)"),
    Mutant("first tile skipped", "0) // BLOCK_M * BLOCK_M", "0) // BLOCK_M * BLOCK_M + BLOCK_M"),
    Mutant("first tile not whole", "0) // BLOCK_M * BLOCK_M", "0) + 1"),
    Mutant("keys past the end", "last = tl.where(start < seq_len, query_len, 0)", "last = query_len - 1"),
    Mutant("mask of keys missing", "(token[:, None] <= (past + row)[None, :]) & valid[None, :]", "valid[None, :]"),
    Mutant("mask of keys early", "token[:, None] <= (past + row)", "token[:, None] < (past + row)"),
    Mutant("causal from the first token", "past = seq_len - query_len", "past = 0 * seq_len"),
    Mutant("base of keys not changed", "tl.dot(k, tl.trans(q)) * (scale * LOG2_E)", "tl.dot(k, tl.trans(q)) * scale"),
    Mutant("weights of keys unscaled", "tl.dot(k, tl.trans(q)) * (scale * LOG2_E)", "tl.dot(k, tl.trans(q)) * LOG2_E"),
    Mutant("delta of keys missing", "(d_weight - tl.load(delta", "(d_weight - 0.0 * tl.load(delta"),
    Mutant("weights missing", "d_score = weight * (d_weight -", "d_score = (d_weight -"),
    Mutant("values for gradients", "d_weight = tl.dot(v, tl.trans(d_o))", "d_weight = tl.dot(k, tl.trans(d_o))"),
    Mutant("values not added up", "d_o, d_v)", "d_o)"),
    Mutant("keys not added up", "q, d_k)", "q)"),
    Mutant("keys unscaled", "d_k * scale", "d_k"),
    Mutant("mask of queries missing", "(token[None, :] <= position[:, None]) & valid[:, None]", "valid[:, None]"),
    Mutant("mask of queries late", "token[None, :] <= position[:, None]", "token[None, :] <= position[:, None] + 1"),
    Mutant("last tokens skipped", "first_row + BLOCK_M, seq_len)", "first_row + 1, seq_len)"),
    Mutant("delta of queries missing", "tl.trans(v)) - of_row[:, None])", "tl.trans(v)))"),
    Mutant("queries not added up", "k, d_q)", "k)"),
    Mutant("queries unscaled", "d_q * scale", "d_q"),
    Mutant("wrong KV head", "key_seq_stride + head // group", "key_seq_stride + head % group"),
    Mutant("values of the first head", "head // group * value_head_stride", "0 * value_head_stride"),
    Mutant("queries past the end written", "row, num_queries, d_q", "row, num_queries + 1, d_q"),
    Mutant("tokens past the end written", "token, num_tokens, d_v,", "token, num_tokens + 1, d_v,"),
)  # fmt: skip

# Three tiles of tokens and of queries, padding in both, a group, more than one KV head; and a head of no whole steps.
LENGTHS = {"num_seqs": 3, "query_lens": (70, 1, 33), "seq_lens": (90, 88, 64), "num_queries": 70, "lse": True}
SIZES = {
    "lengths": (4, 2, 32, 90, {**LENGTHS, "dtype": "float16"}),
    "all": (4, 2, 40, 90, {"num_seqs": 2, "num_queries": 80, "lse": True, "dtype": "bfloat16"}),
    "no logarithm": (2, 1, 32, 40, {"num_seqs": 1, "dtype": "float16"}),
}
CONFIGS = {
    CUDA: (
        {"BLOCK_M": 32, "BLOCK_N": 32, "NUM_STAGES": 3, "NUM_THREADS": 64},
        {"BLOCK_M": 64, "BLOCK_N": 32, "NUM_STAGES": 2, "NUM_THREADS": 64},
        {"BLOCK_M": 32, "BLOCK_N": 32, "NUM_STAGES": 3, "NUM_THREADS": 64},
    ),
    TRITON: (
        {"BLOCK_M": 32, "BLOCK_N": 32, "num_warps": 2, "num_stages": 2},
        {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4, "num_stages": 1},
        {"BLOCK_M": 32, "BLOCK_N": 32, "num_warps": 2, "num_stages": 2},
    ),
}
CONFIGS[GRADIENTS] = CONFIGS[TRITON]
CONFIGS[DESCRIPTORS] = (
    {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4, "num_stages": 2},
    {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4, "num_stages": 1},
    {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3},
)
ARCHS = {DESCRIPTORS: "sm_90"}  # the others' is sm_80
VARIANTS = (
    (CUDA, CUDA_MUTANTS), (TRITON, TRITON_MUTANTS), (DESCRIPTORS, DESCRIPTOR_MUTANTS), (GRADIENTS, GRADIENT_MUTANTS),
)  # fmt: skip


def runs_of(variant):
    """The cases with their configurations."""
    kind = Backward if variant is GRADIENTS else Case
    cases = [kind(name, *sizes, **fields) for name, (*sizes, fields) in SIZES.items()]
    return list(zip(cases, CONFIGS[variant], strict=True))


@pytest.mark.sampled(130)
@pytest.mark.parametrize(("variant", "mutant"), named_of(VARIANTS))
def test_mutant_is_caught(variant, mutant, judge, tmp_path):
    ok, seen = caught(variant, mutant, runs_of(variant), judge, tmp_path, arch=ARCHS.get(variant, "sm_80"))
    assert ok, seen


@pytest.mark.long
@pytest.mark.parametrize("variant", CONFIGS, ids=str)
def test_the_right_kernel_passes_what_catches_the_mutants(variant, judge, tmp_path):
    copy = with_text(variant, variant.source.read_text(), tmp_path)
    for one, config in runs_of(variant):
        verdict = judge(copy, config, one, checks=True, arch=ARCHS.get(variant, "sm_80"))
        assert verdict.ok, verdict


def test_the_mutants_take_every_barrier_and_wait():
    # The first of the two for a warp follows matrix loads and shuffles, which the whole warp does at once: the machine
    # sees the order without it.
    source = CUDA.source.read_text()
    words = ("__syncthreads", "__syncwarp", "wait_for_copies<", "commit_copies")
    assert [source.count(word) for word in words] == [3, 2, 3, 3]
