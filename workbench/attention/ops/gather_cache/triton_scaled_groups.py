# mypy: allow-untyped-defs, allow-incomplete-defs
"""A tile of tokens per program, in Triton: the steps of ``cuda_src/gather_cache_scaled_groups.cu``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from workbench.attention.cache_formats.nvfp4 import LAYOUTS
from workbench.attention.ops.cache_problem import SCALES_OR_ONE, STRIDES
from workbench.attention.ops.gather_cache.problem import GRID, GatherCacheProblem, blocks
from workbench.attention.ops.reshape_and_cache.triton_four_bits import has_e2m1, scale_of, unit_of, widen
from workbench.attention.ops.scaled_groups import (
    TRITON_RESTRICTIONS,
    TRITON_SPACE,
    TRITON_TYPES,
    default_triton_config,
    group_constexprs,
)
from workbench.attention.ops.triton_types import gathered_rows
from workbench.ops import Config, TritonStep, TritonVariant


@triton.jit
def _load(cache, page, index, inside, scale, PAGE_GROUPS: tl.constexpr, UNIT: tl.constexpr, HAS_E2M1: tl.constexpr):
    """Return the elements of groups ``[tokens, groups]`` as float32 ``[tokens, 16 * groups]``."""
    pair = tl.arange(0, 8)[None, None, :]
    codes = tl.load(cache + (page[:, None] + index * 8)[:, :, None] + pair, mask=inside[:, :, None], other=0)
    own = scale_of(tl.load(cache + page[:, None] + 8 * PAGE_GROUPS + index, mask=inside, other=0)) * UNIT
    even, odd = widen(codes, HAS_E2M1)
    elements = tl.join(even * own[:, :, None], odd * own[:, :, None])  # exact so far
    return tl.reshape(elements, [inside.shape[0], 16 * inside.shape[1]]) * scale


@triton.jit
def gather_cache_scaled_groups(
    keys,  # [num_tokens, num_kv_heads, HEAD_SIZE]; sequence i begins at starts[i]
    values,
    key_cache,  # bytes; the groups of a page, then their scales
    value_cache,
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    starts,  # [num_seqs]
    table_stride,
    num_tokens,
    key_page_stride,
    value_page_stride,
    k_scale,  # that of a head stands at head * head_stride
    v_scale,
    k_head_stride,
    v_head_stride,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    GROUPS: tl.constexpr,  # of a head
    GROUPS_PADDED: tl.constexpr,  # the next power of two
    HEAD_GROUPS: tl.constexpr,  # groups from one KV head to the next, from one token to the next, and of a page
    TOKEN_GROUPS: tl.constexpr,
    PAGE_GROUPS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,  # tokens per page
    TILE_TOKENS: tl.constexpr,
    UNIT: tl.constexpr,  # of the elements
    HAS_E2M1: tl.constexpr,
):
    """Gather TILE_TOKENS tokens of one KV head of one sequence."""
    head, seq = tl.program_id(1), tl.program_id(2)
    first = tl.program_id(0) * TILE_TOKENS
    start = tl.load(starts + seq)
    # Never past the end of the result, whatever the lengths say.
    end = tl.minimum(tl.load(seq_lens + seq), num_tokens - start)
    if first >= end:
        return

    # 1. Find the groups: [TILE_TOKENS, GROUPS_PADDED].
    token = first + tl.arange(0, TILE_TOKENS)
    valid = token < end
    page = tl.load(block_tables + seq * table_stride + token // BLOCK_SIZE, mask=valid, other=0).to(tl.int64)
    groups = tl.arange(0, GROUPS_PADDED)
    inside = valid[:, None] & (groups < GROUPS)[None, :]
    index = head * HEAD_GROUPS + (token % BLOCK_SIZE * TOKEN_GROUPS)[:, None] + groups[None, :]

    # 2. Load and dequantize: [TILE_TOKENS, 16 * GROUPS_PADDED].
    scale = tl.load(k_scale + head * k_head_stride)
    k = _load(key_cache, page * key_page_stride, index, inside, scale, PAGE_GROUPS, UNIT, HAS_E2M1)
    scale = tl.load(v_scale + head * v_head_stride)
    v = _load(value_cache, page * value_page_stride, index, inside, scale, PAGE_GROUPS, UNIT, HAS_E2M1)

    # 3. Store.
    elements = tl.arange(0, 16 * GROUPS_PADDED)
    mask = valid[:, None] & (elements < HEAD_SIZE)[None, :]
    place = ((start + token) * NUM_KV_HEADS + head)[:, None] * HEAD_SIZE + elements[None, :]
    tl.store(keys + place, k.to(keys.dtype.element_ty), mask=mask)
    tl.store(values + place, v.to(values.dtype.element_ty), mask=mask)


def _constexprs(config: Config, problem: GatherCacheProblem) -> Mapping[str, Any]:
    return {
        **group_constexprs(config, problem),
        "NUM_KV_HEADS": problem.num_kv_heads,
        "BLOCK_SIZE": problem.block_size,
        "UNIT": unit_of(problem.arch),
        "HAS_E2M1": has_e2m1(problem.arch),
    }


VARIANT = TritonVariant(
    op="gather_cache",
    name="triton_scaled_groups",
    idea="nvfp4: a program per tile of tokens, KV head and sequence, even and odd elements joined",
    steps=(
        TritonStep(
            function=gather_cache_scaled_groups,
            grid=lambda config, problem: blocks(config, problem),
            types=lambda problem: TRITON_TYPES | gathered_rows(problem),
            constexprs=_constexprs,
            arguments=STRIDES | SCALES_OR_ONE,
        ),
    ),
    space=TRITON_SPACE,
    restrictions=(*TRITON_RESTRICTIONS, GRID),
    layouts=LAYOUTS,
    dtypes=("float32", "float16", "bfloat16"),
    needs=("nvfp4",),
    defaults=default_triton_config,
)
