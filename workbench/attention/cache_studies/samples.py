"""Keys and values to try a quantization on, as different from each other as those of real models are.

In decoder-only models a few *channels* (elements of a head) of the keys are large for every token, with a sign and
size of their own, while values have no such channels: see Liu et al., "KIVI", and Hooper et al., "KVQuant" (both 2024),
who measured it. These are drawn, not taken from a model.
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
    """``keys, values [num_tokens, num_kv_heads, head_size] float32``, N(0, 1) but for what follows.

    Each head has ``outlier_channels`` channels of the keys in places of its own, whose mean is about ``outlier_size``
    in one direction; heads differ in size up to a factor of 4, keys and values alike; and a token is up to 2 times as
    large as another.
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
