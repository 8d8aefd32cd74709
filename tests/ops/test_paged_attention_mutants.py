"""Wrong kernels are caught by the very judge that passes the right ones.

A mutant is one change to the text of a kernel, as a slip of the hand would make it. Each must be caught on one of a
few cases, by its values or by what the machine finds (a race, a fault); the unchanged text must pass them all.
"""

import dataclasses
import re

import pytest
from mutation import Mutant, caught, with_text
from sampling import named

from workbench import ops
from workbench.attention.ops.paged_attention import case

CUDA = ops.variant("paged_attention", "cuda_thread_group")
TRITON = ops.variant("paged_attention", "triton_online_softmax")


EVERY_PAGE = "page = 0; page < num_pages; ++page"
TABLE = "block = tl.load(table + first // BLOCK_SIZE, mask=first < seq_len, other=0)"

CUDA_MUTANTS = (
    Mutant("K ignored", "score += dot(q, key[j]);", "score += 0.f;"),
    Mutant("wrong KV head", "head / (num_heads / num_kv_heads)", "head % num_kv_heads"),
    Mutant("scale missing", "scale * LOG2_E *", "LOG2_E *"),
    Mutant("base not changed", "scale * LOG2_E *", "scale *"),
    Mutant("last token skipped", "const int seq_len = seq_lens[seq];", "const int seq_len = seq_lens[seq] - 1;"),
    Mutant("first token skipped", "token < seq_len ? score", "token < seq_len && token > 0 ? score"),
    Mutant("mask missing", "score = token < seq_len ? score *", "score = true ? score *"),
    Mutant("mask one token late", "token < seq_len ? score", "token <= seq_len ? score"),
    Mutant("values past the end kept", "if (token + V_VEC_SIZE > count)", "if (false)"),
    Mutant("last vector of a page dropped", "if (token >= count) return;", "if (token + V_VEC_SIZE > count) return;"),
    Mutant("one value past the end kept", "value[i].keep(count - token)", "value[i].keep(count - token + 1)"),
    Mutant("maximum not subtracted", "exp2f(logits[token] - max_score)", "exp2f(logits[token])"),
    Mutant("each warp its own maximum", "max_score = fmaxf(max_score, warp_max[i]);", ";"),
    Mutant("one warp's sum", "total += warp_sum[i]", "total = warp_sum[0]"),
    Mutant("one warp's rows", "value += partial_out[i][row]", "value = partial_out[0][row]"),
    Mutant("lanes of a row not added", "sum_over_lanes<1, LANES_PER_ROW>(rows[i])", "rows[i]"),
    Mutant("thread group not added", "score = sum_over_lanes<1, THREAD_GROUP_SIZE>(score);", ""),
    Mutant("not divided", "from_float<SCALAR>(value * inverse)", "from_float<SCALAR>(value)"),
    Mutant("table ignored for K", "key_cache + block *", "key_cache + page *"),
    Mutant("table ignored for V", "value_cache + table[page]", "value_cache + page"),
    Mutant("every warp every page", "page = warp; page < num_pages; page += NUM_WARPS", EVERY_PAGE, count=2, nth=1),
    Mutant("last page dropped", "const int count =", "if (page == num_pages - 1) break;\n    const int count ="),
    *(Mutant(f"barrier {i + 1} removed", "__syncthreads();", "", count=4, nth=i) for i in range(4)),
)
SCALES, QUANTIZED = "common/cache_scales.cuh", "common/quantized.cuh"
QUANTIZED_CUDA_MUTANTS = (
    Mutant("scale of K of the next head", "k_slot_stride, kv_head *", "k_slot_stride, (kv_head ^ 1) *"),
    Mutant("scale of V of the next head", "v_slot_stride, kv_head *", "v_slot_stride, (kv_head ^ 1) *"),
    Mutant("scale of K for V", "value_scales{v_scale,", "value_scales{k_scale,"),
    Mutant("scale of K missing", "LOG2_E * key_scales.common()", "LOG2_E"),
    Mutant("scale of V missing", "value_scales.common() / total", "1.f / total"),
    Mutant("tokens' scales of K missing", "score * key_scales.of(block * BLOCK_SIZE + safe_slot)", "score"),
    Mutant("tokens' scales of V missing", "weight * (token < seq_len ? value_scales.of(slot) : 1.f)", "weight"),
    Mutant("tokens' scales of the first page", "of(block * BLOCK_SIZE + safe_slot)", "of(safe_slot)"),
    Mutant("tokens' scales by their number", "(long long)table[token / BLOCK_SIZE]", "(token / BLOCK_SIZE)"),
    Mutant("scales of unused slots", "(token < seq_len ? value_scales.of(slot) : 1.f)", "value_scales.of(slot)"),
    Mutant("weights summed with the scale", "sum += weight;", "sum += logits[token];"),
    Mutant("scale of another slot", "slot * slot_stride + of_kv_head", "slot + of_kv_head", header=SCALES),
    Mutant("sign of e4m3 lost", "& 0x87f00000", "& 0x07f00000", header=QUANTIZED),
    Mutant("e4m3 twice as large", "0x1p120f", "0x1p121f", header=QUANTIZED),
    Mutant("wrong half of e5m2", "value.__x << 8", "value.__x", header=QUANTIZED),
    Mutant("codes of the neighbour's weight", "(3 - DISTANCE) + DISTANCE]", "(3 - DISTANCE) + 1]", header=QUANTIZED),
    Mutant("unit missing", "sum *= EightBits<Code>::UNIT;", "", header=QUANTIZED),
    Mutant("the first four codes again", "(codes.at)[i / 4]", "(codes.at)[0]", header=QUANTIZED),
    Mutant("int8 unsigned", "both(0xdc00)", "both(0x8000)", header="common/eight_bits.cuh"),
)

