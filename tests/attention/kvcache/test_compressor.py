"""The compressor of DeepSeek-V4: entries equal to transformers', whatever the chunks."""

import random

import pytest
import torch
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4

from workbench.attention import Compressor
from workbench.errors import ArgumentError

RATE, SIZE = 4, 16


def tokens(count, width, seed=0):
    return torch.randn(2, count, width, generator=torch.Generator().manual_seed(seed)).unbind(0)


def made(values, gates, bias, overlapping, lengths):
    one = Compressor(bias, overlapping=overlapping)
    parts = [one.append(v, g) for v, g in zip(values.split(lengths), gates.split(lengths), strict=True)]
    return torch.cat(parts), one


@pytest.mark.parametrize("overlapping", [False, True])
def test_any_split_into_chunks_gives_the_same_entries(overlapping):
    width = SIZE * (1 + overlapping)
    values, gates = tokens(50, width)
    bias = torch.randn(RATE, width, generator=torch.Generator().manual_seed(1))
    whole, _ = made(values, gates, bias, overlapping, [50])
    assert whole.shape == (12, SIZE)
    rng = random.Random(4)
    for _ in range(100):
        lengths = []
        while sum(lengths) < 50:
            lengths.append(min(rng.choice((0, 1, 1, 2, 3, 4, 5, 13)), 50 - sum(lengths)))
        entries, one = made(values, gates, bias, overlapping, lengths)
        assert torch.equal(entries, whole), lengths
        assert one.num_entries == 12


@pytest.mark.parametrize("overlapping", [False, True])
def test_entries_are_those_of_transformers(overlapping, monkeypatch):
    """Its compressors before their norm and their rotation, with the state in its cache, in three chunks."""
    rates = {"compressed_sparse_attention": RATE, "heavily_compressed_attention": RATE}
    sizes = {"hidden_size": 32, "head_dim": SIZE, "num_attention_heads": 2, "q_lora_rank": 8, "num_hidden_layers": 3}
    indexer = {"index_topk": 2, "index_n_heads": 2, "index_head_dim": SIZE}
    config = v4.DeepseekV4Config(**sizes, **indexer, compress_rates=rates)
    kind = v4.DeepseekV4CSACompressor if overlapping else v4.DeepseekV4HCACompressor
    theirs = kind(config)
    torch.manual_seed(3)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    theirs.kv_norm = torch.nn.Identity()
    monkeypatch.setattr(v4, "apply_rotary_pos_emb", lambda x, cos, sin, **_: x)
    if overlapping:
        theirs.indexer.forward = lambda *_: torch.zeros(1, 1, 1, dtype=torch.long)
    layer = (v4.DeepseekV4CSACache if overlapping else v4.DeepseekV4HCACache)(config)
    cache = type("Cache", (), {"layers": [layer]})()
    ours = Compressor(theirs.position_bias.detach(), overlapping=overlapping)
    hidden, entries = torch.randn(1, 23, 32), []
    with torch.no_grad():
        for start, chunk in zip((0, 3, 13), hidden.split([3, 10, 10], dim=1), strict=True):
            positions = torch.arange(start, start + chunk.shape[1])[None]
            found, _ = theirs(chunk, None, positions, cache, 0)
            entries.append(ours.append(theirs.kv_proj(chunk)[0], theirs.gate_proj(chunk)[0]))
    torch.testing.assert_close(torch.cat(entries), found[0, 0], atol=1e-5, rtol=1e-5)


def test_bad_input():
    with pytest.raises(ArgumentError, match=r"2 \* head_size"):
        Compressor(torch.zeros(4, 15), overlapping=True)
    one = Compressor(torch.zeros(4, 16))
    one.append(*tokens(3, 16))
    for values, gates in ((torch.zeros(2, 8), torch.zeros(2, 8)), (torch.zeros(2, 16), torch.zeros(3, 16))):
        with pytest.raises(ArgumentError, match="row per token"):
            one.append(values, gates)
    assert len(one.append(*tokens(1, 16))) == 1, "a refused call left the state as it was"
