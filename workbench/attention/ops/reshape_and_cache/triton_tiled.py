# mypy: allow-untyped-defs, allow-incomplete-defs
"""A tile of tokens per program, in Triton: the steps of ``cuda_src/reshape_and_cache_tiled.cu``.

TURN_VALUES transposes the tile of values before it is stored, so that the compiler lets neighbouring lanes write
neighbouring tokens. Without it, layout "x" gets one 2-byte write per sector.
"""

from __future__ import annotations

import triton
import triton.language as tl

from workbench.attention.ops.cache_problem import CODES_AS_BYTES, SCALES_OR_ONE
from workbench.attention.ops.page_tiles import (
    TRITON_RESTRICTIONS,
    TRITON_SPACE,
    constexprs,
    default_triton_config,
    triton_types,
)
from workbench.attention.ops.reshape_and_cache.problem import ARGUMENTS, GRID
from workbench.attention.ops.reshape_and_cache.triton_codes import quantize
from workbench.attention.ops.triton_types import written_rows
from workbench.ops import TritonStep, TritonVariant, cdiv


@triton.jit
def reshape_and_cache_tiled(
    key,  # [num_tokens, num_kv_heads, HEAD_SIZE], tokens key_stride apart
    value,
    key_cache,  # any layout: its strides inside a page are constexprs
    value_cache,
    slot_mapping,  # [num_tokens], below 0 to skip the token
    num_tokens,
    key_stride,
    value_stride,
    key_page_stride,
    value_page_stride,
    k_scale,  # of a quantized cache; that of (slot, head) stands at slot * slot_stride + head * head_stride
    v_scale,
    k_slot_stride,
    k_head_stride,
    v_slot_stride,
    v_head_stride,
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
    """Write TILE_TOKENS tokens of one KV head to their slots."""
    head = tl.program_id(1)
    elements = tl.arange(0, HEAD_PADDED)
    inside = elements < HEAD_SIZE

    # 1. Load the slots.
    token = tl.program_id(0) * TILE_TOKENS + tl.arange(0, TILE_TOKENS)
    slot = tl.load(slot_mapping + token, mask=token < num_tokens, other=-1)
    mask = (slot >= 0)[:, None] & inside[None, :]
    page, offset = slot // BLOCK_SIZE, slot % BLOCK_SIZE

    # 2. Load the tile: [TILE_TOKENS, HEAD_PADDED].
    token = token.to(tl.int64)[:, None]
    k = tl.load(key + token * key_stride + head * HEAD_SIZE + elements[None, :], mask=mask)
    v = tl.load(value + token * value_stride + head * HEAD_SIZE + elements[None, :], mask=mask)
    if KIND != "auto":
        factor = tl.div_rn(1.0, tl.load(k_scale + slot * k_slot_stride + head * k_head_stride, slot >= 0, other=1.0))
        k = quantize(k.to(tl.float32) * factor[:, None], KIND)
        factor = tl.div_rn(1.0, tl.load(v_scale + slot * v_slot_stride + head * v_head_stride, slot >= 0, other=1.0))
        v = quantize(v.to(tl.float32) * factor[:, None], KIND)

    # 3. Store the keys.
    place = page * key_page_stride + head * KEY_HEAD + offset * KEY_TOKEN
    tl.store(key_cache + place[:, None] + (elements // X * KEY_X + elements % X)[None, :], k, mask=mask)

    # 4. Store the values.
    place = page * value_page_stride + head * VALUE_HEAD + offset * VALUE_TOKEN
    if TURN_VALUES:
        turned = value_cache + place[None, :] + (elements * VALUE_ELEMENT)[:, None]
        tl.store(turned, tl.trans(v), mask=tl.trans(mask))
    else:
        tl.store(value_cache + place[:, None] + (elements * VALUE_ELEMENT)[None, :], v, mask=mask)


VARIANT = TritonVariant(
    op="reshape_and_cache",
    name="triton_tiled",
    idea="a program per tile of tokens and KV head; the compiler turns the tile",
    steps=(
        TritonStep(
            function=reshape_and_cache_tiled,
            grid=lambda config, problem: (cdiv(problem.num_tokens, config["TILE_TOKENS"]), problem.num_kv_heads),
            types=lambda problem: triton_types(problem) | written_rows(problem),
            constexprs=constexprs,
            arguments=ARGUMENTS | SCALES_OR_ONE | CODES_AS_BYTES,
        ),
    ),
    space=TRITON_SPACE,
    restrictions=(*TRITON_RESTRICTIONS, GRID),
    layouts=("x", "nhd", "hnd"),
    dtypes=("float32", "float16", "bfloat16"),
    features=("int8", "fp8_e4m3", "fp8_e5m2"),
    defaults=default_triton_config,
)