TRITON_MUTANTS = (
    Mutant("K ignored", "key.to(tl.float32) * q[None, None, :]", "key.to(tl.float32) * 0.0"),
    Mutant("wrong KV head", "kv_head = head // GROUP", "kv_head = head % (tl.num_programs(0) // GROUP)"),
    Mutant("scale missing", "* (scale * LOG2_E)", "* LOG2_E"),
    Mutant("base not changed", "* (scale * LOG2_E)", "* scale"),
    Mutant("last token skipped", "seq_len = tl.load(seq_lens + seq)", "seq_len = tl.load(seq_lens + seq) - 1"),
    Mutant("first tile skipped", "tl.range(0, seq_len", "tl.range(TILE_TOKENS, seq_len"),
    Mutant("mask missing", 'score = tl.where(valid, score, float("-inf"))', "score = score"),
    Mutant(
        "values past the end kept", "tl.where(valid[:, None, :], value.to(tl.float32), 0.0)", "value.to(tl.float32)"
    ),
    Mutant("maximum not subtracted", "weight = tl.exp2(score - new_max)", "weight = tl.exp2(score)"),
    Mutant("sums not rescaled", "acc = acc * rescale", "acc = acc"),
    Mutant("total not rescaled", "total = total * rescale", "total = total"),
    Mutant("maximum of one tile", "max_score = new_max", "max_score = max_score"),
    Mutant("table ignored", TABLE, "block = (first // BLOCK_SIZE)"),
    Mutant("slots of the first part", "tl.multiple_of(start % BLOCK_SIZE, TILE_TOKENS) + slots", "slots"),
    Mutant("not divided", "acc = acc / tl.where(seq_len > 0, total, 1.0)", "acc = acc"),
    Mutant("keys for values", "value_cache + offset", "key_cache + offset"),
    Mutant("keys of the first head", "key_page_stride + kv_head * KEY_HEAD", "key_page_stride"),
    Mutant("values of the first head", "value_page_stride + kv_head * VALUE_HEAD", "value_page_stride"),
    Mutant(
        "elements of a group exchanged",
        "elements // X * KEY_X + elements % X",
        "elements // X * KEY_X + elements % X // 2",
    ),
    Mutant("query of the next head", "+ head * HEAD_SIZE\n", "+ (head ^ 1) * HEAD_SIZE\n"),
    Mutant("table of the first sequence", "block_tables + seq.to(tl.int64) * table_stride", "block_tables"),
    Mutant("one token late", "valid = token < seq_len", "valid = token <= seq_len"),
)
QUANTIZED_TRITON_MUTANTS = (
    Mutant("scale of K of the next head", "tl.load(k_scale + kv_head *", "tl.load(k_scale + (kv_head ^ 1) *"),
    Mutant("scale of V of the next head", "tl.load(v_scale + kv_head *", "tl.load(v_scale + (kv_head ^ 1) *"),
    Mutant("scale of K for V", "tl.load(v_scale + kv_head *", "tl.load(k_scale + kv_head *"),
    Mutant("scale of K missing", "q *= tl.load(k_scale + kv_head * k_head_stride)", "q *= 1.0"),
    Mutant("scale of V missing", "acc *= tl.load(v_scale + kv_head * v_head_stride)", "acc *= 1.0"),
    Mutant("tokens' scales of K of the next head", "k_slot_stride + kv_head *", "k_slot_stride + (kv_head ^ 1) *"),
    Mutant("tokens' scales of the first head", "v_slot_stride + kv_head * v_head_stride", "v_slot_stride"),
    Mutant("tokens' scales of K for V", "tl.load(v_scale + place", "tl.load(k_scale + place"),
    Mutant("tokens' scales by their number", "place = block[:, None] * BLOCK_SIZE + slot[None, :]", "place = token"),
    Mutant("scales of unused slots", "v_head_stride, mask=valid, other=1.0)", "v_head_stride)"),
)

