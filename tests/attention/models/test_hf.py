"""Hugging Face models over a paged cache: the tokens of the eager path, the blocks of a paged cache."""

from __future__ import annotations

import pytest
import torch
from hf_models import (
    COMPRESSED,
    INDEXERS,
    MODELS,
    NEW,
    STATEFUL,
    WINDOWED,
    distance,
    eager,
    generate,
    model_of,
    prompts,
    same_tokens,
)

transformers = hf = compressed = indexer = layers = states = step = None


@pytest.fixture(autouse=True, scope="module")
def _imported():
    """They take seconds: only the worker that runs these tests imports them, and not while it collects."""
    global transformers, hf, compressed, indexer, layers, states, step
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    hf = pytest.importorskip("workbench.attention.models.hf")
    from workbench.attention.models.hf import compressed, indexer, layers, states, step


@pytest.mark.parametrize("name", MODELS)
class TestTokens:
    @pytest.mark.parametrize("chunk", [7, *(pytest.param(chunk, marks=pytest.mark.long) for chunk in (None, 1, 64))])
    def test_greedy_tokens_are_those_of_the_eager_path(self, name, chunk):
        """32 steps after a prompt that was read in chunks of so many columns, or at once."""
        model = model_of(name)
        cache = hf.PagedCache(model.config, num_blocks=60, block_size=8)
        got, expected = generate(model, cache, prefill_chunk_size=chunk, max_new_tokens=32), eager(name, steps=32)
        assert same_tokens(got, expected)
        assert distance(got, expected) < MODELS[name].bound
        assert cache.paged.seq_lens(range(3)).tolist() == [13 + 31, 28 + 31, 33 + 31], "padding takes no slot"

    @pytest.mark.sampled(3)
    def test_beam_search_shares_blocks(self, name):
        model = model_of(name)
        cache = hf.PagedCache(model.config, num_blocks=80, block_size=4)
        assert same_tokens(generate(model, cache, num_beams=2), eager(name, beams=2))
        assert cache.paged.manager.statistics().sharing_saved > (0 if name in STATEFUL else 0.1)
        cache.reset()
        assert cache.paged.manager.statistics().used_blocks == 0
        found = generate(model, cache)
        assert distance(found, eager(name)) < MODELS[name].bound, "a cache that was reset serves another batch"

    @pytest.mark.sampled(3)
    def test_a_second_turn_reads_the_first_ones_keys(self, name):
        """As the eager path does, or another cache that reads both turns at once, where eager pools padding."""
        model = model_of(name)
        cache = hf.PagedCache(model.config, num_blocks=60, block_size=8)
        first = generate(model, cache).sequences
        turn = torch.cat([first, prompts()["input_ids"][:, -6:]], 1)
        mask = torch.cat([prompts()["attention_mask"], torch.ones(3, turn.shape[1] - 33, dtype=torch.int64)], 1)
        both = []
        other = (hf.NAME, hf.PagedCache(model.config, num_blocks=60)) if name in COMPRESSED else ("eager", None)
        for implementation, past in (other, (hf.NAME, cache)):
            model.set_attn_implementation(implementation)
            options = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "suppress_tokens": [0]}
            both.append(model.generate(turn, past_key_values=past, **options))
        assert torch.equal(*both)


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.sampled(2)
def test_padding_inside_a_conversation(name):
    """A window counts columns, padding too: of the holes in these rows one lies in it, one at its edge."""
    model = model_of(name)
    cache = hf.PagedCache(model.config, num_blocks=80, block_size=4)
    first, second = prompts(), prompts()
    first["attention_mask"][0, 24:30] = first["attention_mask"][2, 3:13] = 0
    second["attention_mask"][1, :4] = second["attention_mask"][2, 20:31] = 0
    turns = [first, second]
    ids, mask = (torch.cat([turn[key] for turn in turns], 1) for key in ("input_ids", "attention_mask"))
    both = []
    for implementation, past in (("eager", None), (hf.NAME, cache)):
        model.set_attn_implementation(implementation)
        if past is not None:
            positions = (first["attention_mask"].cumsum(1) - 1).clamp(min=0)  # those of generate
            model(**first, position_ids=positions, past_key_values=past)
        options = {"max_new_tokens": NEW, "do_sample": False, "output_logits": True}
        both.append(
            model.generate(ids, attention_mask=mask, past_key_values=past, return_dict_in_generate=True, **options)
        )
    assert same_tokens(*both)
    assert distance(*both) < MODELS[name].bound


