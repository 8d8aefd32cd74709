"""A small decoder-only language model: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

The model computes a flat list of tokens, of one sequence or of many. The caller passes the attention as a function:
``attend(layer, query, key, value)`` is called once per layer and returns the attention output. Every cache provides
such a function (`workbench.attention.models.caches`), and plain causal attention is one too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import linear

from workbench.attention.kvcache.errors import check_count
from workbench.errors import ArgumentError

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Attention function of a model.

It takes ``(layer, query [num_tokens, num_heads, head_size], key and value [num_tokens, num_kv_heads, head_size])`` and
returns ``[num_tokens, num_heads, head_size]``.
"""


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a model.

    Attributes:
        vocab_size: number of token ids.
        context_length: largest number of tokens of a sequence.
        num_layers: layers of the decoder.
        hidden_size: elements of the hidden state of a token.
        ffn_size: elements of the inner state of the feed-forward network.
        num_heads: query heads.
        num_kv_heads: KV heads; each serves a group of query heads.
        head_size: elements of a head.
        rope_theta: base of the rotary frequencies.
        norm_eps: term that RMSNorm adds to the mean square.
    """

    vocab_size: int = 1024
    context_length: int = 512
    num_layers: int = 4
    hidden_size: int = 160
    ffn_size: int = 448
    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 32
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name not in ("rope_theta", "norm_eps"):
                check_count(name, value, 1, "A size of the model.")
        if self.num_heads % self.num_kv_heads or self.head_size % 2:
            raise ArgumentError(
                "num_heads",
                f"{self.num_heads} over {self.num_kv_heads} KV heads of {self.head_size}",
                "a multiple of num_kv_heads, and an even head_size",
                "Each KV head serves equally many query heads; rotary positions turn pairs of elements.",
            )


class RMSNorm(nn.Module):
    """Root mean square normalization, ``x / sqrt(mean(x^2) + eps) * weight`` (Zhang and Sennrich, 2019)."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize ``x [..., size]`` over its last dimension."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Block(nn.Module):
    """One layer: attention, then a gated feed-forward network (SwiGLU: Shazeer, 2020), each with a residual."""

    def __init__(self, config: GPTConfig, layer: int):
        super().__init__()
        c = self.config = config
        self.layer = layer
        self.attention_norm, self.ffn_norm = (RMSNorm(c.hidden_size, c.norm_eps) for _ in range(2))
        self.qkv = nn.Linear(c.hidden_size, (c.num_heads + 2 * c.num_kv_heads) * c.head_size, bias=False)
        self.out = nn.Linear(c.num_heads * c.head_size, c.hidden_size, bias=False)
        self.gate, self.up = (nn.Linear(c.hidden_size, c.ffn_size, bias=False) for _ in range(2))
        self.down = nn.Linear(c.ffn_size, c.hidden_size, bias=False)

    def forward(self, x: torch.Tensor, rotation: torch.Tensor, attend: Attend) -> torch.Tensor:
        """Return the hidden states ``x [num_tokens, hidden_size]`` after this layer; ``rotation`` as of `rotations`."""
        c = self.config
        qkv = linear(self.attention_norm(x), self.qkv.weight).view(x.shape[0], -1, c.head_size)
        turned = rotate(qkv[:, : c.num_heads + c.num_kv_heads], rotation)
        query, key = turned.split([c.num_heads, c.num_kv_heads], dim=1)
        mixed = attend(self.layer, query, key, qkv[:, c.num_heads + c.num_kv_heads :])
        x = x + linear(mixed.flatten(1), self.out.weight)
        h = self.ffn_norm(x)
        return x + linear(functional.silu(linear(h, self.gate.weight)) * linear(h, self.up.weight), self.down.weight)


class GPT(nn.Module):
    """The decoder; input and output embeddings are tied."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                std = 0.02 if name == "embedding.weight" else weight.shape[1] ** -0.5
                if name.endswith(("out.weight", "down.weight")):  # residual sums must not grow with the depth
                    std *= (2 * config.num_layers) ** -0.5
                nn.init.normal_(weight, std=std)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """Return the hidden states ``[num_tokens, hidden_size]`` of tokens ``[num_tokens] int64`` at positions."""
        x = self.embedding(tokens)
        rotation = rotations(positions, self.config.head_size, self.config.rope_theta).to(x.dtype)
        for block in self.blocks:
            x = block(x, rotation, attend)
        return self.norm(x)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[..., vocab_size] float32`` of hidden states ``[..., hidden_size]``."""
        return linear(hidden, self.embedding.weight).float()

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the weights, and therefore of keys and values."""
        return self.embedding.weight.dtype

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.embedding.weight.device


def rotations(positions: torch.Tensor, head_size: int, theta: float) -> torch.Tensor:
    """Return cosines and sines ``[num_tokens, 2, 1, head_size / 2]`` of ``position * theta^(-2i / head_size)``."""
    frequencies = theta ** (torch.arange(0, head_size, 2, device=positions.device).float() / -head_size)
    angles = positions[:, None].float() * frequencies
    return torch.stack([angles.cos(), angles.sin()], dim=1)[:, :, None]


def rotate(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Rotate elements i and ``i + head_size / 2`` of each head by the token's angle i (RoPE: Su et al., 2021)."""
    (left, right), (cos, sin) = x.chunk(2, dim=-1), rotation.unbind(1)
    return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1)