CUDA_RUNS = (
    (case("small"), {"BLOCK_SIZE": 16, "THREAD_GROUP_SIZE": 2, "VEC_SIZE": 4, "V_VEC_SIZE": 8, "NUM_THREADS": 128}),
    (
        case("large-scores"),
        {"BLOCK_SIZE": 8, "THREAD_GROUP_SIZE": 8, "VEC_SIZE": 4, "V_VEC_SIZE": 2, "NUM_THREADS": 64},
    ),
)
TRITON_RUNS = (
    (case("small"), {"BLOCK_SIZE": 16, "TILE_TOKENS": 32, "num_warps": 4, "num_stages": 2}),
    (
        case("large-scores", layout="nhd"),
        {"BLOCK_SIZE": 64, "TILE_TOKENS": 16, "num_warps": 2, "num_stages": 1},
    ),
)


ONE = case("small", seq_lens=(1, 17, 129))
INT8, E4M3, E5M2 = (dataclasses.replace(ONE, kv_cache_dtype=name) for name in ("int8", "fp8_e4m3", "fp8_e5m2"))
E5M2 = dataclasses.replace(E5M2, scales="token", dtype="bfloat16")
QUANTIZED_CUDA_RUNS = (
    (INT8, {"BLOCK_SIZE": 16, "THREAD_GROUP_SIZE": 2, "VEC_SIZE": 8, "V_VEC_SIZE": 8, "NUM_THREADS": 64}),
    (E5M2, {"BLOCK_SIZE": 32, "THREAD_GROUP_SIZE": 4, "VEC_SIZE": 4, "V_VEC_SIZE": 2, "NUM_THREADS": 64}),
    (E4M3, {"BLOCK_SIZE": 16, "THREAD_GROUP_SIZE": 2, "VEC_SIZE": 2, "V_VEC_SIZE": 8, "NUM_THREADS": 64}),
)
QUANTIZED_TRITON_RUNS = (
    (INT8, {"BLOCK_SIZE": 16, "TILE_TOKENS": 32, "num_warps": 2, "num_stages": 1}),
    (E5M2, {"BLOCK_SIZE": 32, "TILE_TOKENS": 16, "num_warps": 2, "num_stages": 2}),
)


