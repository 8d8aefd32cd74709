"""NVFP4 in a cache: four bits per element, a scale of one byte for every 16 elements of a head, and their places.

    amax  = max |element * (1 / scale)|      over a group of 16 neighbours along head_size
    block = e4m3(amax * (1 / 6))             the group's scale; 6 is the largest e2m1
    code  = e2m1(element * (1 / scale) * (1 / block))
    value = code * block * scale             scale is k_scale or v_scale, float32 per tensor or per KV head

An e2m1 is one of ±{0, 0.5, 1, 1.5, 2, 3, 4, 6}; two are in a byte, the first in its lower half. All arithmetic is in
fp32; both roundings are to the nearest, ties to even. A group of zeros, or one so small that its scale is rounded to 0,
becomes zeros. Magnitudes past 6 * 448 *saturate*, infinity too. e2m1 has no NaN: a NaN makes the scale of its group NaN
(0x7F, over zeros), so that the group reads as NaN.

**Storage.** Both caches are bytes, ``torch.uint8``, in layout "nhd" ``[num_blocks, block_size, num_kv_heads, row]`` or
"hnd" ``[num_blocks, num_kv_heads, block_size, row]`` with ``row = head_size / 2 + head_size / 16``. The last dimension
counts the bytes of a token and head, it does not place them: a page has the elements of all its tokens first, in the
order of the layout, and then their scales, in the same order. That is vLLM's page (csrc/nvfp4_kv_cache_kernels.cu),
with the scales of values in order, as FlashInfer's kernels for sm_120 read them; those for sm_100 (trtllm-gen) read
them permuted. The scales belong to their page, so that whatever copies pages, swaps them out or shares them needs to
know nothing of them, and elements stay on 8 bytes. `split` gives FlashInfer's tensors, and TensorRT-LLM's two pools, as
views. Layout "x" would separate the elements of a group; no system stores NVFP4 in it.

NVFP4: NVIDIA, "Pretraining Large Language Models with NVFP4", 2025; e2m1: "OCP Microscaling Formats (MX)" 1.0.
"""

from __future__ import annotations

import itertools

import torch

from workbench.errors import ArgumentError

GROUP = 16
"""Elements of a head that share a scale."""

LAYOUTS = ("nhd", "hnd")
"""Layouts that hold NVFP4."""

LARGEST_ELEMENT = 6.0
"""Largest e2m1."""

VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of e2m1 by the lower three bits of a code; the fourth is the sign."""

_LARGEST_SCALE = 448.0
_NAN = 0x7F


def row_bytes(head_size: int) -> int:
    """Return the bytes of a token and KV head; ArgumentError unless 16 divides ``head_size``."""
    if head_size % GROUP:
        raise ArgumentError(
            "head_size", head_size, f"a multiple of {GROUP} for nvfp4", 'Use kv_cache_dtype="fp8_e4m3" or "int8".'
        )
    return head_size // 2 + head_size // GROUP


def head_size_of(row: int) -> int:
    """Return the head size for rows of ``row`` bytes; raise ArgumentError if there is none."""
    if row == 0 or row % (GROUP // 2 + 1):
        raise ArgumentError(
            "key_cache",
            f"{row} bytes per token and head",
            "head_size / 2 + head_size / 16 for nvfp4, with head_size a multiple of 16",
            "The shapes are in workbench.attention.cache_formats.nvfp4.",
        )
    return row // (GROUP // 2 + 1) * GROUP


def quantize_rows(scaled: torch.Tensor) -> torch.Tensor:
    """Return elements ``[..., head_size]``, multiplied by the reciprocal of their scale, as rows of bytes.

    A row has the codes, ``head_size / 2`` bytes, and then the scales of their groups.
    """
    row_bytes(scaled.shape[-1])
    groups = scaled.float().unflatten(-1, (-1, GROUP))
    amax = groups.abs().amax(-1)  # NaN if one is
    blocks = (amax * (1.0 / LARGEST_ELEMENT)).clamp(max=_LARGEST_SCALE).to(torch.float8_e4m3fn)
    size = blocks.float()
    inverse = torch.where(size > 0, 1.0 / size, 0.0)  # 0 beside a NaN
    elements = groups.nan_to_num(0.0, torch.inf, -torch.inf) * inverse[..., None]
    elements = elements.where(~amax.isnan()[..., None], 0.0)
    scales = blocks.view(torch.uint8).masked_fill(amax.isnan(), _NAN)
    return torch.cat([pack_elements(elements.flatten(-2)), scales], -1)


def dequantize_rows(rows: torch.Tensor) -> torch.Tensor:
    """Return the values of rows of bytes without k_scale or v_scale, ``[..., head_size] float32``, all exact."""
    head_size = head_size_of(rows.shape[-1])
    codes, scales = rows.split([head_size // 2, head_size // GROUP], -1)
    blocks = scales.contiguous().view(torch.float8_e4m3fn).float()
    return unpack_elements(codes) * blocks.repeat_interleave(GROUP, -1)


def pack_elements(values: torch.Tensor) -> torch.Tensor:
    """Return values ``[..., n]`` rounded to e2m1, two in a byte: ``[..., n / 2] uint8``; there is no NaN among them."""
    pairs = _codes(values).unflatten(-1, (-1, 2))
    return (pairs[..., 0] | pairs[..., 1] << 4).to(torch.uint8)


def unpack_elements(pairs: torch.Tensor) -> torch.Tensor:
    """Return the values ``[..., 2 * n] float32`` of bytes ``[..., n] uint8`` with two e2m1 each."""
    codes = torch.stack([pairs & 0xF, pairs >> 4], -1).flatten(-2).long()
    return torch.tensor([*VALUES, *(-value for value in VALUES)], device=pairs.device)[codes]


def split(cache: torch.Tensor, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return views of a cache's elements, two in a byte, and of their scales.

    They are what FlashInfer's kernels take as cache and as ``kv_cache_sf``.

    Args:
        cache: a key or value cache, ``uint8``; see this module.
        layout: "nhd" or "hnd".

    Returns:
        Elements ``[num_blocks, block_size, num_kv_heads, head_size / 2] uint8`` and scales ``[num_blocks, block_size,
        num_kv_heads, head_size / 16] float8_e4m3fn`` for "nhd"; for "hnd" with the dimensions of that layout.
    """
    check_layout(layout)
    head_size = head_size_of(cache.shape[-1])
    place = cache.shape[1:3]
    elements, scales = cache.flatten(1).split(
        [place[0] * place[1] * head_size // 2, place[0] * place[1] * head_size // GROUP], 1
    )
    return (
        elements.unflatten(1, (*place, head_size // 2)),
        scales.unflatten(1, (*place, head_size // GROUP)).view(torch.float8_e4m3fn),
    )


def to_rows(cache: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a cache's tokens as rows of bytes, ``[num_blocks, block_size, num_kv_heads, row] uint8``; a copy."""
    return torch.cat(_by_token(cache, layout), -1)


def load_rows(cache: torch.Tensor, layout: str, page: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Return the rows ``[n, num_kv_heads, row]`` of the tokens at pages and offsets, both ``[n] int64``."""
    elements, scales = _by_token(cache, layout)
    return torch.cat([elements[page, offset], scales[page, offset]], -1)


def store_rows(cache: torch.Tensor, layout: str, page: torch.Tensor, offset: torch.Tensor, rows: torch.Tensor) -> None:
    """Write rows ``[n, num_kv_heads, row]`` of tokens to their pages and offsets, both ``[n] int64``."""
    elements, scales = _by_token(cache, layout)
    elements[page, offset], scales[page, offset] = rows.split([elements.shape[-1], scales.shape[-1]], -1)


def from_rows(rows: torch.Tensor, layout: str) -> torch.Tensor:
    """Return the cache of rows ``[num_blocks, block_size, num_kv_heads, row]`` in a layout; inverts `to_rows`."""
    check_layout(layout)
    placed = rows if layout == "nhd" else rows.transpose(1, 2)
    head_size = head_size_of(rows.shape[-1])
    parts = placed.split([head_size // 2, head_size // GROUP], -1)
    return torch.cat([part.flatten(1) for part in parts], 1).view(placed.shape)


def check_layout(layout: str) -> None:
    """Raise ArgumentError for a layout that cannot hold NVFP4."""
    if layout not in LAYOUTS:
        raise ArgumentError(
            "layout",
            f"{layout!r} for nvfp4",
            '"nhd" or "hnd", which keep the 16 elements of a scale side by side',
            'Change the layout, or use kv_cache_dtype="fp8_e4m3" or "int8" with this one.',
        )


def _by_token(cache: torch.Tensor, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return views of elements and scales as bytes ``[num_blocks, block_size, num_kv_heads, ...]``."""
    elements, scales = split(cache, layout)
    scales = scales.view(torch.uint8)
    return (elements, scales) if layout == "nhd" else (elements.transpose(1, 2), scales.transpose(1, 2))


def _codes(values: torch.Tensor) -> torch.Tensor:
    """Return the codes of float32 values as int32: nearest, ties to even, saturated; the sign of zero stays."""
    size = values.abs().clamp(max=LARGEST_ELEMENT)
    # The midpoints between neighbours; one belongs to the neighbour with an even code.
    code = torch.zeros_like(values, dtype=torch.int32)
    for index, (low, high) in enumerate(itertools.pairwise(VALUES)):
        middle = (low + high) / 2
        code += (size >= middle) if index % 2 else (size > middle)
    return code | (values.signbit().int() << 3)
