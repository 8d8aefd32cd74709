"""Latents of a token in FP8, as FlashMLA and vLLM store them ("fp8_ds_mla").

A row is bytes: a code of e4m3 for every element of the latent, a float32 scale for every 128 of them, and the rotated
part of the key unchanged in bfloat16. For DeepSeek-V3's 512 + 64 elements these are 512 + 16 + 128 = 656 bytes.
"""

from __future__ import annotations

import torch

from workbench.attention.cache_formats.quantization import e4m3_with_scales
from workbench.errors import ArgumentError

NAME = "fp8_ds_mla"
"""vLLM's name of the format."""

GROUP = 128
"""Number of neighbouring elements of a latent that share a scale."""


def row_bytes(latent_size: int, rope_size: int) -> int:
    """Return the bytes of a token.

    Raises ArgumentError for a latent that is not a whole number of groups, or a row that does not end on 16 bytes.
    """
    size = latent_size + latent_size // GROUP * 4 + 2 * rope_size
    if latent_size % GROUP or size % 16:
        raise ArgumentError(
            "latent_size",
            f"{latent_size}, with rope_size {rope_size}: {size} bytes a token",
            f"a multiple of {GROUP} with rows of a multiple of 16 bytes, such as 512 and 64",
            'Use kv_cache_dtype="auto".',
        )
    return size


def pack(tokens: torch.Tensor, latent_size: int) -> torch.Tensor:
    """Quantize tokens ``[..., latent_size + rope_size]`` and return their rows ``[..., row_bytes] uint8``.

    A scale maps the largest magnitude of its group to the largest code, and is 1 where all elements are zero.
    """
    latent, rope = tokens.float().tensor_split([latent_size], dim=-1)
    row_bytes(latent_size, rope.shape[-1])
    groups = latent.unflatten(-1, (-1, GROUP))
    codes, scales = e4m3_with_scales(groups)
    parts = codes.flatten(-2), scales, rope.to(torch.bfloat16)
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts], dim=-1)


def unpack(rows: torch.Tensor, latent_size: int) -> torch.Tensor:
    """Return the values ``[..., latent_size + rope_size] float32`` of rows as `pack` makes them."""
    codes, scales, rope = rows.tensor_split([latent_size, latent_size + latent_size // GROUP * 4], dim=-1)
    latent = codes.contiguous().view(torch.float8_e4m3fn).float().unflatten(-1, (-1, GROUP))
    latent = latent * scales.contiguous().view(torch.float32)[..., None]
    return torch.cat([latent.flatten(-2), rope.contiguous().view(torch.bfloat16).float()], dim=-1)