@pytest.mark.parametrize(
    ("name", "slip"),
    [(name, slip) for name in MODELS for slip in ("scale", "padding")]
    + [(name, "window") for name in WINDOWED + COMPRESSED]
    + [("gemma2", "soft cap"), ("gpt_oss", "sinks")]
    + [(name, slip) for name in STATEFUL for slip in ("decay", "inputs")]
    + [(name, "choice") for name in INDEXERS],
)
@pytest.mark.sampled(6)
def test_slips_change_tokens(name, slip, monkeypatch):
    """The comparison would notice.

    Another scale, padding attended, a window longer by one, no soft cap, no sinks, a state that does not fade, inputs
    of the convolution that are lost, one token fewer chosen.
    """
    make_room, choose, last = step.ForwardPass.make_room, indexer.top_k_positions, compressed._last
    attend, latent, delta, convolve = (
        layers.paged_attention, layers.mla_decode, states.gated_delta_step, states.conv_step,
    )  # fmt: skip

    def wrong(*tensors, sliding_window, soft_cap, sinks, scale, **options):
        if slip == "window" and sliding_window:
            sliding_window += 1
        soft_cap = None if slip == "soft cap" else soft_cap
        sinks = None if slip == "sinks" else sinks
        scale *= 1.5 if slip == "scale" else 1
        return attend(*tensors, sliding_window=sliding_window, soft_cap=soft_cap, sinks=sinks, scale=scale, **options)

    def wrong_latent(*tensors, scale, **options):
        return latent(*tensors, scale=scale * (1.5 if slip == "scale" else 1), **options)

    def wrong_delta(query, key, value, decay, *others, **options):
        return delta(query, key, value, decay * (0 if slip == "decay" else 1), *others, **options)

    def wrong_conv(inputs, weight, kept, read, write, **options):
        return convolve(inputs, weight, kept, torch.full_like(read, -1) if slip == "inputs" else read, write, **options)

    def wrong_choice(scores, lengths, k, **options):
        chosen = choose(scores, lengths, k, **options)
        chosen[:, -1:] = -1 if slip == "choice" else chosen[:, -1:]
        return chosen

    def wrong_last(lengths, counts):
        return last(lengths, (counts + (slip == "window")).minimum(lengths))

    monkeypatch.setattr(compressed, "_last", wrong_last)
    monkeypatch.setattr(compressed, "mla_decode", wrong_latent)
    monkeypatch.setattr(indexer, "top_k_positions", wrong_choice)
    monkeypatch.setattr(layers, "paged_attention", wrong)
    monkeypatch.setattr(layers, "mla_decode", wrong_latent)
    monkeypatch.setattr(states, "gated_delta_step", wrong_delta)
    monkeypatch.setattr(states, "conv_step", wrong_conv)
    if slip == "padding":
        monkeypatch.setattr(step.ForwardPass, "make_room", lambda self, mask, **sizes: make_room(self, None, **sizes))
    model = model_of(name)
    cache = hf.PagedCache(model.config, num_blocks=80, block_size=4)
    assert distance(generate(model, cache), eager(name)) > MODELS[name].bound


def test_a_served_model_computes_as_before_over_other_caches(monkeypatch):
    served = eager("kimi_linear")
    monkeypatch.setattr(hf, "serve", lambda model: model)
    assert distance(served, generate(model_of("kimi_linear"))) == 0


