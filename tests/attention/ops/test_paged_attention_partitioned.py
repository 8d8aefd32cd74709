"""The kernels that split the sequence: features, quantized caches, and what the split does."""

import pytest
import torch
from declarations import assert_rules
from sampling import long_if
from test_paged_attention_grouped import FEATURES as OF_SCORES
from test_paged_attention_grouped import LENGTHS

from workbench import ops
from workbench.attention.ops.paged_attention import case
from workbench.attention.ops.paged_attention.rules import partition_size
from workbench.launch.sim import Simulator

VARIANT = ops.variant("paged_attention", "cuda_partitioned")
TRITON = ops.variant("paged_attention", "triton_partitioned")
UNSPLIT = [ops.variant("paged_attention", name) for name in ("cuda_thread_group", "triton_online_softmax")]
SMALL = {"BLOCK_SIZE": 16, "PARTITION_SIZE": 128, "NUM_THREADS": 64}
TRITON_SMALL = {"BLOCK_SIZE": 16, "TILE_TOKENS": 32, "PARTITION_SIZE": 128, "num_warps": 2, "num_stages": 2}

FEATURES = {
    **OF_SCORES,
    "int8": {"kv_cache_dtype": "int8"},
    "fp8_e4m3": {"kv_cache_dtype": "fp8_e4m3"},
    "fp8_e5m2": {"kv_cache_dtype": "fp8_e5m2"},
    "a scale per token": {"kv_cache_dtype": "fp8_e5m2", "scales": "token"},
    "a scale per token and all of them": {
        "kv_cache_dtype": "int8",
        "scales": "token",
        **OF_SCORES["all of them"],
    },
    "fp8_e4m3 and all of them": {
        "kv_cache_dtype": "fp8_e4m3",
        **OF_SCORES["all of them"],
    },
}


def sampled(names):
    """What comes together in every run, what comes alone with ``-m long``: the grid has each with each."""
    return [long_if(" " not in name, name) for name in names]


