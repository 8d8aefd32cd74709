"""Keys of an indexer in FP8, as vLLM and DeepGEMM store them: a page has its codes first, then their scales.

A page of ``block_size`` tokens is ``block_size * head_size`` codes of e4m3 and ``block_size`` float32 scales, so that a
tensor ``[num_blocks, block_size, head_size + 4] uint8`` has the right size, though no row of it is a token. Codes and
scales are those of `workbench.attention.cache_formats.quantization.e4m3_with_scales`.
"""

from __future__ import annotations

import torch

SCALE_BYTES = 4
"""Bytes of a token's scale."""


def pack(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return pages ``[num_blocks, block_size, head_size + 4] uint8``.

    ``codes`` are ``[num_blocks, block_size, head_size]``, ``scales`` ``[num_blocks, block_size]``.
    """
    num_blocks, block_size, head_size = codes.shape
    parts = codes.contiguous().view(torch.uint8).flatten(1), scales.contiguous().view(torch.uint8)
    return torch.cat(parts, 1).view(num_blocks, block_size, head_size + SCALE_BYTES)


def unpack(pages: torch.Tensor) -> torch.Tensor:
    """Return the keys ``[num_blocks, block_size, head_size] float32`` of pages as `pack` makes them."""
    _, block_size, row = pages.shape
    codes, scales = pages.flatten(1).tensor_split([block_size * (row - SCALE_BYTES)], dim=1)
    values = codes.contiguous().view(torch.float8_e4m3fn).float().unflatten(1, (block_size, row - SCALE_BYTES))
    return values * scales.contiguous().view(torch.float32)[..., None]
