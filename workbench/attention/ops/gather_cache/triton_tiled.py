# mypy: allow-untyped-defs, allow-incomplete-defs
"""A tile of tokens per program, in Triton: the steps of ``cuda_src/gather_cache_tiled.cu``.

TURN_VALUES loads the tile of values transposed, so that the compiler lets neighbouring lanes read neighbouring tokens,
which are adjacent in layout "x".
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.attention.ops.cache_problem import CODES_AS_BYTES, SCALES_OR_ONE, STRIDES
from workbench.attention.ops.gather_cache.problem import GRID, blocks
from workbench.attention.ops.page_tiles import (
    TRITON_RESTRICTIONS,
    TRITON_SPACE,
    constexprs,
    default_triton_config,
    triton_types,
)
from workbench.attention.ops.reshape_and_cache.triton_codes import dequantize
from workbench.attention.ops.triton_types import gathered_rows
from workbench.ops import TritonStep, TritonVariant


@triton.jit
def gather_cache_tiled(
    keys,  # [num_tokens, num_kv_heads, HEAD_SIZE]; sequence i begins at starts[i]
    values,
    key_cache,  # any layout: its strides inside a page are constexprs
    value_cache,
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    starts,  # [num_seqs]
    table_stride,
    num_tokens,
    key_page_stride,
    value_page_stride,
    k_scale,  # of a quantized cache; that of (slot, head) stands at slot * slot_stride + head * head_stride
    v_scale,
    k_slot_stride,
    k_head_stride,
    v_slot_stride,
    v_head_stride,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,  # the next power of two
    BLOCK_SIZE: tl.constexpr,  # tokens per page
    X: tl.constexpr,  # elements of a key that lie side by side
    KEY_HEAD: tl.constexpr,  # strides inside a page, in elements
    KEY_TOKEN: tl.constexpr,
    KEY_X: tl.constexpr,  # from one group of X elements to the next
    VALUE_HEAD: tl.constexpr,
    VALUE_TOKEN: tl.constexpr,
    VALUE_ELEMENT: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    TURN_VALUES: tl.constexpr,
    KIND: tl.constexpr,  # of a quantized cache: "int8", "fp8_e4m3" or "fp8_e5m2"; else "auto"
):
    """Gather TILE_TOKENS tokens of one KV head of one sequence."""
    head, seq = tl.program_id(1), tl.program_id(2)
    first = tl.program_id(0) * TILE_TOKENS
    start = tl.load(starts + seq)
    # Never past the end of the result, whatever the lengths say.
    end = tl.minimum(tl.load(seq_lens + seq), num_tokens - start)
    if first >= end:
        return
    elements = tl.arange(0, HEAD_PADDED)
    inside = elements < HEAD_SIZE

    # 1. Find the slots.
    token = first + tl.arange(0, TILE_TOKENS)
    valid = token < end
    page = tl.load(block_tables + seq * table_stride + token // BLOCK_SIZE, mask=valid, other=0).to(tl.int64)
    offset = token % BLOCK_SIZE
    mask = valid[:, None] & inside[None, :]

    # 2. Load the tile: [TILE_TOKENS, HEAD_PADDED].
    place = page * key_page_stride + head * KEY_HEAD + offset * KEY_TOKEN
    k = tl.load(key_cache + place[:, None] + (elements // X * KEY_X + elements % X)[None, :], mask=mask)
    place = page * value_page_stride + head * VALUE_HEAD + offset * VALUE_TOKEN
    if TURN_VALUES:
        turned = value_cache + place[None, :] + (elements * VALUE_ELEMENT)[:, None]
        v = tl.trans(tl.load(turned, mask=tl.trans(mask)))
    else:
        v = tl.load(value_cache + place[:, None] + (elements * VALUE_ELEMENT)[None, :], mask=mask)
    if KIND != "auto":
        slot = page * BLOCK_SIZE + offset
        scale = tl.load(k_scale + slot * k_slot_stride + head * k_head_stride, mask=valid)
        k = dequantize(k, KIND) * scale[:, None]
        scale = tl.load(v_scale + slot * v_slot_stride + head * v_head_stride, mask=valid)
        v = dequantize(v, KIND) * scale[:, None]

    # 3. Store.
    place = ((start + token) * NUM_KV_HEADS + head)[:, None] * HEAD_SIZE + elements[None, :]
    tl.store(keys + place, k.to(keys.dtype.element_ty), mask=mask)
    tl.store(values + place, v.to(values.dtype.element_ty), mask=mask)


VARIANT = TritonVariant(
    op="gather_cache",
    name="triton_tiled",
    idea="a program per tile of tokens, KV head and sequence; the compiler turns the tile back",
    steps=(
        TritonStep(
            function=gather_cache_tiled,
            grid=lambda config, problem: blocks(config, problem),
            types=lambda problem: triton_types(problem) | gathered_rows(problem),
            constexprs=constexprs,
            arguments=STRIDES | SCALES_OR_ONE | CODES_AS_BYTES,
        ),
    ),
    space=TRITON_SPACE,
    restrictions=(*TRITON_RESTRICTIONS, GRID),
    layouts=("x", "nhd", "hnd"),
    dtypes=("float32", "float16", "bfloat16"),
    features=("int8", "fp8_e4m3", "fp8_e5m2"),
    defaults=default_triton_config,
)