@pytest.mark.parametrize("name", sampled(FEATURES))
def test_features_in_cuda(name, judge):
    dtype = VARIANT.dtypes[len(name) % 3]
    one = case("small", dtype=dtype, seq_lens=LENGTHS, **FEATURES[name])
    verdict = judge(VARIANT, SMALL, one, checks=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize("name", sampled(name for name in FEATURES if "e4m3" not in name))
@pytest.mark.sampled(4)
def test_features_in_triton(name, judge):
    layout = TRITON.layouts[len(name) % 3]
    one = case("small", layout=layout, seq_lens=LENGTHS, **FEATURES[name])
    verdict = judge(TRITON, TRITON_SMALL, one, checks=True)
    assert verdict.ok, verdict


def test_triton_has_fp8_e4m3_from_sm_89_on():
    for variant in (TRITON, UNSPLIT[1]):
        problem = case("small", kv_cache_dtype="fp8_e4m3").problem()
        assert [rule.name for rule in variant.broken(variant.default_config(problem), problem)] == ["fp8_e4m3"]
    one = case("small", seq_lens=(1, 128, 300), **FEATURES["fp8_e4m3 and all of them"])
    problem = one.problem(TRITON_SMALL, arch="sm_89")
    tensors = one.inputs(problem)
    TRITON.run(TRITON_SMALL, problem, tensors, Simulator(arch="sm_89"))
    check = one.check(tensors.out)
    assert check.ok, check


@pytest.mark.parametrize("variant", [VARIANT, TRITON, *UNSPLIT], ids=lambda variant: variant.name)
def test_one_scale_for_the_whole_tensor_or_none(variant, sim):
    """A quantized cache with a scale per tensor, per KV head, or none: the same kernel, told by a stride."""
    one = case("small", seq_lens=(40, 129), kv_cache_dtype="int8")
    config = {VARIANT: SMALL, TRITON: TRITON_SMALL}.get(variant) or variant.default_config(one.problem())
    problem = one.problem(config)
    results = []
    for scale in (None, torch.ones(1), torch.ones(2), torch.full((1,), 2.0), torch.full((2,), 2.0)):
        tensors = one.inputs(problem)
        tensors.query.zero_()  # all weights alike: the answer is the mean of V, times its scale
        tensors.k_scale = tensors.v_scale = scale
        variant.run(config, problem, tensors, sim)
        results.append(tensors.out.double())
    none, tensor, head, tensor_2, head_2 = results
    assert torch.equal(none, tensor)
    assert torch.equal(none, head)
    assert torch.equal(tensor_2, head_2)
    assert torch.allclose(tensor_2, 2 * none, rtol=2e-3)


def loads_of_the_cache(report):
    """The lines of 16-byte loads that go past coherence: what nobody writes. Partial results are no such thing."""
    return [line for line in report.lines if line.space == "global" and ".nc." in line.text and ".v4" in line.text]


def launches_of(one, config):
    problem = one.problem(config)
    return VARIANT.launches(config, problem, one.inputs(problem))


class TestTheSplit:
    def test_one_long_sequence_fills_the_gpu(self):
        """A batch of one has as many blocks as query heads without the split: 32 for 108 multiprocessors."""
        one = case("llama-3-8b", context=8192, num_seqs=1)
        problem = one.problem()
        size = VARIANT.default_config(problem)["PARTITION_SIZE"]
        blocks = problem.num_heads * -(-problem.max_seq_len // size)
        assert blocks >= 4 * 108 > problem.num_heads
        # A batch that fills it anyway keeps the longest partitions, and so the fewest partial results.
        many = case("llama-3-8b", context=8192, num_seqs=64)
        assert VARIANT.default_config(many.problem())["PARTITION_SIZE"] == max(VARIANT.space["PARTITION_SIZE"])

    def test_no_block_has_more_than_a_partition(self, sim):
        """However uneven the lengths are: the longest-running block of a batch reads one partition of K and V."""
        one = case("small", seq_lens=(700, 3, 40), num_heads=2, num_kv_heads=1)
        problem = one.problem(SMALL)
        report = VARIANT.run(SMALL, problem, one.inputs(problem), sim, statistics=True)
        assert report.grid == (2, 3, -(-700 // 128))
        # Six partitions of the long sequence and one of each short one; the other blocks end after a few instructions.
        wide = loads_of_the_cache(report)
        pages = sum(-(-length // 16) for length in (700, 3, 40))
        assert sum(line.requests for line in wide) == 2 * pages * (4 + 4)  # 64 fp16 = 4 requests a page for K, 4 for V

    def test_partition_size_prefers_long_partitions_that_fill_the_gpu(self):
        problem = case("llama-3-8b", context=4096, num_seqs=1).problem()
        sizes = (128, 256, 512, 1024)
        assert partition_size(problem, sizes, blocks_per_multiprocessor=1) == 1024
        assert partition_size(problem, sizes, blocks_per_multiprocessor=4) == 256
        assert partition_size(problem, sizes, blocks_per_multiprocessor=100) == 128

    def test_partial_results_are_fp32_and_small(self, sim):
        """What the split costs: 4 * (head_size + 2) bytes per head and partition, written once and read once."""
        one = case("llama-3-8b", context=512, num_seqs=1)
        config = {"BLOCK_SIZE": 16, "PARTITION_SIZE": 128, "NUM_THREADS": 128}
        problem = one.problem(config)
        report = VARIANT.run(config, problem, one.inputs(problem), sim, statistics=True)
        partials = 4 * 32 * 4 * (128 + 2)
        counters, output = 4 * 32, 2 * 32 * 128
        assert report.unique_bytes_written == partials + counters + output
        minimum = one.minimum_bytes(problem)
        moved = report.unique_bytes_read + report.unique_bytes_written
        assert minimum <= moved - 2 * partials <= 1.02 * minimum

    def test_every_load_of_the_cache_is_512_bytes_in_a_row(self, sim):
        one = case("llama-3-8b", context=256, num_seqs=1)
        config = {"BLOCK_SIZE": 16, "PARTITION_SIZE": 128, "NUM_THREADS": 128}
        problem = one.problem(config)
        report = VARIANT.run(config, problem, one.inputs(problem), sim, statistics=True)
        wide = loads_of_the_cache(report)
        assert {line.sectors / line.requests for line in wide} == {16.0}
        assert sum(line.bytes for line in wide) > 0.99 * 2 * 32 * 256 * 128 * 2

    def test_a_sequence_of_no_tokens_runs_no_partition(self, judge):
        one = case("small", seq_lens=(0, 0))
        assert judge(VARIANT, SMALL, one, checks=True).ok
        assert launches_of(one, SMALL)[0].grid[2] == 1

    def test_shared_memory_does_not_grow_with_the_sequence(self):
        short, long = (case("llama-3-8b", context=context, num_seqs=1) for context in (256, 131_072))
        config = VARIANT.default_config(short.problem())
        for one in (short, long):
            assert VARIANT.compile(config, one.problem(config)).shared_bytes == 4 * (128 * 5 + 4 * (16 + 2)) + 32
        assert not VARIANT.broken(config, long.problem(config))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "fp8_e4m3", "int8"])
@pytest.mark.sampled(3)
def test_no_spills_and_wide_loads(arch, kv_cache_dtype):
    one = case("llama-3-8b", kv_cache_dtype=kv_cache_dtype)
    config = VARIANT.default_config(one.problem())
    kernel = VARIANT.compile(config, one.problem(config, arch=arch), arch)
    assert kernel.spill_bytes == 0
    assert kernel.registers <= 128
    itemsize = 1 if kv_cache_dtype != "auto" else 2
    assert kernel.sass.count("LDG.E.128") >= 2 * 128 * itemsize // 32  # 16 bytes of K and of V, per lane and page


def test_each_rule_is_named():
    base = case("small").problem()
    broken = {
        "page size": ({}, {"block_size": 32}),
        "a page is one load of a warp": ({"BLOCK_SIZE": 64}, {}),
        "whole pages": ({"PARTITION_SIZE": 100}, {}),
        "whole 16-byte steps": ({}, {"head_size": 36}),
        "threads per block": ({"NUM_THREADS": 48}, {}),
        "shared memory": ({"NUM_THREADS": 1024}, {"head_size": 512}),
        "partitions": ({}, {"max_seq_len": 128 * 70_000}),
        "grid": ({}, {"num_seqs": 70_000}),
    }
    assert_rules(VARIANT, SMALL, base, broken)
