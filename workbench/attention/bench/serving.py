"""Tokens per CPU second of the engine and of transformers' batched ``generate``, with the shipped model's weights.

Both serve the same requests in turn, so that other load on the machine affects both; the least time of each counts.
transformers computes a batch of rows, padded on the left, until the longest is finished. The tokens of both are
compared first; if they differ by more than rounding explains, neither gets a time.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.attention.kvcache import PagedKVCache
from workbench.attention.models import Engine
from workbench.attention.models.gpt import GPT
from workbench.errors import MissingToolError, WrongResultError
from workbench.tuning.bench import in_turn

ROUNDS = 5
_LEAST_SAME = 0.98
"""Least fraction of equal tokens; rounding may decide between two tokens that are equally probable."""


@dataclass(frozen=True)
class Serving:
    """Measurements of one set of requests.

    Attributes:
        prompt_tokens: tokens of each prompt.
        new_tokens: new tokens of each request.
        engine_seconds: CPU time of the engine for all requests, the least of `ROUNDS`.
        peer_seconds: CPU time of transformers for all requests, the least of `ROUNDS`.
        same_tokens: fraction of the tokens that are equal, up to the first difference of each request.
    """

    prompt_tokens: tuple[int, ...]
    new_tokens: tuple[int, ...]
    engine_seconds: float
    peer_seconds: float
    same_tokens: float

    @property
    def ratio(self) -> float:
        """Tokens per CPU second of the engine, as a multiple of those of transformers."""
        return self.peer_seconds / self.engine_seconds

    def __str__(self) -> str:
        tokens = sum(self.new_tokens)
        least, most = min(self.new_tokens), max(self.new_tokens)
        each = f"{most}" if least == most else f"{least} to {most}"
        return (
            f"{len(self.new_tokens)} requests of {each} new tokens, tokens per CPU second: engine "
            f"{tokens / self.engine_seconds:.0f}, transformers' batched generate {tokens / self.peer_seconds:.0f}: "
            f"{self.ratio:.2f}x ({self.same_tokens:.0%} same text)"
        )


def serve(model: GPT, prompts: Sequence[Sequence[int]], new_tokens: Sequence[int], rounds: int = ROUNDS) -> Serving:
    """Serve the requests with the engine and with transformers, in turn, and compare their tokens and times.

    Raises:
        MissingToolError: if transformers is not installed.
        WrongResultError: if their tokens differ.
    """
    ways = {"engine": _engine(model, prompts, new_tokens), "peer": _peer(model, prompts, new_tokens)}
    texts: dict[str, list[list[int]]] = {}

    def served(name: str) -> None:
        texts[name] = ways[name]()

    seconds = in_turn({name: functools.partial(served, name) for name in ways}, rounds, time.process_time)
    same = agreement(texts["engine"], texts["peer"])
    if same < _LEAST_SAME:
        raise WrongResultError(f"the engine and transformers write different texts: {same:.0%} of the tokens agree")
    lengths = tuple(map(len, prompts))
    return Serving(lengths, tuple(new_tokens), min(seconds["engine"]), min(seconds["peer"]), same)


def agreement(found: Sequence[Sequence[int]], exact: Sequence[Sequence[int]]) -> float:
    """Return the fraction of tokens that are equal, up to the first difference of each sequence."""
    same = 0
    for one, other in zip(found, exact, strict=True):
        same += next((index for index, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), len(one))
    return same / sum(map(len, exact))


def _engine(model: GPT, prompts: Sequence[Sequence[int]], new_tokens: Sequence[int]) -> Callable[[], list[list[int]]]:
    c, block_size = model.config, 16
    num_blocks = sum(-(-(len(prompt) + new) // block_size) for prompt, new in zip(prompts, new_tokens, strict=True))

    def run() -> list[list[int]]:
        cache = PagedKVCache(
            num_layers=c.num_layers, num_blocks=num_blocks, block_size=block_size, num_kv_heads=c.num_kv_heads,
            head_size=c.head_size, dtype=model.dtype,
        )  # fmt: skip
        engine = Engine(model, cache, max_num_seqs=len(prompts))
        names = [engine.add(one, max_new_tokens=new, stop=()) for one, new in zip(prompts, new_tokens, strict=True)]
        for _ in engine.run():
            pass
        return [engine.results[name].tokens for name in names]

    return run


def _peer(model: GPT, prompts: Sequence[Sequence[int]], new_tokens: Sequence[int]) -> Callable[[], list[list[int]]]:
    llama = as_llama(model)
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1

    def run() -> list[list[int]]:
        out = llama.generate(ids, attention_mask=mask, max_new_tokens=max(new_tokens), do_sample=False)
        return [row[:new] for row, new in zip(out[:, longest:].tolist(), new_tokens, strict=True)]

    return run


def as_llama(model: GPT) -> Any:
    """Return a ``LlamaForCausalLM`` of transformers with the model's weights, which computes the same.

    Raises:
        MissingToolError: if transformers is not installed.
    """
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise MissingToolError('transformers cannot be imported: python -m pip install -e ".[hf]"') from error
    c = model.config
    config = LlamaConfig(
        vocab_size=c.vocab_size, hidden_size=c.hidden_size, intermediate_size=c.ffn_size,
        num_hidden_layers=c.num_layers, num_attention_heads=c.num_heads, num_key_value_heads=c.num_kv_heads,
        head_dim=c.head_size, max_position_embeddings=c.context_length, rms_norm_eps=c.norm_eps,
        rope_theta=c.rope_theta, tie_word_embeddings=True, pad_token_id=0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    llama = LlamaForCausalLM(config).eval()
    embedding = model.embedding.weight
    weights = {"model.embed_tokens": embedding, "lm_head": embedding, "model.norm": model.norm.weight}
    heads, kv_heads = c.num_heads * c.head_size, c.num_kv_heads * c.head_size
    for index, block in enumerate(model.blocks):
        query, key, value = block.qkv.weight.split([heads, kv_heads, kv_heads])
        weights |= {
            f"model.layers.{index}.{name}": weight
            for name, weight in (
                ("self_attn.q_proj", query), ("self_attn.k_proj", key), ("self_attn.v_proj", value),
                ("self_attn.o_proj", block.out.weight), ("mlp.gate_proj", block.gate.weight),
                ("mlp.up_proj", block.up.weight), ("mlp.down_proj", block.down.weight),
                ("input_layernorm", block.attention_norm.weight), ("post_attention_layernorm", block.ffn_norm.weight),
            )
        }  # fmt: skip
    llama.load_state_dict({f"{name}.weight": weight for name, weight in weights.items()})
    return llama
