"""Settings for mutants of the built-in kernels: small configurations of each variant, and cases that fill the edges."""

from __future__ import annotations

import dataclasses

from mutants.ptx import Setting, judge_of
from workbench import ops
from workbench.attention.ops.causal_attention import CausalAttentionCase
from workbench.attention.ops.causal_attention_backward import CausalAttentionBackwardCase
from workbench.attention.ops.contiguous_attention import ContiguousAttentionCase
from workbench.attention.ops.conv_step import ConvCase
from workbench.attention.ops.copy_blocks import case as copied
from workbench.attention.ops.gated_delta_step import GatedDeltaCase
from workbench.attention.ops.gather_cache import case as gathered
from workbench.attention.ops.indexer_scores import IndexerCase
from workbench.attention.ops.mla_decode import MlaDecodeCase
from workbench.attention.ops.paged_attention import case
from workbench.attention.ops.paged_prefill import PagedPrefillCase
from workbench.attention.ops.pool_windows import PoolCase
from workbench.attention.ops.reshape_and_cache import case as written
from workbench.attention.ops.rotate_heads import RotationCase
from workbench.attention.ops.swap_blocks import case as swapped
from workbench.attention.ops.top_k_positions import TopKCase

FEATURES = {"alibi": True, "sliding_window": 150, "soft_cap": 20.0, "sinks": True}
THREAD_GROUP = {"BLOCK_SIZE": 16, "THREAD_GROUP_SIZE": 2, "VEC_SIZE": 4, "V_VEC_SIZE": 8, "NUM_THREADS": 128}
ONLINE = {"BLOCK_SIZE": 16, "TILE_TOKENS": 32, "num_warps": 2, "num_stages": 2}
PARTITIONED = {"BLOCK_SIZE": 16, "PARTITION_SIZE": 128, "NUM_THREADS": 64}
TRITON_PARTITIONED = {"BLOCK_SIZE": 16, "TILE_TOKENS": 32, "PARTITION_SIZE": 128, "num_warps": 2, "num_stages": 2}
GROUPED = {**PARTITIONED, "TILE_TOKENS": 16, "NUM_STAGES": 3}
DESCRIPTORS = {"BLOCK_SIZE": 16, "TILE_TOKENS": 16, "PARTITION_SIZE": 128, "num_warps": 2, "num_stages": 3}


def of_cases(op, name, setting, config, *cases, arch="sm_80"):
    """Return the setting of a variant in one configuration, on cases that compile to the PTX of the first."""
    variant = ops.variant(op, name)
    return Setting(str(variant), setting, tuple(judge_of(variant, config, one) for one in cases), arch)


def paged(name, setting, config, *fields, arch="sm_80"):
    """Return a setting of paged attention, whose cases are "small" with other fields."""
    cases = (case("small", **({"seq_lens": (1, 17, 0, 300)} | one)) for one in fields)
    return of_cases("paged_attention", name, setting, config, *cases, arch=arch)