class TestCuda:
    def test_the_right_kernel_passes(self, judge, tmp_path):
        copy = with_text(CUDA, CUDA.source.read_text(), tmp_path)
        for variant, runs in ((CUDA, CUDA_RUNS + QUANTIZED_CUDA_RUNS), (copy, CUDA_RUNS)):
            for one, config in runs:
                verdict = judge(variant, config, one, checks=True)
                assert verdict.ok, verdict

    @pytest.mark.sampled(12)
    @pytest.mark.parametrize("mutant", named(CUDA_MUTANTS))
    def test_mutant_is_caught(self, mutant, judge, tmp_path):
        ok, seen = caught(CUDA, mutant, CUDA_RUNS, judge, tmp_path)
        assert ok, seen

    @pytest.mark.sampled(12)
    @pytest.mark.parametrize("mutant", named(QUANTIZED_CUDA_MUTANTS))
    def test_mutant_of_quantization_is_caught(self, mutant, judge, tmp_path):
        ok, seen = caught(CUDA, mutant, QUANTIZED_CUDA_RUNS, judge, tmp_path)
        assert ok, seen

    def test_the_source_has_no_other_barrier(self):
        text = "".join(path.read_text() for path in CUDA.files)
        own = CUDA.source.read_text()
        assert own.count("__syncthreads") == 4
        assert text.count("__syncwarp") == 0


class TestTriton:
    def test_the_right_kernel_passes(self, judge, tmp_path):
        copy = with_text(TRITON, TRITON.source.read_text(), tmp_path)
        for variant, runs in ((TRITON, TRITON_RUNS + QUANTIZED_TRITON_RUNS), (copy, TRITON_RUNS)):
            for one, config in runs:
                verdict = judge(variant, config, one)
                assert verdict.ok, verdict

    @pytest.mark.sampled(12)
    @pytest.mark.parametrize("mutant", named(TRITON_MUTANTS))
    def test_mutant_is_caught(self, mutant, judge, tmp_path):
        ok, seen = caught(TRITON, mutant, TRITON_RUNS, judge, tmp_path, checks=False)
        assert ok, seen

    @pytest.mark.sampled(12)
    @pytest.mark.parametrize("mutant", named(QUANTIZED_TRITON_MUTANTS))
    def test_mutant_of_quantization_is_caught(self, mutant, judge, tmp_path):
        ok, seen = caught(TRITON, mutant, QUANTIZED_TRITON_RUNS, judge, tmp_path, checks=False)
        assert ok, seen

    def test_barriers_that_the_compiler_put_in(self, sim):
        """Each bar.sync and cp.async.wait_group of the PTX, removed alone, is caught, most of them with right values.

        Triton may place one that is redundant for this shape, as it does for the second wait of a pipelined loop.
        """
        one, config = TRITON_RUNS[0]
        problem = one.problem(config)
        (kernel,) = TRITON.kernels(config, problem, machine_code=False)
        synchronisation = list(re.finditer(r"\bbar\.sync\s[^;]*;|\bcp\.async\.wait_group[^;]*;", kernel.ptx))
        assert len(synchronisation) >= 6

        def caught(ptx):
            tensors = one.inputs(problem)
            launch = TRITON.launch(config, problem, tensors)
            changed = dataclasses.replace(kernel, ptx=ptx)
            report = sim.launch(changed, launch.grid, launch.block, launch.arguments, checks=True)
            return bool(report.findings) or not one.check(tensors.out).ok

        assert not caught(kernel.ptx)
        missed = [m for m in synchronisation if not caught(kernel.ptx[: m.start()] + kernel.ptx[m.end() :])]
        assert len(missed) <= 1, [kernel.ptx.count("\n", 0, m.start()) + 1 for m in missed]
