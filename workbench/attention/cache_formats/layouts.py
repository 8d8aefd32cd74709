"""Layouts of a paged KV cache, and conversions between them and plain token sequences.

A page (a "block") holds ``block_size`` consecutive tokens of one sequence; ``block_tables [num_seqs, max_blocks]``
lists the pages of each sequence in order. Layouts differ in the order of the elements inside a page:

* "x": keys ``[num_blocks, num_kv_heads, head_size/x, block_size, x]``,
  values ``[num_blocks, num_kv_heads, head_size, block_size]``;
* "nhd": both ``[num_blocks, block_size, num_kv_heads, head_size]``;
* "hnd": both ``[num_blocks, num_kv_heads, block_size, head_size]``.

NVFP4, of four bits, is in "nhd" and "hnd" alone, as pages of bytes: `workbench.attention.cache_formats.nvfp4`.

``x = 16 / sizeof(cache element)`` is the number of elements in 16 bytes, so that neighbouring threads, which read the
keys of neighbouring tokens, read neighbouring 16 bytes (vLLM, csrc/attention). "nhd" and "hnd" are FlashInfer's names.
The *canonical* form, through which all conversions go, is that of "nhd".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workbench.attention.cache_formats import nvfp4
from workbench.errors import ArgumentError, UnknownNameError

LAYOUTS = ("x", "nhd", "hnd")


@dataclass(frozen=True)
class PagedGeometry:
    """Layout and sizes of a paged cache; ``block_size`` is in tokens, ``head_size`` in elements."""

    layout: str
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_size: int

    def key_shape(self, dtype: torch.dtype) -> tuple[int, ...]:
        """Return the shape of the key cache for a dtype; uint8 is NVFP4.

        ArgumentError if ``x`` does not divide ``head_size``, or for NVFP4 in layout "x".
        """
        if self.layout != "x" or dtype == torch.uint8:
            return self.value_shape(dtype)
        x = x_of(dtype)
        if self.head_size % x:
            raise ArgumentError(
                "head_size",
                self.head_size,
                f"a multiple of x = {x} for layout 'x' with {dtype}",
                "Use layout 'nhd' or 'hnd', which take any head_size.",
            )
        return (self.num_blocks, self.num_kv_heads, self.head_size // x, self.block_size, x)

    def value_shape(self, dtype: torch.dtype | None = None) -> tuple[int, ...]:
        """Return the shape of the value cache, which a dtype changes only if it is uint8, for NVFP4."""
        row = self.head_size
        if dtype == torch.uint8:
            nvfp4.check_layout(self.layout)
            row = nvfp4.row_bytes(self.head_size)
        if self.layout == "nhd":
            return (self.num_blocks, self.block_size, self.num_kv_heads, row)
        if self.layout == "hnd":
            return (self.num_blocks, self.num_kv_heads, self.block_size, row)
        return (self.num_blocks, self.num_kv_heads, self.head_size, self.block_size)


def x_of(dtype: torch.dtype) -> int:
    """Return the number of elements in 16 bytes: 4 for float32, 8 for float16 and bfloat16, 16 for one-byte types."""
    return 16 // dtype.itemsize


def detect(key_cache: torch.Tensor, value_cache: torch.Tensor, layout: str | None = None) -> PagedGeometry:
    """Return the geometry of a pair of caches; a 5-D key cache has layout "x", a 4-D one needs ``layout``.

    Raises:
        ArgumentError: if the shapes fit neither the layout nor each other, or ``layout`` is missing for a 4-D cache.
    """
    if layout is not None and layout not in LAYOUTS:
        raise UnknownNameError(
            "layout", repr(layout), ", ".join(LAYOUTS), "See workbench.attention.cache_formats.layouts."
        )
    if layout is None:
        if key_cache.dim() != 5:
            raise ArgumentError(
                "layout",
                f"None for a {key_cache.dim()}-D key cache",
                "'nhd' or 'hnd'",
                "The shape of a 4-D cache does not show which dimension is block_size: name the layout.",
            )
        layout = "x"
    if key_cache.dim() != (5 if layout == "x" else 4) or value_cache.dim() != 4:
        raise ArgumentError(
            "key_cache",
            f"shapes {tuple(key_cache.shape)} and {tuple(value_cache.shape)} (value_cache)",
            "a 5-D key cache and a 4-D value cache for 'x', else two 4-D ones",
            f"Check layout={layout!r}.",
        )
    if layout == "nhd":
        num_blocks, block_size, num_kv_heads, head_size = value_cache.shape
    elif layout == "hnd":
        num_blocks, num_kv_heads, block_size, head_size = value_cache.shape
    else:
        num_blocks, num_kv_heads, head_size, block_size = value_cache.shape
    if value_cache.dtype == torch.uint8:
        nvfp4.check_layout(layout)
        head_size = nvfp4.head_size_of(head_size)
    found = PagedGeometry(layout, num_blocks, block_size, num_kv_heads, head_size)
    expected = found.key_shape(key_cache.dtype)
    if tuple(key_cache.shape) != expected:
        raise ArgumentError(
            "key_cache",
            f"shape {tuple(key_cache.shape)}",
            f"{expected} beside a value cache {tuple(value_cache.shape)} in layout {layout!r}",
            "Both caches must have the same pages, heads and sizes.",
        )
    return found


def canonical_keys(key_cache: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a key cache as ``[num_blocks, block_size, num_kv_heads, head_size]``; a view, except for layout "x"."""
    if layout == "x":
        return key_cache.permute(0, 3, 1, 2, 4).flatten(3)
    return key_cache if layout == "nhd" else key_cache.transpose(1, 2)