def _paged():
    lengths = {"seq_lens": (1, 129, 0, 300)}
    yield paged("cuda_thread_group", "e5m2 by token",
                {"BLOCK_SIZE": 32, "THREAD_GROUP_SIZE": 4, "VEC_SIZE": 4, "V_VEC_SIZE": 2, "NUM_THREADS": 64},
                {"kv_cache_dtype": "fp8_e5m2", "scales": "token", "dtype": "bfloat16"})  # fmt: skip
    yield paged("cuda_thread_group", "fp16", THREAD_GROUP, {})
    yield paged("cuda_thread_group", "large scores",
                {"BLOCK_SIZE": 8, "THREAD_GROUP_SIZE": 8, "VEC_SIZE": 4, "V_VEC_SIZE": 2, "NUM_THREADS": 64},
                {"family": "large_scores", "dtype": "float32"})  # fmt: skip
    yield paged("cuda_thread_group", "int8", {**THREAD_GROUP, "VEC_SIZE": 8, "NUM_THREADS": 64},
                {"kv_cache_dtype": "int8"})  # fmt: skip
    yield paged("cuda_thread_group", "e4m3", {**THREAD_GROUP, "VEC_SIZE": 2, "NUM_THREADS": 64},
                {"kv_cache_dtype": "fp8_e4m3"})  # fmt: skip
    yield paged("triton_online_softmax", "fp16", ONLINE, {})
    yield paged("triton_online_softmax", "large scores",
                {"BLOCK_SIZE": 64, "TILE_TOKENS": 16, "num_warps": 2, "num_stages": 1},
                {"family": "large_scores", "dtype": "float32", "layout": "nhd"})  # fmt: skip
    yield paged("triton_online_softmax", "int8", ONLINE, {"kv_cache_dtype": "int8"})
    yield paged("triton_online_softmax", "e5m2 by token", {**ONLINE, "BLOCK_SIZE": 32, "TILE_TOKENS": 16},
                {"kv_cache_dtype": "fp8_e5m2", "scales": "token", "dtype": "bfloat16"})  # fmt: skip
    for name, config in (("cuda_partitioned", PARTITIONED), ("triton_partitioned", TRITON_PARTITIONED)):
        yield paged(name, "int8 and features", config, {**lengths, **FEATURES, "kv_cache_dtype": "int8"})
        yield paged(name, "fp16", config, lengths)
        yield paged(name, "int8 by token", config, {**lengths, "kv_cache_dtype": "int8", "scales": "token"})
    for name, config in (("cuda_grouped_mma", GROUPED), ("triton_grouped", TRITON_PARTITIONED)):
        one = {**lengths, "head_size": 32, "layout": "nhd"}
        by_token = {"kv_cache_dtype": "fp8_e4m3", "scales": "token", "dtype": "bfloat16"}
        yield paged(name, "int8", config, {**one, "kv_cache_dtype": "int8"})
        yield paged(name, "fp16", config, one)
        yield paged(name, "features", config, {**one, **FEATURES, "num_heads": 12})
        yield paged(name, "window", config, {**one, "sliding_window": 3})
        yield paged(name, "e4m3 by token", {**config, "BLOCK_SIZE": 8}, {**one, **by_token})
        yield paged(name, "e4m3 by token on Hopper", {**config, "BLOCK_SIZE": 8}, {**one, **by_token}, arch="sm_90")
    for name, config, heads in (
        ("cuda_partitioned", PARTITIONED, 2),
        ("triton_partitioned", TRITON_PARTITIONED, 2),
        ("cuda_grouped_mma", GROUPED, 10),
        ("triton_grouped", TRITON_PARTITIONED, 10),
    ):
        many = {"seq_lens": (34 * 128 + 5,), "num_heads": heads, "num_kv_heads": 1, "head_size": 128, "sinks": True}
        yield paged(name, "many partitions", config, {**many, "layout": "nhd" if "grouped" in name else "x"})
    for name, config in (
        ("cuda_scaled_groups", {**PARTITIONED, "TOKENS_IN_FLIGHT": 2}),
        ("triton_scaled_groups", TRITON_PARTITIONED),
    ):
        one = {**lengths, "kv_cache_dtype": "nvfp4", "layout": "nhd"}
        yield paged(name, "nvfp4", config, one)
        yield paged(name, "nvfp4 and features", config, {**one, **FEATURES, "layout": "hnd", "head_size": 80})
        yield paged(name, "nvfp4 on Blackwell", config, {**one, "dtype": "bfloat16"}, arch="sm_100")
    yield paged("triton_descriptors", "fp16", DESCRIPTORS, {**lengths, "layout": "nhd"}, arch="sm_90")


def _contiguous():
    own = {"cuda_register_softmax": {"HEADS_PER_BLOCK": 2, "THREAD_GROUP_SIZE": 4, "VEC_SIZE": 4, "TOKENS_IN_FLIGHT": 2,
                                     "NUM_THREADS": 64},
           "triton_online_softmax": {"TILE_TOKENS": 16, "num_warps": 2, "num_stages": 1}}  # fmt: skip
    for name, config in own.items():
        one = ContiguousAttentionCase("small", num_heads=8, num_kv_heads=2, head_size=64, seq_lens=(1, 17, 0, 70))
        large = dataclasses.replace(one, family="large_scores", dtype="float32")
        yield of_cases("contiguous_attention", name, "fp16", config, one)
        yield of_cases("contiguous_attention", name, "large scores", config, large)


def _latent():
    shared = {"HEADS_PER_BLOCK": 16, "BLOCK_SIZE": 16, "PARTITION_SIZE": 64, "TILE_TOKENS": 16}
    own = {"cuda_latent_mma": {"NUM_STAGES": 2, "NUM_THREADS": 64}, "triton_latent": {"num_warps": 4, "num_stages": 2}}
    for name, config in own.items():
        one = MlaDecodeCase("small", 19, 64, 32, (1, 17, 0, 130), nope_size=32)
        large = dataclasses.replace(one, family="large_scores", dtype="float16")
        yield of_cases("mla_decode", name, "bf16", shared | config, one)
        yield of_cases("mla_decode", name, "large scores", shared | config, large)
        codes = MlaDecodeCase("small", 5, 512, 64, (1, 17, 0, 70), kv_cache_dtype="fp8_ds_mla")
        yield of_cases(
            "mla_decode", name, "fp8", shared | config | ({"NUM_THREADS": 128} if "cuda" in name else {}), codes
        )
    hopper = {"CLUSTER_BLOCKS": 2, "BLOCK_SIZE": 16, "PARTITION_SIZE": 64, "TILE_TOKENS": 32, "NUM_STAGES": 2}
    one = MlaDecodeCase("small", 70, 128, 32, (1, 17, 0, 130), nope_size=32)
    for name, case_of_it in {
        "bf16": one,
        "large scores": dataclasses.replace(one, family="large_scores", dtype="float16"),
        "fp8": dataclasses.replace(codes, num_heads=70),
    }.items():
        yield of_cases("mla_decode", "cuda_latent_wgmma", name, hopper, case_of_it, arch="sm_90")


