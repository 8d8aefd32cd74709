"""Triton's types of parameters that have the same name and type in the kernels of several ops."""

from __future__ import annotations

from typing import Any

from workbench.base.packages import ELEMENT_TYPES

TYPES = {
    **dict.fromkeys(("block_tables", "seq_lens", "query_lens", "cache_rows"), "*i32:1"),
    **dict.fromkeys(("slot_mapping", "starts", "pairs", "source_places", "target_places"), "*i64:8"),
    **dict.fromkeys(("k_scale", "v_scale", "alibi_slopes", "sinks", "lse", "d_lse", "delta"), "*fp32:1"),
    **dict.fromkeys(("partial_out", "partial_stats"), "*fp32"),
    "counters": "*i32",
    **dict.fromkeys(("scale", "soft_cap"), "fp32"),
    **dict.fromkeys(("num_tokens", "num_queries", "num_pages", "max_seqlen", "sliding_window"), "i32"),
    **dict.fromkeys(("group", "wants_lse"), "i32"),
    **dict.fromkeys(("k_slot_stride", "k_head_stride", "v_slot_stride", "v_head_stride"), "i32"),
    **dict.fromkeys(("k_scale_token", "k_scale_head", "v_scale_token", "v_scale_head"), "i32"),
    **dict.fromkeys(("table_stride", "query_stride", "k_scale_page", "v_scale_page"), "i64"),
    **dict.fromkeys(("source_page_steps", "target_page_steps"), "i64"),
}
"""Type by parameter name.

A number after the colon is the multiple that addresses are, in bytes; without one it is 16.
"""


def written_rows(problem: Any) -> dict[str, str]:
    """Return the types of ``key`` and ``value``, whose rows start on ``problem.alignment`` bytes, and their strides."""
    token, stride = f"*{ELEMENT_TYPES[problem.dtype].triton}:{problem.alignment}", problem.alignment // problem.itemsize
    return {"key": token, "value": token, **dict.fromkeys(("key_stride", "value_stride"), f"i64:{stride}")}


def gathered_rows(problem: Any) -> dict[str, str]:
    """Return the types of ``keys`` and ``values``, which are results of the op."""
    return dict.fromkeys(("keys", "values"), f"*{ELEMENT_TYPES[problem.dtype].triton}")
