"""Keys of an indexer in FP8, as vLLM and DeepGEMM store them: a page has its codes first, then their scales.

A page of ``block_size`` tokens is ``block_size * head_size`` codes of e4m3 and ``block_size`` float32 scales, so that a
tensor ``[num_blocks, block_size, head_size + 4] uint8`` has the right size, though no row of it is a token.
"""

from __future__ import annotations

import torch

from workbench.attention.cache_formats.quantization import LARGEST

SCALE_BYTES = 4
"""Bytes of a token's scale."""


def quantize(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes ``[..., head_size] float8_e4m3fn`` and scales ``[...] float32`` of queries or keys.

    A scale maps the largest magnitude of its vector to the largest code, and is 1 where all elements are zero.
    """
    highest = vectors.float().abs().amax(-1)
    scales = torch.where(highest > 0, highest / LARGEST["fp8_e4m3"], 1.0)
    return (vectors.float() / scales[..., None]).to(torch.float8_e4m3fn), scales


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