def test_latents_take_less_than_keys_and_values():
    """Bytes of a token in a layer: 32 + 32 elements, in place of 4 heads of a key of 24 and a value of 24."""
    cache = hf.PagedCache(model_of("deepseek_v3").config, num_blocks=30, block_size=8)
    (latents,), _ = cache.paged.layers
    assert latents[0, 0].nbytes == (32 + 32) * 4


def test_blocks_behind_a_window_of_all_layers_are_freed():
    model = model_of("mistral")
    cache = hf.PagedCache(model.config, num_blocks=80, block_size=4)
    generate(model, cache)
    assert cache.paged.manager.statistics().used_blocks <= 3 * 6, "a window of 20 tokens lies in 6 blocks of 4 at most"
    assert cache.paged.seq_lens(range(3)).sum() > 3 * 6 * 4


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("llama", "cuda_thread_group"),
        ("llama", "triton_online_softmax"),
        ("qwen3_next", {"conv_step": "cuda_vectors", "gated_delta_step": "cuda_columns"}),
        ("kimi_linear", {"conv_step": "triton_vectors", "gated_delta_step": "triton_tile"}),
    ],
)
def test_a_kernel_of_choice_serves_the_model(name, variant):
    model = model_of(name) if name in STATEFUL else model_of(name, num_hidden_layers=1)
    layout = {"layout": "x"} if name == "llama" else {}
    cache = hf.PagedCache(model.config, num_blocks=30, variant=variant, **layout)
    found, expected = generate(model, cache, max_new_tokens=3), generate(model, max_new_tokens=3)
    assert distance(found, expected) < MODELS[name].bound


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("deepseek_v3", "cuda_latent_mma"),
        (
            "deepseek_v32",
            {"mla_decode": "triton_latent", "indexer_scores": "cuda_mma", "top_k_positions": "triton_bits"},
        ),
        (
            "deepseek_v4",
            {"mla_decode": "cuda_latent_mma", "indexer_scores": "triton_dot", "pool_windows": "cuda_online"},
        ),
    ],
)
def test_a_kernel_of_choice_reads_latents(name, variant):
    """These kernels take 16-bit elements, whose rounding moves logits more."""
    options = {"layer_types": ["compressed_sparse_attention"]} if name in COMPRESSED else {}
    model = model_of(name, num_hidden_layers=1, **options).half()
    cache = hf.PagedCache(model.config, num_blocks=30, dtype=torch.float16, variant=variant)
    options = {"rows": slice(2, 3), "max_new_tokens": 2}
    found, expected = generate(model, cache, **options), generate(model, **options)
    assert 0 < distance(found, expected) < 0.02


@pytest.mark.parametrize(("kind", "share"), [("int8", 0.05), ("fp8_e4m3", 0.12), ("fp8_e5m2", 0.2)])
def test_a_quantized_cache_is_near(kind, share, monkeypatch):
    """Logits of the step after the prompt move by a share of their spread (RMS); by far more under a wrong scale."""
    model, op = model_of("llama"), layers.paged_attention
    exact = generate(model, max_new_tokens=2).logits[1]

    def moved() -> float:
        sizes = {"num_blocks": 30, "kv_cache_dtype": kind}
        cache = hf.PagedCache(model.config, k_scale="token", v_scale="token", **sizes)
        assert {side.element_size() for pair in cache.paged.layers for side in pair} == {1}
        found = generate(model, cache, max_new_tokens=2).logits[1]
        return float((found - exact).square().mean().sqrt() / exact.std())

    assert 0 < moved() < share
    wrong = lambda *tensors, v_scale, **options: op(*tensors, v_scale=2 * v_scale, **options)  # noqa: E731
    monkeypatch.setattr(layers, "paged_attention", wrong)
    assert moved() > 2 * share


def test_a_checkpoint_from_a_folder(tmp_path):
    model = model_of("qwen2")
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation=hf.NAME)
    cache = hf.PagedCache(loaded.config, num_blocks=30)
    got = loaded.generate(**prompts(), max_new_tokens=NEW, do_sample=False, past_key_values=cache)
    assert torch.equal(got, eager("qwen2").sequences)
