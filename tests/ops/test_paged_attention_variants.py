"""Every variant on every case, at awkward lengths, groups and addresses, and a random sample of configurations."""

import dataclasses
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from fitting import fitted

from workbench import ops
from workbench.errors import ConfigurationError, UnknownNameError
from workbench.ops.paged_attention import CASES, VARIANTS, Case, case

KERNELS = [variant for variant in VARIANTS if variant.language != "torch"]
HEAD_SIZES = (32, 64, 80, 96, 112, 120, 128, 192, 256)
NAME = {"ids": lambda variant: variant.name}


def layout_pairs():
    return [(variant, layout) for variant in KERNELS for layout in variant.layouts]


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
@pytest.mark.parametrize("name", CASES)
def test_every_case(variant, name, judge):
    one = fitted(variant, case(name))
    verdict = judge(variant, variant.default_config(one.problem()), one)
    assert verdict.ok, verdict


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_groups(variant, judge):
    for group in (1, 2, 3, 4, 5, 6, 7, 8, 16):
        one = fitted(variant, Case("groups", 2 * group, 2, 32, (1, 33), dtype="float16", seed=group))
        verdict = judge(variant, variant.default_config(one.problem()), one)
        assert verdict.ok, f"group {group}: {verdict}"


@pytest.mark.parametrize("block_size", [8, 16, 32, 64, 128])
@pytest.mark.parametrize(("variant", "layout"), layout_pairs(), ids=lambda value: getattr(value, "name", value))
def test_lengths_around_a_page(variant, layout, block_size, judge):
    lengths = (0, 1, block_size - 1, block_size, block_size + 1, 3 * block_size + 5)
    one = fitted(variant, Case("edges", 4, 2, 64, lengths, dtype="float32", layout=layout))
    problem = dataclasses.replace(one.problem(), block_size=block_size)
    config = variant.default_config(problem)
    if variant.broken(config, problem):
        assert (variant.name, block_size > 32) == ("cuda_partitioned", True)  # a page is one load of a warp
        return
    verdict = judge(variant, config, one, checks=variant.language == "cuda")
    assert verdict.ok, verdict


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_pages_past_2_to_the_31_elements(variant, sim):
    """Pages 2**30 elements apart in a tensor that is never touched in between: 32-bit arithmetic would miss them."""
    one = fitted(variant, Case("far", 2, 1, 64, (40, 7), dtype="float16"))
    config = variant.default_config(one.problem())
    problem = one.problem(config)
    near = one.inputs(problem)
    apart = 2**30
    tensors = dataclasses.replace(near)
    used = near.block_tables[near.block_tables >= 0].tolist()
    for name in ("key_cache", "value_cache"):
        cache = getattr(near, name)
        page = cache[0].numel()
        storage = torch.empty(apart * (len(used) - 1) + page, dtype=cache.dtype)
        far = storage.as_strided((len(used), *cache.shape[1:]), (apart, *cache.stride()[1:]))
        for index, block in enumerate(used):
            far[index].copy_(cache[block])
        setattr(tensors, name, far)
    assert far.stride(0) * (len(used) - 1) > 2**31
    tables = near.block_tables.clone()
    for index, block in enumerate(used):
        tables[near.block_tables == block] = index
    tensors.block_tables = tables
    variant.run(config, problem, tensors, sim)
    check = one.check(tensors.out)
    assert check.ok, check


def sample(variant, count, seed):
    """Legal configurations on problems of mixed head size, dtype, layout, group and page size."""
    rng, found = random.Random(seed), []
    space = list(variant.all_configurations())
    while len(found) < count:
        kv_heads = rng.choice((1, 2))
        one = Case(
            "sample",
            kv_heads * rng.choice((1, 2, 3, 4, 8)),
            kv_heads,
            rng.choice(HEAD_SIZES),
            (1, 0, 31, 64, 300),
            dtype=rng.choice(variant.dtypes),
            layout=rng.choice(variant.layouts),
            seed=rng.randrange(4),
        )
        config = rng.choice(space)
        if not variant.broken(config, one.problem(config)):
            found.append((one, config))
    return found


def check_sample(variant, judge, count, seed):
    chosen = sample(variant, count, seed)
    with ThreadPoolExecutor(2) as pool:  # the compilers release the GIL
        list(pool.map(lambda pair: variant.compile(pair[1], pair[0].problem(pair[1])), chosen))
    wrong = []
    for one, config in chosen:
        verdict = judge(variant, config, one, checks=variant.language == "cuda")
        if not verdict.ok:
            wrong.append(f"{one.dtype} {one.head_size} {one.layout} {config}: {verdict}")
    assert not wrong, "\n".join(wrong)
    return chosen


