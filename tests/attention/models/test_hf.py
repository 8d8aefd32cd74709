"""Hugging Face models over a paged cache: the tokens of the eager path, the blocks of a paged cache, clear refusals."""

from __future__ import annotations

import pytest
import torch

from workbench.attention.bench import serving
from workbench.attention.cache_studies.group_waste import MODELS as LAYERS
from workbench.attention.kvcache.errors import OutOfBlocksError
from workbench.attention.models import load_gpt, make_cache
from workbench.errors import ArgumentError, WrongResultError

transformers = hf = layers = states = step = None

SIZES = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "initializer_range": 0.2,  # scores far from uniform: what attention gets wrong changes tokens
}
WINDOW = 20
NEW = 12
"""Tokens to generate."""
EXPERTS = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
LATENT = EXPERTS | {
    "num_hidden_layers": 2,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "q_lora_rank": 48,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
STATES = {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2}
MODELS = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "mistral": ("Mistral", {"sliding_window": WINDOW}),
    "gemma2": (
        "Gemma2",
        {"sliding_window": WINDOW, "head_dim": 32, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0},
    ),
    "gemma3": ("Gemma3", {"sliding_window": WINDOW, "head_dim": 32, "sliding_window_pattern": 2}),
    "gpt_oss": ("GptOss", {"sliding_window": WINDOW, "head_dim": 32, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "deepseek_v3": ("DeepseekV3", LATENT | {"n_routed_experts": 4, "num_mtp_layers": 0}),
    "qwen3_next": (
        "Qwen3Next",
        EXPERTS
        | STATES
        | {"head_dim": 32, "num_experts": 4, "shared_expert_intermediate_size": 32}
        | {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
        | {"linear_key_head_dim": 16, "linear_value_head_dim": 32},
    ),
    "kimi_linear": (
        "KimiLinear",
        LATENT | STATES | {"linear_head_dim": 16, "linear_num_heads": 4, "num_local_experts": 4},
    ),
}
WINDOWED = [name for name, (_, options) in MODELS.items() if "sliding_window" in options]
LATENTS = ["deepseek_v3", "kimi_linear"]
STATEFUL = ["qwen3_next", "kimi_linear"]


@pytest.fixture(autouse=True, scope="module")
def _imported():
    """They take seconds: only the worker that runs these tests imports them, and not while it collects."""
    global transformers, hf, layers, states, step
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    hf = pytest.importorskip("workbench.attention.models.hf")
    from workbench.attention.models.hf import layers, states, step


def model_of(name: str, **more):
    family, options = MODELS[name]
    torch.manual_seed(0)
    text = "Text" if family == "Gemma3" else ""
    config = getattr(transformers, f"{family}{text}Config")(**SIZES | options | more)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    return hf.serve(model) if name in LATENTS + STATEFUL else model


def prompts() -> dict[str, torch.Tensor]:
    """Three prompts of 13, 28 and 33 tokens, padded on the left."""
    torch.manual_seed(1)
    ids, mask = torch.randint(2, 97, (3, 33)), torch.ones(3, 33, dtype=torch.int64)
    mask[0, :20] = mask[1, :5] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def generate(model, cache=None, **options):
    """Tokens by the eager path, or over a cache."""
    model.set_attn_implementation("eager" if cache is None else hf.NAME)
    options = {"max_new_tokens": NEW, "do_sample": False, "output_logits": True} | options
    return model.generate(**prompts(), past_key_values=cache, return_dict_in_generate=True, **options)


def same_tokens(one, other) -> bool:
    return torch.equal(one.sequences, other.sequences)


def same_scores(one, other) -> bool:
    """Logits of every step within float32's rounding: more than equal tokens, which a constant answer gives, too."""
    return all(torch.allclose(a, b, rtol=0, atol=2e-4) for a, b in zip(one.logits, other.logits, strict=True))


@pytest.mark.parametrize("name", MODELS)
class TestTokens:
    def test_greedy_tokens_are_those_of_the_eager_path(self, name):
        model = model_of(name)
        cache = hf.PagedCache(model.config, num_blocks=30, block_size=8)
        got, expected = generate(model, cache), generate(model)
        assert same_tokens(got, expected)
        assert same_scores(got, expected)
        assert cache.paged.seq_lens(range(3)).tolist() == [13 + NEW - 1, 28 + NEW - 1, 33 + NEW - 1], (
            "padding takes no slot"
        )

    @pytest.mark.parametrize(
        "chunk", [7, pytest.param(1, marks=pytest.mark.long), pytest.param(64, marks=pytest.mark.long)]
    )
    @pytest.mark.sampled(3)
    def test_prompts_in_chunks(self, name, chunk):
        """32 steps after a prompt that was read in chunks of so many columns."""
        model = model_of(name)
        cache = hf.PagedCache(model.config, num_blocks=60, block_size=8)
        got = generate(model, cache, prefill_chunk_size=chunk, max_new_tokens=32)
        assert same_tokens(got, generate(model, max_new_tokens=32))

    @pytest.mark.sampled(3)
    def test_beam_search_shares_blocks(self, name):
        model = model_of(name)
        cache = hf.PagedCache(model.config, num_blocks=80, block_size=4)
        assert same_tokens(generate(model, cache, num_beams=2), generate(model, num_beams=2))
        assert cache.paged.manager.statistics().sharing_saved > (0 if name in STATEFUL else 0.1)
        cache.reset()
        assert cache.paged.manager.statistics().used_blocks == 0
        assert same_scores(generate(model, cache), generate(model)), "a cache that was reset serves another batch"

    @pytest.mark.sampled(3)
    def test_a_second_turn_reads_the_first_ones_keys(self, name):
        model = model_of(name)
        cache = hf.PagedCache(model.config, num_blocks=60, block_size=8)
        first = generate(model, cache).sequences
        turn = torch.cat([first, prompts()["input_ids"][:, -6:]], 1)
        mask = torch.cat([prompts()["attention_mask"], torch.ones(3, turn.shape[1] - 33, dtype=torch.int64)], 1)
        both = []
        for implementation, past in (("eager", None), (hf.NAME, cache)):
            model.set_attn_implementation(implementation)
            options = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "past_key_values": past}
            both.append(model.generate(turn, **options))
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
    assert same_scores(*both)


@pytest.mark.parametrize(
    ("name", "slip"),
    [(name, slip) for name in MODELS for slip in ("scale", "padding")]
    + [(name, "window") for name in WINDOWED]
    + [("gemma2", "soft cap"), ("gpt_oss", "sinks")]
    + [(name, slip) for name in STATEFUL for slip in ("decay", "inputs")],
)
@pytest.mark.sampled(6)
def test_slips_change_tokens(name, slip, monkeypatch):
    """The comparison would notice.

    Another scale, padding attended, a window longer by one, no soft cap, no sinks, a state that does not fade, inputs
    of the convolution that are lost.
    """
    make_room = step.ForwardStep.make_room
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

    monkeypatch.setattr(layers, "paged_attention", wrong)
    monkeypatch.setattr(layers, "mla_decode", wrong_latent)
    monkeypatch.setattr(states, "gated_delta_step", wrong_delta)
    monkeypatch.setattr(states, "conv_step", wrong_conv)
    if slip == "padding":
        monkeypatch.setattr(step.ForwardStep, "make_room", lambda self, mask, **sizes: make_room(self, None, **sizes))
    model = model_of(name)
    cache = hf.PagedCache(model.config, num_blocks=80, block_size=4)
    assert not same_scores(generate(model, cache), generate(model))


def test_a_served_model_computes_as_before_over_other_caches(monkeypatch):
    served = generate(model_of("kimi_linear"))
    monkeypatch.setattr(hf, "serve", lambda model: model)
    assert same_scores(served, generate(model_of("kimi_linear")))


def test_latents_take_less_than_keys_and_values():
    """Bytes of a token in a layer: 32 + 8 elements, in place of 4 heads of a key of 24 and a value of 24."""
    cache = hf.PagedCache(model_of("deepseek_v3").config, num_blocks=30, block_size=8)
    (latents,), _ = cache.paged.layers
    assert latents[0, 0].nbytes == (32 + 8) * 4


def test_blocks_behind_a_window_of_all_layers_are_freed():
    model = model_of("mistral")
    cache = hf.PagedCache(model.config, num_blocks=80, block_size=4)
    generate(model, cache)
    assert cache.paged.manager.statistics().used_blocks <= 3 * 6, "a window of 20 tokens lies in 6 blocks of 4 at most"
    assert cache.paged.seq_lens(range(3)).sum() > 3 * 6 * 4


@pytest.mark.parametrize("variant", ["cuda_thread_group", "triton_online_softmax"])
def test_a_kernel_of_choice_serves_the_model(variant):
    model = model_of("llama", num_hidden_layers=1)
    cache = hf.PagedCache(model.config, num_blocks=30, variant=variant, layout="x")
    assert same_scores(generate(model, cache, max_new_tokens=4), generate(model, max_new_tokens=4))


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
    expected = generate(model).sequences
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation=hf.NAME)
    cache = hf.PagedCache(loaded.config, num_blocks=30)
    got = loaded.generate(**prompts(), max_new_tokens=NEW, do_sample=False, past_key_values=cache)
    assert torch.equal(got, expected)


class TestRefusals:
    """By name, and nothing taken from the pool."""

    def test_a_pool_that_is_too_small(self):
        model = model_of("llama")
        cache = hf.PagedCache(model.config, num_blocks=3, block_size=16)
        with pytest.raises(OutOfBlocksError):
            generate(model, cache)
        assert cache.paged.manager.statistics().used_blocks == 0, "the rows that had fitted were given back"
        assert cache.get_seq_length() == 0

    def test_a_pool_that_fills_while_generating(self):
        model = model_of("llama")
        cache = hf.PagedCache(model.config, num_blocks=12, block_size=8)
        with pytest.raises(OutOfBlocksError):
            generate(model, cache)
        held = cache.paged.seq_lens(range(3)).tolist()
        assert len({length - prompt for length, prompt in zip(held, (13, 28, 33), strict=True)}) == 1
        assert cache.get_seq_length() == held[2]

    @pytest.mark.parametrize("past", ["none", "dynamic"])
    def test_another_cache(self, past):
        model = model_of("llama")
        model.set_attn_implementation(hf.NAME)
        options = {"past_key_values": transformers.DynamicCache()} if past == "dynamic" else {}
        with pytest.raises(ArgumentError, match="a PagedCache"):
            model.generate(**prompts(), max_new_tokens=2, **options)

    def test_a_batch_of_another_size(self):
        model = model_of("llama")
        cache = hf.PagedCache(model.config, num_blocks=30)
        generate(model, cache, max_new_tokens=2)
        with pytest.raises(ArgumentError, match="3 rows for a batch of 1"):
            model(torch.tensor([[5]]), past_key_values=cache)

    def test_a_mask_of_its_own(self):
        model = model_of("llama")
        model.set_attn_implementation(hf.NAME)
        cache = hf.PagedCache(model.config, num_blocks=30)
        with pytest.raises(ArgumentError, match="attention_mask"):
            model(torch.ones(1, 4, dtype=torch.int64), attention_mask=torch.zeros(1, 1, 4, 4), past_key_values=cache)

    def test_training(self):
        model = model_of("llama", attention_dropout=0.1).train()
        model.set_attn_implementation(hf.NAME)
        with pytest.raises(ArgumentError, match="dropout"):
            model(torch.ones(1, 4, dtype=torch.int64), past_key_values=hf.PagedCache(model.config, num_blocks=30))

    @pytest.mark.parametrize("method", ["crop", "batch_repeat_interleave", "batch_select_indices"])
    def test_what_takes_tokens_back(self, method):
        cache = hf.PagedCache(model_of("llama").config, num_blocks=3)
        with pytest.raises(ArgumentError, match=method):
            getattr(cache, method)(torch.tensor(1))

    @pytest.mark.parametrize(
        ("family", "said"),
        [
            ("T5", "decoder-only"),
            ("DeepseekV2", "kv_lora_rank"),
            ("Llama4Text", "chunk"),
            ("Lfm2", "conv"),
        ],
    )
    def test_attention_of_another_kind(self, family, said):
        with pytest.raises(ArgumentError, match=said):
            hf.PagedCache(getattr(transformers, f"{family}Config")(), num_blocks=3)

    @pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_next"])
    def test_a_model_that_is_not_served(self, name, monkeypatch):
        monkeypatch.setattr(hf, "serve", lambda model: model)
        model = model_of(name)
        with pytest.raises(ArgumentError, match=r"hf\.serve"):
            generate(model, hf.PagedCache(model.config, num_blocks=30), max_new_tokens=2)

    def test_a_served_model(self):
        with pytest.raises(ArgumentError, match="served already"):
            hf.serve(model_of("deepseek_v3"))

    def test_quantized_latents(self):
        with pytest.raises(ArgumentError, match="int8"):
            hf.PagedCache(model_of("deepseek_v3").config, num_blocks=30, kv_cache_dtype="int8")

    def test_a_mask_that_changes_its_mind(self):
        """Of columns that are in the cache already: hidden now, shown now, or not spoken of."""
        model = model_of("llama")
        cache = hf.PagedCache(model.config, num_blocks=30)
        generate(model, cache, max_new_tokens=2)
        kept = torch.cat([prompts()["attention_mask"], torch.ones(3, 2, dtype=torch.int64)], 1)
        for column, said in ((30, r"0 at \[1, 30\]"), (2, r"1 at \[1, 2\]")):
            mask = kept.clone()
            mask[1, column] = 1 - mask[1, column]
            with pytest.raises(ArgumentError, match=f"attention_mask: got {said}"):
                model(torch.full((3, 1), 5), attention_mask=mask, past_key_values=cache)
        mask = torch.tensor([[0, 1, 1, 1]]).expand(3, 4)
        with pytest.raises(ArgumentError, match=r"attention_mask: got shape \(3, 4\); allowed: \(3, 35\)"):
            model(torch.full((3, 1), 5), attention_mask=mask, past_key_values=cache)
        assert cache.get_seq_length() == 34


class TestServing:
    """The shipped model and its engine beside transformers on the same weights."""

    def test_the_same_weights_compute_the_same(self):
        model, tokenizer = load_gpt()
        tokens = tokenizer.encode("The with statement is used to wrap the execution of a block")
        step = make_cache("none", model, num_tokens=64).begin("a", tokens)
        with torch.inference_mode():
            found = serving.as_llama(model)(torch.tensor([tokens])).logits[0]
            expected = model.logits(model(step.tokens, step.positions, step.attend))
        assert torch.allclose(found, expected, rtol=0, atol=1e-3)

    def test_both_serve_the_same_requests(self, monkeypatch):
        model, tokenizer = load_gpt()
        prompts = [tokenizer.encode(text) for text in ("The with statement", "A list", "def")]
        found = serving.serve(model, prompts, [3, 12, 7], rounds=1)
        assert found.same_tokens == 1
        assert "3 requests of 3 to 12 new tokens" in str(found)
        assert found.ratio == found.peer_seconds / found.engine_seconds
        as_llama = serving.as_llama

        def wrong(model):
            llama = as_llama(model)
            llama.model.layers[0].self_attn.q_proj.weight.data *= 3
            return llama

        monkeypatch.setattr(serving, "as_llama", wrong)
        with pytest.raises(WrongResultError, match="write different texts"):
            serving.serve(model, prompts, [3, 12, 7], rounds=1)


def test_layers_and_bytes_are_those_of_the_default_configurations():
    gpt_oss, qwen, kimi = (getattr(transformers, f"{name}Config")() for name in ("GptOss", "Qwen3Next", "KimiLinear"))

    def count(config, kind):
        return config.layer_types.count(kind)

    full, window = LAYERS["gpt-oss 120B"]
    assert (full.num_layers, window.num_layers) == (
        count(gpt_oss, "full_attention"),
        count(gpt_oss, "sliding_attention"),
    )
    assert full.layer_bytes == window.layer_bytes == 2 * gpt_oss.num_key_value_heads * gpt_oss.head_dim * 2
    assert window.reach == gpt_oss.sliding_window

    full, state = LAYERS["Qwen3-Next 80B"]
    assert (full.num_layers, state.num_layers) == (count(qwen, "full_attention"), count(qwen, "linear_attention"))
    assert full.layer_bytes == 2 * qwen.num_key_value_heads * qwen.head_dim * 2
    keys, values = qwen.linear_num_key_heads * qwen.linear_key_head_dim, qwen.linear_num_value_heads
    inputs = (qwen.linear_conv_kernel_dim - 1) * (2 * keys + values * qwen.linear_value_head_dim) * 2
    assert state.layer_bytes == values * qwen.linear_key_head_dim * qwen.linear_value_head_dim * 4 + inputs

    latent, state = LAYERS["Kimi Linear 48B"]
    assert (latent.num_layers, state.num_layers) == (count(kimi, "full_attention"), count(kimi, "linear_attention"))
    assert latent.layer_bytes == (kimi.kv_lora_rank + kimi.qk_rope_head_dim) * 2
    size = kimi.linear_num_heads * kimi.linear_head_dim
    assert state.layer_bytes == size * kimi.linear_head_dim * 4 + (kimi.linear_conv_kernel_dim - 1) * 3 * size * 2
