"""Every variant on every case, and what the variants declare."""

import dataclasses

import pytest
from fitting import fitted
from sampling import long_if

from workbench import ops
from workbench.attention.ops.paged_attention import CASES, VARIANTS, case
from workbench.errors import ArgumentError, ConfigurationError, UnknownNameError

KERNELS = [variant for variant in VARIANTS if variant.language != "torch"]
HEAD_SIZES = (32, 64, 80, 96, 112, 120, 128, 192, 256)
NAME = {"ids": lambda variant: variant.name}


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
@pytest.mark.parametrize("name", [long_if(name in ("llama-2-7b", "llama-3-70b"), name) for name in CASES])
@pytest.mark.sampled(12)
def test_every_case(variant, name, judge):
    one = fitted(variant, case(name))
    arch = variant.machine_arch(one.problem())
    verdict = judge(variant, variant.default_config(one.problem(arch=arch)), one, arch=arch)
    assert verdict.ok, verdict


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
                if variant.name == "triton_descriptors" and not 16 <= block_size <= 16384 // head_size:
                    continue  # a page is a tile of a product: of few tokens there is none, of many there is no room
                one = fitted(variant, case("small", head_size=head_size, dtype=dtype))
                arch = variant.machine_arch(one.problem())
                problem = dataclasses.replace(one.problem(), block_size=block_size, arch=arch)
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
            except ArgumentError:
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
            problem = dataclasses.replace(problem, arch=variant.machine_arch(problem))
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
        assert not files & {"variant.py", "tensor_checks.py"}
        files = {path.name for path in ops.variant("paged_attention", "triton_descriptors").files}
        assert files >= {"triton_descriptors.py", "triton_grouped.py", "triton_tiles.py", "rules.py"}
        files = {path.name for path in ops.variant("paged_attention", "cuda_partitioned").files}
        assert files >= {"cuda_partitioned.py", "workspace.py", "paged_attention_partitioned.cu", "partitions.cuh"}
        for op in ("copy_blocks", "swap_blocks"):
            files = {path.name for path in ops.variant(op, "cuda_vectors").files}
            assert files >= {"cuda_vectors.py", "rules.py", "problem.py", "copy_blocks_vectors.cu", "copies.cuh"}
        assert {"torch_naive.py", "problem.py"} < {p.name for p in ops.variant("causal_attention", "torch_sdpa").files}

    def test_names(self):
        assert [variant.name for variant in ops.variants("paged_attention")] == [
            "torch",
            "cuda_thread_group",
            "triton_online_softmax",
            "cuda_partitioned",
            "triton_partitioned",
            "cuda_grouped_mma",
            "triton_grouped",
            "triton_descriptors",
            "cuda_scaled_groups",
            "triton_scaled_groups",
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
