# mypy: allow-untyped-defs, allow-incomplete-defs
"""Triton functions and declarations that the kernels of causal attention, forward and backward, share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from workbench.attention.ops.cache_problem import attributes, never_none
from workbench.attention.ops.causal_attention.problem import CausalAttentionProblem
from workbench.attention.ops.triton_types import TYPES
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Config, Restriction, next_power_of_2

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def lengths_of(seq, query_lens, seq_lens, num_queries, num_tokens, LENGTHS: tl.constexpr):
    """Return the queries and the tokens of a sequence, without padding."""
    if LENGTHS:
        return tl.load(query_lens + seq), tl.load(seq_lens + seq)
    return num_queries, num_tokens


@triton.jit
def load_rows(rows, row, stride, count, WHOLE: tl.constexpr, HEAD_SIZE: tl.constexpr, HEAD_PADDED: tl.constexpr):
    """Load ``[len(row), HEAD_PADDED]``, zeros from row ``count`` on: padding may hold NaN. WHOLE: no row is past it."""
    elements = tl.arange(0, HEAD_PADDED)
    places = rows + row.to(tl.int64)[:, None] * stride + elements[None, :]
    if WHOLE and HEAD_SIZE == HEAD_PADDED:
        return tl.load(places)
    if WHOLE:
        return tl.load(places, mask=(elements < HEAD_SIZE)[None, :], other=0.0)
    return tl.load(places, mask=(row < count)[:, None] & (elements < HEAD_SIZE)[None, :], other=0.0)


@triton.jit
def store_rows(rows, row, count, content, HEAD_SIZE: tl.constexpr, HEAD_PADDED: tl.constexpr):
    """Store the rows before ``count`` to a contiguous ``[rows, HEAD_SIZE]``."""
    elements = tl.arange(0, HEAD_PADDED)
    mask = (row < count)[:, None] & (elements < HEAD_SIZE)[None, :]
    tl.store(rows + row[:, None] * HEAD_SIZE + elements[None, :], content.to(rows.dtype.element_ty), mask=mask)


def types(problem: CausalAttentionProblem) -> Mapping[str, str]:
    """Return Triton's types of the parameters that all these kernels take."""
    scalar, stride = f"*{ELEMENT_TYPES[problem.dtype].triton}", f"i64:{16 // problem.itemsize}"
    strides = [f"{name}_{what}_stride" for name in ("query", "key", "value") for what in ("seq", "head", "token")]
    return {
        **TYPES,
        **dict.fromkeys(("output", "query", "key", "value"), scalar),
        **dict.fromkeys(strides, stride),
    }


def constexprs(config: Config, problem: CausalAttentionProblem) -> Mapping[str, Any]:
    """Return the constexprs of all these kernels beside their tunables."""
    return {
        "LENGTHS": "lengths" in problem.features,
        "HEAD_SIZE": problem.head_size,
        "HEAD_PADDED": next_power_of_2(problem.head_size),
        "NUM_STAGES": config["num_stages"],
    }


LENGTHS = never_none(attributes("query_lens", "seq_lens"))

PRODUCTS = Restriction.of(
    "products",
    "BLOCK_M >= 16 and BLOCK_N >= 16 and is_power_of_two(BLOCK_M) and is_power_of_two(BLOCK_N) and head_size >= 16",
)
WARPS = Restriction.of("warps", "is_power_of_two(num_warps) and num_warps <= 32")
