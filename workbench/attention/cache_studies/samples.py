"""Random keys and values for trying a quantization, with outlier channels as in real models.

In decoder-only models a few *channels* (elements of a head) of the keys are large for every token, each with its own
sign and size, while values have no such channels: Liu et al., "KIVI", and Hooper et al., "KVQuant" (both 2024),
measured it. The samples here are drawn at random, not taken from a model.
"""

from __future__ import annotations

import torch


def keys_and_values(
    num_tokens: int,
    num_kv_heads: int,
    head_size: int,
    *,
    outlier_channels: int = 3,
    outlier_size: float = 20.0,
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw ``keys, values [num_tokens, num_kv_heads, head_size] float32`` from N(0, 1), with outliers and scales.

    In each head, ``outlier_channels`` random channels of the keys get a mean of plus or minus about ``outlier_size``.
    Keys and values of different heads differ in size by a factor of up to 4, those of different tokens by up to 2.
    """
    generator = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, num_tokens, num_kv_heads, head_size, generator=generator)
    for head in range(num_kv_heads):
        channels = torch.randperm(head_size, generator=generator)[:outlier_channels]
        signs = 2.0 * torch.randint(2, (outlier_channels,), generator=generator) - 1
        keys[:, head, channels] += signs * outlier_size * (0.5 + torch.rand(outlier_channels, generator=generator))
    heads = 0.5 * 4 ** torch.linspace(0, 1, num_kv_heads)[:, None]
    tokens = 1 + torch.rand(2, num_tokens, 1, 1, generator=generator)
    return keys * heads * tokens[0], values * heads * tokens[1]
