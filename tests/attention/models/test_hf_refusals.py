"""Hugging Face models over a paged cache: clear refusals, and the shipped model beside transformers."""

from __future__ import annotations

import pytest
import torch
from hf_models import generate, model_of, prompts

from workbench.attention.bench import serving
from workbench.attention.cache_studies.group_waste import MODELS as LAYERS
from workbench.attention.kvcache.errors import OutOfBlocksError
from workbench.attention.models import load_gpt, make_cache
from workbench.errors import ArgumentError, WrongResultError

transformers = hf = None


@pytest.fixture(autouse=True, scope="module")
def _imported():
    """They take seconds: only the worker that runs these tests imports them, and not while it collects."""
    global transformers, hf
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    hf = pytest.importorskip("workbench.attention.models.hf")


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

    def test_a_variant_of_an_operation_that_does_not_serve(self):
        with pytest.raises(ArgumentError, match="rotate_heads"):
            hf.PagedCache(model_of("llama").config, num_blocks=3, variant={"rotate_heads": "torch"})

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
            ("Jamba", "linear_attention"),
        ],
    )
    def test_attention_of_another_kind(self, family, said):
        with pytest.raises(ArgumentError, match=said):
            hf.PagedCache(getattr(transformers, f"{family}Config")(), num_blocks=3)

    @pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v32", "qwen3_next"])
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
        """Refuse a mask that hides or shows columns that are in the cache already, or says nothing of them."""
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