def canonical_values(value_cache: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a view of a value cache as ``[num_blocks, block_size, num_kv_heads, head_size]``."""
    if layout == "x":
        return value_cache.permute(0, 3, 1, 2)
    return value_cache if layout == "nhd" else value_cache.transpose(1, 2)


def from_canonical(keys: torch.Tensor, values: torch.Tensor, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return contiguous key and value caches in a layout from two in canonical form.

    Args:
        keys: keys ``[num_blocks, block_size, num_kv_heads, head_size]``.
        values: values of the same shape.
        layout: one of `LAYOUTS`.
    """
    num_blocks, block_size, num_kv_heads, head_size = keys.shape
    geometry = PagedGeometry(layout, num_blocks, block_size, num_kv_heads, head_size)
    shape = geometry.key_shape(torch.int8 if keys.dtype == torch.uint8 else keys.dtype)  # bytes here are bits of codes
    if layout == "x":
        x = shape[-1]
        keys = keys.unflatten(3, (head_size // x, x)).permute(0, 2, 3, 1, 4)
        return keys.contiguous(), values.permute(0, 2, 3, 1).contiguous()
    if layout == "hnd":
        return keys.transpose(1, 2).contiguous(), values.transpose(1, 2).contiguous()
    return keys.contiguous(), values.contiguous()


def unused_value(dtype: torch.dtype) -> float:
    """Return the value for slots without a token, chosen so that reading one shows.

    It is NaN, int8's lowest value, or for NVFP4 (uint8) the byte whose scale is NaN.
    """
    if dtype == torch.uint8:
        return 0xFF
    return float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min


def slots_of(block_tables: torch.Tensor, seq_lens: Sequence[int], block_size: int) -> torch.Tensor:
    """Return the slot ``page * block_size + offset`` of every token of every sequence, ``[total_tokens] int64``."""
    slots = []
    for table, length in zip(block_tables.long(), seq_lens, strict=True):
        tokens = torch.arange(length, device=block_tables.device)
        slots.append(table[tokens // block_size] * block_size + tokens % block_size)
    return torch.cat(slots) if slots else torch.empty(0, dtype=torch.int64, device=block_tables.device)


def chosen_slots(positions: torch.Tensor, block_tables: torch.Tensor, block_size: int) -> torch.Tensor:
    """Return the slots ``page * block_size + offset`` of chosen positions, ``[num_seqs, k] int32``.

    They are a block table of pages of one token. Positions ``[num_seqs, k]`` of -1, as `top_k_positions` gives them
    where a sequence has fewer tokens, stay -1.
    """
    if positions.numel() == 0 or block_tables.numel() == 0:
        return torch.full_like(positions, -1, dtype=torch.int32)
    pages = block_tables.gather(1, positions.clamp(min=0).long() // block_size)
    return torch.where(positions < 0, -1, pages * block_size + positions % block_size).int()


def to_paged(
    keys: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
    block_tables: torch.Tensor,
    *,
    num_blocks: int,
    block_size: int,
    layout: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a paged cache that holds the given sequences; slots without a token hold `unused_value`.

    Args:
        keys: keys ``[tokens, num_kv_heads, head_size]`` of each sequence, all of one dtype; of uint8 they are rows
            of NVFP4, ``[tokens, num_kv_heads, row]``.
        values: values of each sequence, of the same shapes and dtype.
        block_tables: ``[num_seqs, max_blocks]`` integers; entries past a sequence's last page are not read.
        num_blocks: pages in the cache.
        block_size: tokens per page.
        layout: one of `LAYOUTS`.
    """
    slots = slots_of(block_tables, [len(key) for key in keys], block_size)
    pages = []
    for sequences in (keys, values):
        tokens = torch.cat(list(sequences))
        page = torch.full(
            (num_blocks * block_size, *tokens.shape[1:]), 0.0, dtype=torch.float32, device=tokens.device
        ).to(tokens.dtype)
        _fill_unused(page)
        bits_of(page)[slots] = bits_of(tokens)
        pages.append(page.unflatten(0, (num_blocks, block_size)))
    key_pages, value_pages = pages
    if key_pages.dtype == torch.uint8:
        return nvfp4.from_rows(key_pages, layout), nvfp4.from_rows(value_pages, layout)
    return from_canonical(key_pages, value_pages, layout)


def from_paged(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: Sequence[int],
    *,
    layout: str | None = None,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the keys and values of every sequence, ``[tokens, num_kv_heads, head_size]`` each; inverts `to_paged`.

    Those of NVFP4 are rows of bytes.
    """
    geometry = detect(key_cache, value_cache, layout)
    lengths = [int(length) for length in seq_lens]
    slots = slots_of(block_tables, lengths, geometry.block_size)
    found = []
    if key_cache.dtype == torch.uint8:
        caches = nvfp4.to_rows(key_cache, geometry.layout), nvfp4.to_rows(value_cache, geometry.layout)
    else:
        caches = canonical_keys(key_cache, geometry.layout), canonical_values(value_cache, geometry.layout)
    for cache in caches:
        tokens = bits_of(cache.reshape(-1, geometry.num_kv_heads, cache.shape[-1]))[slots].view(cache.dtype)
        found.append(list(tokens.split(lengths)))
    return found[0], found[1]


def _fill_unused(cache: torch.Tensor) -> None:
    if cache.dtype.itemsize == 1 and cache.dtype.is_floating_point:
        cache.view(torch.uint8).fill_(0x7F)  # NaN in e4m3fn and in e5m2; torch has no fill_ for float8
    else:
        cache.fill_(unused_value(cache.dtype))


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return one-byte elements as uint8, because torch cannot index float8 on every device; others unchanged."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor
