"""Launches of the kernels of 2026's attention for all sizes, for `benchmarks.proofs`, beside `benchmarks.own_kernels`.

The kernels are those of the variants with their default configurations, in 16 bits: states of 128 by 128, windows of 8
tokens, 2,048 channels, pages of 64 tokens. States change in place: a sequence's new slot is the one that it had.
"""

from __future__ import annotations

from typing import Any

from benchmarks.own_kernels import OwnKernel
from workbench.attention.ops.conv_step.problem import ConvProblem
from workbench.attention.ops.gated_delta_step.problem import GatedDeltaProblem
from workbench.attention.ops.indexer_scores.problem import IndexerProblem
from workbench.attention.ops.pool_windows.problem import PoolProblem
from workbench.attention.ops.rotate_heads.problem import RotationProblem
from workbench.attention.ops.top_k_positions.problem import TopKProblem

_SLOTS = {"slots": "int32[num_seqs]", "new_slots": "slots"}
_IN_PLACE = {"slots": "-1 <= v < num_slots, distinct or -1"}
_PAGES = {"block_tables": "int32[num_seqs, max_blocks]", "seq_lens": "int32[num_seqs]", "table_stride": "max_blocks"}
_TABLES = {"block_tables": "0 <= v < num_blocks", "seq_lens": "0 <= v <= 64 * max_blocks"}


def _pools(variant: str) -> OwnKernel:
    windows = dict.fromkeys(("values", "gates"), "float16[num_windows, 8, 512]")
    chunks = {"cuda_online": "cdiv(512, {NUM_THREADS} * {VEC_SIZE})", "triton_online": "cdiv(512, {TILE})"}[variant]
    args = {"out": "float16[num_windows, 512]", **windows, "position_bias": "float32[8, 512]"}
    return OwnKernel("pool_windows", variant, PoolProblem(5, 8, 512, "float16"), ("num_windows", chunks), args, ())


def _convolutions(variant: str) -> OwnKernel:
    tile = {"cuda_vectors": "{NUM_THREADS} * {VEC_SIZE}", "triton_vectors": "{TILE}"}[variant]
    rows = dict.fromkeys(("inputs", "output"), "float16[num_seqs, 2048]")
    states = {"states": "float16[num_slots, 3, 2048]", "slot_stride": 3 * 2048}
    return OwnKernel(
        "conv_step", variant, ConvProblem(3, 2048, 4, "float16"), (f"cdiv(2048, {tile})", "num_seqs"),
        {**rows, "weight": "float16[4, 2048]", **states, **_SLOTS}, (_IN_PLACE,),
    )  # fmt: skip


def _deltas(variant: str) -> OwnKernel:
    columns = {"cuda_columns": "cdiv(128, 32 * {VEC_SIZE})", "triton_tile": "cdiv(128, {TILE})"}[variant]
    heads = dict.fromkeys(("value", "output"), "float16[num_seqs, num_key_heads * 2, 128]")
    pairs = dict.fromkeys(("query", "key"), "float16[num_seqs, num_key_heads, 128]")
    numbers = dict.fromkeys(("decay", "beta"), "float32[num_seqs, num_key_heads * 2]")
    states = {
        "states": "float32[num_slots, num_key_heads * 2, 128, 128]", "slot_stride": "num_key_heads * 2 * 128 * 128"
    }  # fmt: skip
    return OwnKernel(
        "gated_delta_step", variant, GatedDeltaProblem(3, 8, 16, 128, 128, "float16"),
        (columns, "num_key_heads * 2", "num_seqs"), {**heads, **pairs, **numbers, **states, **_SLOTS}, (_IN_PLACE,),
    )  # fmt: skip


def _rotations(variant: str) -> OwnKernel:
    tile = {"cuda_butterflies": "{NUM_THREADS} * {VEC_SIZE}", "triton_butterflies": "{TILE}"}[variant]
    args = dict.fromkeys(("heads", "out"), "float16[num_tokens, 1024]")
    return OwnKernel(
        "rotate_heads", variant, RotationProblem(40, 8, 128, 128, "float16"), (f"cdiv(num_tokens * 1024, {tile})",),
        {**args, "num_tokens": "num_tokens", "token_stride": 1024}, (),
    )  # fmt: skip


def _choices() -> OwnKernel:
    args = {"out": "int32[num_seqs, k]", "scores": "float32[num_seqs, max_seq_len]", "seq_lens": "int32[num_seqs]"}
    return OwnKernel(
        "top_k_positions", "cuda_radix", TopKProblem(3, 3000, 2048), ("num_seqs",),
        {**args, "k": "k", "scores_stride": "max_seq_len"}, ({"seq_lens": "0 <= v <= max_seq_len"},),
    )  # fmt: skip


def _scores() -> OwnKernel:
    args: dict[str, Any] = {"out": "float32[num_seqs, max_seq_len]"}
    args |= {"query": "float16[num_seqs, 64, 128]", "weights": "float32[num_seqs, 64]"}
    args |= {"index_cache": "float16[num_blocks, 64, 128]", "page_stride": 64 * 128, "max_seq_len": "max_seq_len"}
    return OwnKernel(
        "indexer_scores", "triton_dot", IndexerProblem(3, 64, 128, 200, "float16"),
        ("cdiv(max_seq_len, {TILE_TOKENS})", "num_seqs"), {**args, **_PAGES}, ("max_blocks < 2**24", _TABLES),
    )  # fmt: skip


OWN_2026: dict[str, OwnKernel] = {
    "pool_windows: CUDA": _pools("cuda_online"),
    "pool_windows: Triton": _pools("triton_online"),
    "conv_step: CUDA": _convolutions("cuda_vectors"),
    "conv_step: Triton": _convolutions("triton_vectors"),
    "gated_delta_step: CUDA": _deltas("cuda_columns"),
    "gated_delta_step: Triton": _deltas("triton_tile"),
    "rotate_heads: CUDA": _rotations("cuda_butterflies"),
    "rotate_heads: Triton": _rotations("triton_butterflies"),
    "top_k_positions: CUDA": _choices(),
    "indexer_scores: Triton": _scores(),
}
"""Launches by the kernel's name in tables."""
