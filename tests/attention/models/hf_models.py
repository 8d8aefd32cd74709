"""Tiny models of transformers with random weights, and what they generate by the eager path and over a cache."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch


class Tiny(NamedTuple):
    """A family of models with the options of its configuration.

    ``bound`` holds the logits of every step: how far float32's rounding moves them.
    """

    family: str
    options: dict[str, Any]
    bound: float = 1e-4


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
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "q_lora_rank": 48,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
INDEXED = {"index_topk": 9, "index_head_dim": 64, "index_n_heads": 16}
STATES = {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2}
MODELS = {
    "llama": Tiny("Llama", {}),
    "qwen2": Tiny("Qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "mistral": Tiny("Mistral", {"sliding_window": WINDOW}),
    "gemma2": Tiny(
        "Gemma2",
        {"sliding_window": WINDOW, "head_dim": 32, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0},
    ),
    "gemma3": Tiny("Gemma3", {"sliding_window": WINDOW, "head_dim": 32, "sliding_window_pattern": 2}),
    "gpt_oss": Tiny(
        "GptOss", {"sliding_window": WINDOW, "head_dim": 32, "num_local_experts": 2, "num_experts_per_tok": 1}
    ),
    "deepseek_v3": Tiny("DeepseekV3", LATENT | {"n_routed_experts": 4, "num_mtp_layers": 0}),
    "deepseek_v32": Tiny("DeepseekV32", LATENT | INDEXED | {"n_routed_experts": 4}),
    "glm_moe_dsa": Tiny("GlmMoeDsa", LATENT | INDEXED | {"n_routed_experts": 4, "indexer_types": ["full", "shared"]}),
    "deepseek_v4": Tiny(
        "DeepseekV4",
        EXPERTS
        | {"layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]}
        | {"compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8}}
        | {"num_key_value_heads": 1, "head_dim": 32, "partial_rotary_factor": 0.5, "sliding_window": 10}
        | {"index_topk": 3, "index_head_dim": 32, "index_n_heads": 16, "n_routed_experts": 4, "num_hash_layers": 0}
        | {"q_lora_rank": 48, "o_groups": 2, "o_lora_rank": 16, "hc_mult": 2, "hc_sinkhorn_iters": 4},
    ),
    "qwen3_next": Tiny(
        "Qwen3Next",
        EXPERTS
        | STATES
        | {"head_dim": 32, "num_experts": 4, "shared_expert_intermediate_size": 32}
        | {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
        | {"linear_key_head_dim": 16, "linear_value_head_dim": 32},
    ),
    "kimi_linear": Tiny(
        "KimiLinear", LATENT | STATES | {"linear_head_dim": 16, "linear_num_heads": 4, "num_local_experts": 4}
    ),
}
COMPRESSED = ["deepseek_v4"]
WINDOWED = [name for name, tiny in MODELS.items() if "sliding_window" in tiny.options and name not in COMPRESSED]
LATENTS = [name for name, tiny in MODELS.items() if "kv_lora_rank" in tiny.options]
STATEFUL = ["qwen3_next", "kimi_linear"]
INDEXERS = [name for name, tiny in MODELS.items() if "index_topk" in tiny.options]
SERVED = LATENTS + STATEFUL + COMPRESSED


def model_of(name: str, **more: Any):
    """A tiny model, served if it has to be."""
    import transformers

    from workbench.attention.models import hf

    family = MODELS[name].family
    torch.manual_seed(0)
    text = "Text" if family == "Gemma3" else ""
    config = getattr(transformers, f"{family}{text}Config")(**SIZES | MODELS[name].options | more)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for parameter, values in model.named_parameters():
        if parameter.endswith(("sinks", "position_bias")):
            torch.nn.init.normal_(values)  # zeros in a new model
    return hf.serve(model) if name in SERVED else model


def prompts(rows: slice = slice(None)) -> dict[str, torch.Tensor]:
    """Three prompts of 13, 28 and 33 tokens, padded on the left; or some of them, without padding of all."""
    torch.manual_seed(1)
    ids, mask = torch.randint(2, 97, (3, 33)), torch.ones(3, 33, dtype=torch.int64)
    mask[0, :20] = mask[1, :5] = 0
    ids, mask = (ids * mask)[rows], mask[rows]
    shown = mask.any(0)
    return {"input_ids": ids[:, shown], "attention_mask": mask[:, shown]}


def generate(model, cache=None, *, rows: slice = slice(None), **options: Any):
    """Tokens by the eager path, or over a cache; never padding, whose zeros tie all scores of an indexer."""
    model.set_attn_implementation("eager" if cache is None else "workbench_paged")
    options = {"max_new_tokens": NEW, "do_sample": False, "output_logits": True, "suppress_tokens": [0]} | options
    return model.generate(**prompts(rows), past_key_values=cache, return_dict_in_generate=True, **options)


@cache
def eager(name: str, *, steps: int = NEW, beams: int = 1) -> SimpleNamespace:
    """Return what the eager path generates; computed once.

    Of models with compressors each row alone, without padding: transformers pools padding into entries.
    """
    model = model_of(name)
    parts = [slice(row, row + 1) for row in range(3)] if name in COMPRESSED else [slice(None)]
    found = [generate(model, rows=rows, max_new_tokens=steps, num_beams=beams) for rows in parts]
    widths = [prompts(rows)["input_ids"].shape[1] for rows in parts]
    answers = torch.cat([one.sequences[:, width:] for one, width in zip(found, widths, strict=True)])
    logits = [torch.cat(step) for step in zip(*(one.logits for one in found), strict=True)]
    return SimpleNamespace(sequences=torch.cat([prompts()["input_ids"], answers], 1), logits=logits)


def same_tokens(one, other) -> bool:
    return torch.equal(one.sequences, other.sequences)


def distance(one, other) -> float:
    """Largest difference of the logits of a step: more than equal tokens says, which a constant answer gives, too."""
    return max(float((a - b).abs().max()) for a, b in zip(one.logits, other.logits, strict=True))
