"""The model against a plain float64 implementation of the same formulas."""

import math

import pytest
import torch

from workbench.attention.models import GPTConfig
from workbench.attention.models.gpt import rotate, rotations
from workbench.errors import ArgumentError


def by_the_book(model, tokens):
    """Logits ``[num_tokens, vocab_size]`` in float64, token by token, head by head."""
    c, w = model.config, {name: weight.double() for name, weight in model.state_dict().items()}

    def norm(x, weight):
        return x / (x.square().mean() + c.norm_eps).sqrt() * weight

    def turned(head, position):
        half = c.head_size // 2
        out = head.clone()
        for i in range(half):
            angle = position * c.rope_theta ** (-2 * i / c.head_size)
            a, b = head[i], head[i + half]
            out[i] = a * math.cos(angle) - b * math.sin(angle)
            out[i + half] = a * math.sin(angle) + b * math.cos(angle)
        return out

    stream = [w["embedding.weight"][token] for token in tokens]
    for layer in range(c.num_layers):
        name = f"blocks.{layer}."
        keys, values, added = [], [], []
        for position, x in enumerate(stream):
            heads = (w[name + "qkv.weight"] @ norm(x, w[name + "attention_norm.weight"])).view(-1, c.head_size)
            query = [turned(head, position) for head in heads[: c.num_heads]]
            keys.append([turned(head, position) for head in heads[c.num_heads : c.num_heads + c.num_kv_heads]])
            values.append(heads[c.num_heads + c.num_kv_heads :])
            outs = []
            for number, q in enumerate(query):
                kv = number // (c.num_heads // c.num_kv_heads)
                scores = torch.stack([q @ key[kv] / math.sqrt(c.head_size) for key in keys])
                weights = scores.exp() / scores.exp().sum()
                outs.append(sum(weight * value[kv] for weight, value in zip(weights, values, strict=True)))
            added.append(w[name + "out.weight"] @ torch.cat(outs))
        stream = [x + more for x, more in zip(stream, added, strict=True)]
        for position, x in enumerate(stream):
            h = norm(x, w[name + "ffn_norm.weight"])
            gate = w[name + "gate.weight"] @ h
            inner = gate / (1 + (-gate).exp()) * (w[name + "up.weight"] @ h)
            stream[position] = x + w[name + "down.weight"] @ inner
    return torch.stack([w["embedding.weight"] @ norm(x, w["norm.weight"]) for x in stream])


def test_the_model_is_its_formulas(tiny, prompt):
    from workbench.attention.models.paged_steps import causal

    tokens = torch.tensor(prompt)
    hidden = tiny(tokens, torch.arange(len(prompt)), lambda layer, *qkv: causal(*qkv))
    torch.testing.assert_close(tiny.logits(hidden).double(), by_the_book(tiny, prompt), rtol=1e-4, atol=1e-4)


def test_rotary_scores_depend_on_the_distance_alone():
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 16, dtype=torch.float64)

    def at(position):
        return rotations(torch.tensor([position]), 16, 1e4).double()

    scores = [float((rotate(query, at(p + 5)) * rotate(key, at(p))).sum()) for p in (0, 3, 100)]
    assert scores == pytest.approx([scores[0]] * 3, rel=1e-5)


@pytest.mark.parametrize("sizes", [{"num_heads": 3}, {"head_size": 31}, {"num_layers": 0}, {"vocab_size": 1.5}])
def test_impossible_sizes(sizes):
    with pytest.raises(ArgumentError):
        GPTConfig(**sizes)
