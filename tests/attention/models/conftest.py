"""A tiny model with random weights: cheap, and as sensitive to a wrong cache as a large one."""

from __future__ import annotations

import random

import pytest
import torch

from workbench.attention.models import GPT, GPTConfig


@pytest.fixture(scope="session")
def tiny():
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=300, context_length=128, num_layers=2, hidden_size=32, ffn_size=48, num_heads=4, num_kv_heads=2,
        head_size=16,
    )  # fmt: skip
    model = GPT(config).eval().requires_grad_(False)
    model.norm.weight.mul_(50)  # logits of a few units, as a trained model has: the best token has a clear lead
    return model


@pytest.fixture
def prompt() -> list[int]:
    return random.Random(7).choices(range(256), k=21)