def check_whole_space(name, judge, count):
    """A sample in which every value of every tunable occurs."""
    variant = ops.variant("paged_attention", name)
    chosen = check_sample(variant, judge, count, seed=1)
    for tunable, values in variant.space.items():
        assert {config[tunable] for _, config in chosen} == set(values), f"the sample misses some {tunable}"


class TestSampleOfCuda:
    def test_random_legal_configurations(self, judge):
        check_whole_space("cuda_thread_group", judge, 64)

    @pytest.mark.long
    def test_more_of_them(self, judge):
        check_sample(ops.variant("paged_attention", "cuda_thread_group"), judge, 600, seed=2)


class TestSampleOfTriton:
    def test_random_legal_configurations(self, judge):
        check_whole_space("triton_online_softmax", judge, 64)

    @pytest.mark.long
    def test_more_of_them(self, judge):
        check_sample(ops.variant("paged_attention", "triton_online_softmax"), judge, 300, seed=2)


class TestSampleOfPartitioned:
    @pytest.mark.parametrize(("name", "count"), [("cuda_partitioned", 32), ("triton_partitioned", 24)])
    def test_random_legal_configurations(self, name, count, judge):
        check_whole_space(name, judge, count)

    @pytest.mark.long
    @pytest.mark.parametrize("name", ["cuda_partitioned", "triton_partitioned"])
    def test_more_of_them(self, name, judge):
        check_sample(ops.variant("paged_attention", name), judge, 300, seed=2)


class TestSampleOfGrouped:
    @pytest.mark.parametrize(("name", "count"), [("cuda_grouped_mma", 30), ("triton_grouped", 16)])
    def test_random_legal_configurations(self, name, count, judge):
        check_whole_space(name, judge, count)

    @pytest.mark.long
    @pytest.mark.parametrize("name", ["cuda_grouped_mma", "triton_grouped"])
    def test_more_of_them(self, name, judge):
        check_sample(ops.variant("paged_attention", name), judge, 200, seed=2)


