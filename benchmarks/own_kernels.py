"""Launches of the running example's kernels for all sizes, for `benchmarks.proofs`: arguments, grids and facts.

The kernels are those of the variants with their default configurations, in float16: heads of 128, pages of 16 tokens.
Caches are of float16 as well, or of int8 with a scale for each token and head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from workbench.attention.ops.contiguous_attention.problem import ContiguousAttentionProblem
from workbench.attention.ops.copy_blocks.problem import CopyBlocksProblem
from workbench.attention.ops.gather_cache.problem import GatherCacheProblem
from workbench.attention.ops.paged_attention.problem import PagedAttentionProblem
from workbench.attention.ops.reshape_and_cache.problem import ReshapeAndCacheProblem
from workbench.proof.family import Family


@dataclass(frozen=True)
class OwnKernel:
    """A variant of an op with its launch; formulas of the grid name tunables of its default, beside ``config``."""

    op: str
    variant: str
    problem: Any
    grid: tuple[str, ...]
    args: Mapping[str, Any]
    facts: tuple[Any, ...]
    shared_bytes: str | int = 0
    config: Mapping[str, int] = field(default_factory=dict)

    def family(self, facts: tuple[Any, ...] | None = None) -> Family:
        """Return the launches of the compiled kernel, with other facts if they are given."""
        module = import_module(f"workbench.attention.ops.{self.op}.{self.variant}")
        variant = module.variant(self.op) if hasattr(module, "variant") else module.VARIANT
        config = variant.default_config(self.problem) | dict(self.config)
        kernel = variant.kernels(config, self.problem, "sm_80", machine_code=False)[0]
        grid = tuple(one.format(**config) for one in self.grid)
        block = None if variant.language == "triton" else config["NUM_THREADS"]
        args = {name: one for name, one in self.args.items() if name in kernel.parameter_names}
        return Family(kernel, grid, block, args, self.facts if facts is None else facts, self.shared_bytes)


_PAGE = {
    "x": ("[num_blocks, num_kv_heads, 16, 16, 8]", "[num_blocks, num_kv_heads, 128, 16]"),
    "nhd": ("[num_blocks, 16, num_kv_heads, 128]",) * 2,
    "hnd": ("[num_blocks, num_kv_heads, 16, 128]",) * 2,
}
_NO_SCALES = dict.fromkeys(("k_scale", "v_scale")) | dict.fromkeys(
    ("k_slot_stride", "k_head_stride", "v_slot_stride", "v_head_stride"), 0
)


def _caches(layout: str, dtype: str) -> dict[str, Any]:
    keys, values = _PAGE[layout]
    strides = dict.fromkeys(("key_page_stride", "value_page_stride"), "num_kv_heads * 2048")
    return {"key_cache": dtype + keys, "value_cache": dtype + values, **strides, **_NO_SCALES}


def _with_scales(own: OwnKernel, layout: str) -> OwnKernel:
    """Return the launch of a kernel with a cache of int8 that has a scale for each token and head."""
    keys = {"x": "[num_blocks, num_kv_heads, 8, 16, 16]"}.get(layout, _PAGE[layout][0])
    args = {name: one.replace("int16", "float16") if isinstance(one, str) else one for name, one in own.args.items()}
    args |= {"key_cache": "int8" + keys, "value_cache": "int8" + _PAGE[layout][1]}
    args |= dict.fromkeys(("k_scale", "v_scale"), "float32[num_blocks * 16, num_kv_heads]")
    args |= dict.fromkeys(("k_slot_stride", "v_slot_stride"), "num_kv_heads")
    args |= dict.fromkeys(("k_head_stride", "v_head_stride"), 1)
    features = ("int8", "token_scales") if own.op == "paged_attention" else ("int8",)
    return replace(own, problem=replace(own.problem, kv_cache_dtype="int8", features=features), args=args)


def _copies(op: str, variant: str) -> OwnKernel:
    cuda = variant.startswith("cuda")
    cache = f"{'uint8' if cuda else 'int32'}[num_caches, num_blocks, page_steps, {16 if cuda else 4}]"
    facts = ["page_steps < 2**26"] if cuda else ["page_steps == 4096"]
    places = "v == i * num_blocks * page_steps"
    return OwnKernel(
        "copy_blocks", variant, CopyBlocksProblem(3, 2, 65536),
        ("num_pairs", "num_caches", "cdiv(page_steps * 16, 8192)"),
        {
            "sources": cache, "targets": cache if op == "swap_blocks" else "sources",
            "source_places": "int64[num_caches]", "target_places": "int64[num_caches]",
            "pairs": "int64[num_pairs, 2]", "source_page_steps": "page_steps",
            "target_page_steps": "page_steps", "page_bytes": "page_steps * 16",
        },
        (
            *facts,
            {"pairs": "0 <= v < num_blocks, distinct", "source_places": places, "target_places": places},
        ),
    )  # fmt: skip


def _writes(variant: str, layout: str) -> OwnKernel:
    rows = dict.fromkeys(("key", "value"), "int16[num_tokens, num_kv_heads, 128]")
    strides = dict.fromkeys(("key_stride", "value_stride"), "num_kv_heads * 128")
    return OwnKernel(
        "reshape_and_cache", variant, ReshapeAndCacheProblem(40, 8, 128, "float16", layout, 16),
        ("cdiv(num_tokens, {TILE_TOKENS})", "num_kv_heads"),
        {
            **rows, **strides, "slot_mapping": "int64[num_tokens]", "num_tokens": "num_tokens",
            **_caches(layout, "int16"),
        },
        (*_heads(variant, layout), {"slot_mapping": "-1 <= v < num_blocks * 16, distinct or -1"}),
    )  # fmt: skip


def _heads(variant: str, layout: str) -> list[str]:
    """Return the number of heads that a kernel is compiled for."""
    return ["num_kv_heads == 8"] if "triton" in variant or layout == "nhd" else []


def _gathers(variant: str, layout: str) -> OwnKernel:
    return OwnKernel(
        "gather_cache", variant, GatherCacheProblem(3, 70, 100, 8, 128, "float16", layout, 16),
        ("tiles", "num_kv_heads", "num_seqs"),
        {
            **dict.fromkeys(("keys", "values"), "int16[num_tokens, num_kv_heads, 128]"), "num_tokens": "num_tokens",
            "block_tables": "int32[num_seqs, max_blocks]", "seq_lens": "int32[num_seqs]", "starts": "int64[num_seqs]",
            "table_stride": "max_blocks", **_caches(layout, "int16"),
        },
        (
            *_heads(variant, layout), "tiles < 2**26", {
                "block_tables": "0 <= v < num_blocks", "seq_lens": "0 <= v <= 16 * max_blocks",
                "starts": "0 <= v <= num_tokens, apart by seq_lens",
            },
        ),
    )  # fmt: skip


def _paged(variant: str, **config: int) -> OwnKernel:
    heads = "num_kv_heads * group" if variant.startswith("cuda") else "num_kv_heads * 4"
    return OwnKernel(
        "paged_attention", variant, PagedAttentionProblem(3, 8, 2, 128, 200, 300, "float16", "x", 16),
        (heads, "num_seqs"),
        {
            **dict.fromkeys(("out", "query"), f"float16[num_seqs, {heads}, 128]"), "query_stride": f"{heads} * 128",
            "block_tables": "int32[num_seqs, max_blocks]", "seq_lens": "int32[num_seqs]", "table_stride": "max_blocks",
            "num_kv_heads": "num_kv_heads", **_caches("x", "float16"),
        },
        ("max_blocks < 2**26", {"block_tables": "0 <= v < num_blocks", "seq_lens": "0 <= v <= 16 * max_blocks"}),
        "max_blocks * 64" if variant.startswith("cuda") else 0, config,
    )  # fmt: skip


def _contiguous(variant: str, grid: str) -> OwnKernel:
    return OwnKernel(
        "contiguous_attention", variant, ContiguousAttentionProblem(3, 8, 2, 128, 200, 200, 300, "float16"),
        (grid, "num_seqs"),
        {
            **dict.fromkeys(("out", "query"), "float16[num_seqs, num_heads, 128]"), "query_stride": "num_heads * 128",
            "kv_cache": "float16[rows, 2, num_kv_heads, max_seqlen, 128]", "num_heads": "num_heads",
            "row_stride": "2 * num_kv_heads * max_seqlen * 128", "max_seqlen": "max_seqlen",
            **dict.fromkeys(("seq_lens", "cache_rows"), "int32[num_seqs]"),
        },
        ("num_heads == num_kv_heads * 4", {"seq_lens": "0 <= v <= max_seqlen", "cache_rows": "0 <= v < rows"}),
    )  # fmt: skip


_TILED = {"reshape_and_cache": _writes, "gather_cache": _gathers}
OWN: dict[str, OwnKernel] = {
    **{
        f"{op}: {language}": _copies(op, f"{language.lower()}_vectors")
        for op in ("copy_blocks", "swap_blocks") for language in ("CUDA", "Triton")
    },
    **{
        f"{op}, layout {layout}: {language}": made(f"{language.lower()}_tiled", layout)
        for op, made in _TILED.items() for layout in ("x", "nhd", "hnd") for language in ("CUDA", "Triton")
    },
    **{
        f"{op}, layout {layout}, int8: {language}": _with_scales(made(f"{language.lower()}_tiled", layout), layout)
        for op, made in _TILED.items() for layout in ("x", "nhd", "hnd") for language in ("CUDA", "Triton")
        if (op, layout) != ("reshape_and_cache", "x")
    },
    "paged_attention: CUDA": _paged("cuda_thread_group"),
    "paged_attention, int8: CUDA": _with_scales(_paged("cuda_thread_group"), "x"),
    "paged_attention: Triton": _paged("triton_online_softmax"),
    "paged_attention, num_stages=1: Triton": _paged("triton_online_softmax", num_stages=1),
    "contiguous_attention: CUDA": _contiguous("cuda_register_softmax", "num_heads // {HEADS_PER_BLOCK}"),
    "contiguous_attention: Triton": _contiguous("triton_online_softmax", "num_heads"),
}  # fmt: skip
"""Launches by the kernel's name in tables."""
