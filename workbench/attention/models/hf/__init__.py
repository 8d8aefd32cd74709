"""Hugging Face models over a paged KV cache: an attention function and a `Cache` for transformers (extra ``hf``).

::

    import workbench.attention.models.hf as hf

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation=hf.NAME)
    cache = hf.PagedCache(model.config, num_blocks=256)
    model.generate(**tokenizer(prompts, padding=True, return_tensors="pt"), past_key_values=cache)

Importing the module registers the attention function. Prompts may have unequal lengths. Columns that the attention mask
hides take no slot, but they count in a sliding window, as in transformers. The tokens of a prompt attend in plain
torch; each later token goes through `workbench.attention.ops.paged_attention`, so that
``PagedCache(..., variant="cuda_thread_group")`` selects its kernel.

Models that keep something else than keys and values need ``hf.serve(model)`` in place of ``attn_implementation``:
DeepSeek-V3, whose latents `mla_decode` reads, DeepSeek-V3.2 and GLM-5, whose indexers choose the latents to read,
Qwen3-Next and Kimi Linear, whose states `gated_delta_step` moves on. Where scores of an indexer are equal, the lower
positions are read (`top_k_positions`); transformers promises no order.
"""

from transformers import AttentionInterface, AttentionMaskInterface

from workbench.attention.models.hf.cache import PagedCache
from workbench.attention.models.hf.interface import NAME, attention, padding_mask, serve

__all__ = ["NAME", "PagedCache", "attention", "padding_mask", "serve"]

AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, padding_mask)
