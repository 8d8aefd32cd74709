#!/usr/bin/env bash
# Left padding changes what DeepSeek V4 computes in transformers: its compressors pool padding into entries.
#
# Version: transformers 5.23.0 and torch 2.13.0 from PyPI, CPython 3.11, eager attention, float32.
# Behaviour: the compressors group columns of the batch, so that padding on the left becomes part of an entry, or whole
# entries, while positions count the tokens behind the padding. A prompt gets other logits in a left-padded batch than
# alone, by far more than rounding; DeepSeek V3 with the same sizes and batch agrees to rounding. A batch of prompts of
# unequal lengths therefore generates other tokens than the prompts one by one.
# Output seen: "deepseek_v3: largest difference of logits 0.0000000; deepseek_v4: largest difference of logits 0.0738110".
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 transformers==5.23.0 numpy
cat > "$folder/check.py" <<'PYTHON'
import torch
import transformers
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, DeepseekV4Config, DeepseekV4ForCausalLM

transformers.logging.set_verbosity_error()
sizes = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 32, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1,
    "attn_implementation": "eager", "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None,
}
latent = {
    "num_key_value_heads": 4, "q_lora_rank": 48, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16,
    "v_head_dim": 16, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}
compressed = {
    "num_key_value_heads": 1, "head_dim": 32, "partial_rotary_factor": 0.5, "sliding_window": 10, "q_lora_rank": 48,
    "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
    "index_topk": 3, "index_head_dim": 32, "index_n_heads": 16, "num_hash_layers": 0, "o_groups": 2, "o_lora_rank": 16,
    "hc_mult": 2, "hc_sinkhorn_iters": 4,
}
prompt = torch.randint(1, 64, (1, 30), generator=torch.Generator().manual_seed(0))


def difference(config, model_class):
    """Return the largest difference of the last logits of a prompt alone and behind 3 columns of padding."""
    torch.manual_seed(0)
    model = model_class(config).eval()
    ids = torch.cat([torch.zeros(1, 3, dtype=torch.int64), prompt], 1)
    mask = (torch.arange(33) >= 3).long()[None]
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.inference_mode():
        alone = model(prompt).logits[0, -1]
        padded = model(ids, attention_mask=mask, position_ids=positions).logits[0, -1]
    return float((alone - padded).abs().max())


found = {
    "deepseek_v3": difference(DeepseekV3Config(**sizes, **latent), DeepseekV3ForCausalLM),
    "deepseek_v4": difference(DeepseekV4Config(**sizes, **compressed), DeepseekV4ForCausalLM),
}
print("; ".join(f"{name}: largest difference of logits {value:.7f}" for name, value in found.items()))
assert found["deepseek_v3"] < 1e-4
assert found["deepseek_v4"] > 20 * max(found["deepseek_v3"], 1e-6)
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
