# mypy: allow-untyped-defs, allow-incomplete-defs
"""A tile of tokens per program, a scale for every 16 elements: writes of NVFP4 in Triton.

The steps are those of ``cuda_src/reshape_and_cache_scaled_groups.cu``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from workbench.attention.cache_formats.nvfp4 import LAYOUTS
from workbench.attention.ops.cache_problem import SCALES_OR_ONE
from workbench.attention.ops.reshape_and_cache.problem import ARGUMENTS, GRID, ReshapeAndCacheProblem
from workbench.attention.ops.reshape_and_cache.triton_four_bits import has_e2m1, narrow
from workbench.attention.ops.scaled_groups import (
    TRITON_RESTRICTIONS,
    TRITON_SPACE,
    TRITON_TYPES,
    default_triton_config,
    group_constexprs,
)
from workbench.attention.ops.triton_types import written_rows
from workbench.ops import Config, TritonStep, TritonVariant, cdiv


@triton.jit
def _store(cache, page, index, tokens, mask, factor, inside, PAGE_GROUPS: tl.constexpr, HAS_E2M1: tl.constexpr):
    """Quantize the elements at ``tokens``, ``[tokens, HEAD_PADDED]``, and store their groups with their scales."""
    elements = tl.load(tokens, mask=mask, other=0.0).to(tl.float32) * factor
    even, odd = tl.split(tl.reshape(elements, [inside.shape[0], inside.shape[1], 8, 2]))
    pairs, scales = narrow(even, odd, HAS_E2M1)
    place = page[:, None] + index
    tl.store(
        cache + (page[:, None] + index * 8)[:, :, None] + tl.arange(0, 8)[None, None, :], pairs, inside[:, :, None]
    )
    tl.store(cache + place + 8 * PAGE_GROUPS, scales, inside)


@triton.jit
def reshape_and_cache_scaled_groups(
    key,  # [num_tokens, num_kv_heads, HEAD_SIZE], tokens key_stride apart
    value,
    key_cache,  # bytes; the groups of a page, then their scales
    value_cache,
    slot_mapping,  # [num_tokens], below 0 to skip the token
    num_tokens,
    key_stride,
    value_stride,
    key_page_stride,
    value_page_stride,
    k_scale,  # that of a head stands at head * head_stride
    v_scale,
    k_head_stride,
    v_head_stride,
    HEAD_SIZE: tl.constexpr,
    GROUPS: tl.constexpr,  # of a head
    GROUPS_PADDED: tl.constexpr,  # the next power of two
    HEAD_GROUPS: tl.constexpr,  # groups from one KV head to the next, from one token to the next, and of a page
    TOKEN_GROUPS: tl.constexpr,
    PAGE_GROUPS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,  # tokens per page
    TILE_TOKENS: tl.constexpr,
    HAS_E2M1: tl.constexpr,
):
    """Write TILE_TOKENS tokens of one KV head to their slots."""
    head = tl.program_id(1)
    groups = tl.arange(0, GROUPS_PADDED)

    # 1. Find the groups: [TILE_TOKENS, GROUPS_PADDED].
    token = tl.program_id(0) * TILE_TOKENS + tl.arange(0, TILE_TOKENS)
    slot = tl.load(slot_mapping + token, mask=token < num_tokens, other=-1)
    inside = (slot >= 0)[:, None] & (groups < GROUPS)[None, :]
    page, offset = slot // BLOCK_SIZE, slot % BLOCK_SIZE
    index = head * HEAD_GROUPS + offset[:, None] * TOKEN_GROUPS + groups[None, :]
    token = token.to(tl.int64)[:, None]
    elements = tl.arange(0, 16 * GROUPS_PADDED)[None, :]
    mask = (slot >= 0)[:, None] & (elements < HEAD_SIZE)

    # 2. Load, quantize and store the keys, then the values.
    factor = tl.div_rn(1.0, tl.load(k_scale + head * k_head_stride))
    tokens = key + token * key_stride + head * HEAD_SIZE + elements
    _store(key_cache, page * key_page_stride, index, tokens, mask, factor, inside, PAGE_GROUPS, HAS_E2M1)
    factor = tl.div_rn(1.0, tl.load(v_scale + head * v_head_stride))
    tokens = value + token * value_stride + head * HEAD_SIZE + elements
    _store(value_cache, page * value_page_stride, index, tokens, mask, factor, inside, PAGE_GROUPS, HAS_E2M1)


def _constexprs(config: Config, problem: ReshapeAndCacheProblem) -> Mapping[str, Any]:
    places = group_constexprs(config, problem)
    return {**places, "BLOCK_SIZE": problem.block_size, "HAS_E2M1": has_e2m1(problem.arch)}


VARIANT = TritonVariant(
    op="reshape_and_cache",
    name="triton_scaled_groups",
    idea="nvfp4: a program per tile of tokens and KV head, even and odd elements apart",
    steps=(
        TritonStep(
            function=reshape_and_cache_scaled_groups,
            grid=lambda config, problem: (cdiv(problem.num_tokens, config["TILE_TOKENS"]), problem.num_kv_heads),
            types=lambda problem: TRITON_TYPES | written_rows(problem),
            constexprs=_constexprs,
            arguments=ARGUMENTS | SCALES_OR_ONE,
        ),
    ),
    space=TRITON_SPACE,
    restrictions=(*TRITON_RESTRICTIONS, GRID),
    layouts=LAYOUTS,
    dtypes=("float32", "float16", "bfloat16"),
    needs=("nvfp4",),
    defaults=default_triton_config,
)