def _prefill():
    shared = {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_SIZE": 16}
    own = {
        "cuda_packed_mma": {"NUM_STAGES": 2, "NUM_THREADS": 64},
        "triton_packed": {"num_warps": 2, "num_stages": 2},
    }
    for name, config in own.items():
        one = PagedPrefillCase("small", 6, 2, 32, query_lens=(1, 17, 0, 30), seq_lens=(1, 40, 5, 30))
        large = dataclasses.replace(one, family="large_scores")
        yield of_cases("paged_prefill", name, "fp16", shared | config, one, large)
        rest = {"sliding_window": 20, "soft_cap": 20.0, "sinks": True, "dtype": "bfloat16", "layout": "hnd"}
        yield of_cases("paged_prefill", name, "features", shared | config, dataclasses.replace(one, **rest))
        tree = dataclasses.replace(one, tree=True, sliding_window=12, seq_lens=(50, 17, 5, 70))
        yield of_cases("paged_prefill", name, "drafts", shared | config, tree)


def _choices():
    one = TopKCase("small", k=70, seq_lens=(300, 70, 3, 131), family="ties")
    for name, config in {
        "cuda_radix": {"NUM_THREADS": 128},
        "triton_bits": {"TILE": 128, "num_warps": 1, "num_stages": 1},
    }.items():
        yield of_cases("top_k_positions", name, "ties", config, one)
    for name, config in {
        "cuda_online": {"NUM_THREADS": 32, "VEC_SIZE": 2},
        "triton_online": {"TILE": 64, "num_warps": 1, "num_stages": 1},
    }.items():
        for family in ("first", "large"):
            yield of_cases("pool_windows", name, family, config, PoolCase("small", 3, 6, 90, family=family))
    for name, config in {
        "cuda_columns": {"NUM_THREADS": 64, "VEC_SIZE": 2},
        "triton_tile": {"TILE": 16, "num_warps": 1, "num_stages": 1},
    }.items():
        for by_row in (False, True):
            one = GatedDeltaCase("small", 5, 1, 2, 16, 40, by_row, "float16")
            yield of_cases("gated_delta_step", name, "a decay a row" if by_row else "a decay", config, one)
    for name, config in {
        "cuda_vectors": {"NUM_THREADS": 32, "VEC_SIZE": 2},
        "triton_vectors": {"TILE": 64, "num_warps": 1, "num_stages": 1},
    }.items():
        yield of_cases("conv_step", name, "bf16", config, ConvCase("small", 6, 96))
    for name, config in {
        "cuda_butterflies": {"NUM_THREADS": 32, "VEC_SIZE": 4},
        "triton_butterflies": {"TILE": 128, "num_warps": 1, "num_stages": 1},
    }.items():
        yield of_cases("rotate_heads", name, "bf16", config, RotationCase("small", 5, 3, 80, 16))
    shared = {"BLOCK_SIZE": 16, "TILE_TOKENS": 32}
    for name, own in {"cuda_mma": {"NUM_THREADS": 32}, "triton_dot": {"num_warps": 1, "num_stages": 1}}.items():
        for dtype in ("bfloat16", "float8_e4m3fn"):
            one = IndexerCase("small", 19, 32, (1, 33, 0, 70), dtype)
            yield of_cases("indexer_scores", name, dtype, shared | own, one)


LENGTHS = {"num_seqs": 2, "num_queries": 40, "query_lens": (40, 1), "seq_lens": (90, 70)}
CAUSAL = {
    "lengths": (4, 2, 32, 90, {**LENGTHS, "dtype": "float16"}),
    "all": (4, 2, 40, 70, {"num_seqs": 1, "num_queries": 40, "dtype": "bfloat16"}),
}
HOPPER = {
    "lengths": (1, 1, 64, 200, {"num_seqs": 2, "num_queries": 130, "query_lens": (130, 1), "seq_lens": (200, 70),
                                "dtype": "float16"}),
    "all": (1, 1, 128, 210, {"num_seqs": 1, "num_queries": 140, "dtype": "bfloat16"}),
}  # fmt: skip


def _causal():
    cuda = {"BLOCK_M": 32, "BLOCK_N": 32, "NUM_STAGES": 3, "NUM_THREADS": 64}
    triton = {"BLOCK_M": 32, "BLOCK_N": 32, "num_warps": 2, "num_stages": 2}
    descriptors = {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4, "num_stages": 2}
    wgmma = {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 2}
    tcgen05 = {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 2, "RESCALE_ABOVE": 0}
    for op, name, kind, sizes, config, arch in (
        ("causal_attention", "cuda_mma", CausalAttentionCase, CAUSAL, cuda, "sm_80"),
        ("causal_attention", "triton_flash", CausalAttentionCase, CAUSAL, triton, "sm_80"),
        ("causal_attention", "triton_descriptors", CausalAttentionCase, CAUSAL, descriptors, "sm_90"),
        ("causal_attention", "cuda_wgmma", CausalAttentionCase, HOPPER, wgmma, "sm_90"),
        ("causal_attention", "cuda_tcgen05", CausalAttentionCase, HOPPER, tcgen05, "sm_100"),
        ("causal_attention_backward", "triton_flash", CausalAttentionBackwardCase, CAUSAL, triton, "sm_80"),
    ):
        for setting, (*size, fields) in sizes.items():
            cases = (kind(setting, *size, **(fields | {"lse": lse})) for lse in (True, False))
            yield of_cases(op, name, setting, config, *cases, arch=arch)


def _caches():
    for op, cases, names in (
        ("reshape_and_cache", written, ("int8", "small", "nhd", "fp8", "nvfp4")),
        ("gather_cache", gathered, ("int8", "small", "nhd", "fp8", "nvfp4")),
        ("copy_blocks", copied, ("small",)),
        ("swap_blocks", swapped, ("small",)),
    ):
        for variant in ops.get(op).variants:
            for name in names if variant.compiles else ():
                one = cases(name)
                problem = one.problem()
                if not variant.unsupported(problem):
                    arch = "sm_90" if name == "fp8" else "sm_80"
                    yield of_cases(op, variant.name, name, variant.default_config(problem), one, arch=arch)


SETTINGS = (*_paged(), *_contiguous(), *_latent(), *_prefill(), *_choices(), *_causal(), *_caches())