class TestDeclarations:
    @pytest.mark.parametrize("variant", KERNELS, **NAME)
    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_defaults_are_legal(self, variant, dtype):
        for head_size in HEAD_SIZES:
            for block_size in (8, 16, 32, 64, 128):
                if dtype == "float32" and head_size * block_size > 128 * 128 and variant.name == "cuda_thread_group":
                    continue  # too many row sums for any configuration: refused by name, below
                if block_size > 32 and variant.name == "cuda_partitioned":
                    continue  # a page is one load of a warp
                one = fitted(variant, case("small", head_size=head_size, dtype=dtype))
                problem = dataclasses.replace(one.problem(), block_size=block_size)
                variant.check(variant.default_config(problem), problem)

    def test_each_rule_is_named(self):
        cuda = ops.variant("paged_attention", "cuda_thread_group")
        good = {"BLOCK_SIZE": 16, "THREAD_GROUP_SIZE": 2, "VEC_SIZE": 8, "V_VEC_SIZE": 8, "NUM_THREADS": 128}
        broken = {
            "page size": ({}, {"block_size": 32}),
            "groups divide a warp": ({"THREAD_GROUP_SIZE": 3}, {}),
            "a warp stays in its page": ({"THREAD_GROUP_SIZE": 1}, {}),
            "whole key vectors": ({"THREAD_GROUP_SIZE": 16}, {}),
            "a vector keeps to its x group": ({"VEC_SIZE": 8}, {"dtype": "float32"}),
            "16-byte key loads": ({"VEC_SIZE": 8}, {"dtype": "float32"}),
            "16-byte value loads": ({"V_VEC_SIZE": 8}, {"dtype": "float32"}),
            "a warp reads whole value rows": ({"BLOCK_SIZE": 64, "V_VEC_SIZE": 1}, {}),
            "threads per block": ({"NUM_THREADS": 2048}, {}),
            "registers": ({"BLOCK_SIZE": 32, "V_VEC_SIZE": 1, "NUM_THREADS": 512}, {"head_size": 256}),
            "shared memory": ({}, {"max_seq_len": 50_000}),
            "grid": ({}, {"num_seqs": 70_000}),
            "layout": ({}, {"layout": "nhd"}),
            "dtype": ({}, {"dtype": "float64"}),
            "features": ({}, {"features": ("alibi",)}),
        }
        base = case("small").problem()
        assert not cuda.broken(good, base)
        assert set(broken) == {rule.name for rule in cuda.restrictions} | {"layout", "dtype", "features"}
        for name, (changes, sizes) in broken.items():
            config = {**good, **changes}
            problem = dataclasses.replace(base, **sizes)
            try:
                names = {rule.name for rule in cuda.broken(config, problem)}
            except KeyError:
                names = {"dtype"}  # a dtype that does not exist has no size for the other rules
            assert name in names
        with pytest.raises(ConfigurationError, match="a warp stays in its page: BLOCK_SIZE %"):
            cuda.check({**good, "THREAD_GROUP_SIZE": 1}, base)

    def test_shared_memory_follows_the_architecture(self):
        cuda = ops.variant("paged_attention", "cuda_thread_group")
        problem = dataclasses.replace(case("small").problem(), max_seq_len=50_000)
        config = cuda.default_config(problem)
        assert [rule.name for rule in cuda.broken(config, problem)] == ["shared memory"]
        assert not cuda.broken(config, dataclasses.replace(problem, arch="sm_90"))

    def test_unknown_and_missing_tunables(self):
        cuda = ops.variant("paged_attention", "cuda_thread_group")
        config = cuda.default_config(case("small").problem())
        with pytest.raises(ConfigurationError, match="WARPS"):
            cuda.check({**config, "WARPS": 4}, case("small").problem())
        for wrong in (0, -8, 2.0, "8", True):
            with pytest.raises(ConfigurationError, match=r"VEC_SIZE=.*above 0"):
                cuda.check({**config, "VEC_SIZE": wrong}, case("small").problem())
        config.pop("VEC_SIZE")
        with pytest.raises(ConfigurationError, match=r"missing.*VEC_SIZE"):
            cuda.check(config, case("small").problem())

    def test_configurations_are_the_legal_ones_in_order(self):
        for variant in KERNELS:
            problem = dataclasses.replace(fitted(variant, case("small")).problem(), block_size=32)
            legal = variant.configurations(problem)
            assert legal == [c for c in variant.all_configurations() if not variant.broken(c, problem)]
            assert {config["BLOCK_SIZE"] for config in legal} == {32}
            assert len(legal) >= 12

    def test_source_hash_covers_kernel_header_and_declaration(self, tmp_path):
        cuda = ops.variant("paged_attention", "cuda_thread_group")
        text = cuda.source.read_text()
        hashes = {cuda.source_hash}
        for change in ("", "\n// changed\n"):
            copy = tmp_path / cuda.source.name
            copy.write_text(text + change)
            hashes.add(dataclasses.replace(cuda, source=copy).source_hash)
        assert len(hashes) == 2, "only the text counts, not the folder"
        header = tmp_path / "common" / "vectors.cuh"
        header.parent.mkdir()
        header.write_text("// another\n")
        hashes.add(dataclasses.replace(cuda, source=copy).source_hash)
        assert len(hashes) == 3

    def test_source_hash_covers_what_variants_share(self):
        files = {path.name for path in ops.variant("paged_attention", "triton_grouped").files}
        assert files >= {"triton_grouped.py", "triton_tiles.py", "triton_reduction.py", "workspace.py", "rules.py"}
        files = {path.name for path in ops.variant("paged_attention", "cuda_partitioned").files}
        assert files >= {"cuda_partitioned.py", "workspace.py", "paged_attention_partitioned.cu", "partitions.cuh"}

    def test_names(self):
        assert [variant.name for variant in ops.variants("paged_attention")] == [
            "torch",
            "cuda_thread_group",
            "triton_online_softmax",
            "cuda_partitioned",
            "triton_partitioned",
            "cuda_grouped_mma",
            "triton_grouped",
        ]
        with pytest.raises(UnknownNameError, match="cuda_thread_group"):
            ops.variant("paged_attention", "cuda_tread_group")
        with pytest.raises(UnknownNameError, match="paged_attention"):
            ops.variants("attention")

    def test_compile_by_name(self):
        kernel = ops.compile("paged_attention", variant="cuda_thread_group", arch="sm_90")
        assert kernel.arch == "sm_90"
        assert kernel.occupancy.blocks_per_sm > 0
        config = {"BLOCK_SIZE": 32, "TILE_TOKENS": 32, "num_warps": 2, "num_stages": 1}
        kernel = ops.compile("paged_attention", variant="triton_online_softmax", config=config, case="llama-3-8b")
        assert kernel.threads_per_block == 64
        with pytest.raises(ConfigurationError):
            ops.compile("paged_attention", variant="torch")
