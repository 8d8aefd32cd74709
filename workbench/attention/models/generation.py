"""Text generation over any cache: one sequence, or several samples of one prompt.

Beam search is in `workbench.attention.models.beam`.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Generator, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from workbench.attention.kvcache.errors import check_count
from workbench.attention.models.caches import ForwardStep, ModelCache, make_cache
from workbench.attention.models.gpt import GPT
from workbench.attention.models.sampling import GREEDY, Sampler, Sampling
from workbench.attention.models.tokenizer import END_OF_TEXT, Tokenizer
from workbench.errors import ArgumentError

STOP = (END_OF_TEXT,)


@torch.inference_mode()
def advance(model: GPT, step: ForwardStep) -> torch.Tensor:
    """Run the model for a step and return the logits ``[num_seqs, vocab_size] float32`` of each newest token."""
    return model.logits(model(step.tokens, step.positions, step.attend)[step.last])


def stream(
    model: GPT,
    prompt: Sequence[int],
    *,
    max_new_tokens: int = 64,
    cache: ModelCache | None = None,
    sampling: Sampling = GREEDY,
    stop: Sequence[int] = STOP,
    seq: Hashable = "prompt",
) -> Generator[int, None, None]:
    """Yield the tokens that continue a prompt, each as soon as it is known.

    The prompt is computed when the first token is requested. However the generator ends, also by ``close()`` or an
    error, the sequence's blocks or row are freed.

    Args:
        model: the model.
        prompt: token ids, at least one.
        max_new_tokens: largest number of tokens; 0 yields nothing and leaves the cache untouched.
        cache: where keys and values are kept; default: a paged cache of the size needed.
        sampling: how tokens are chosen.
        stop: token ids that end the text; they are not yielded.
        seq: name of the sequence in the cache.

    Raises:
        ArgumentError: at once, if the prompt is empty, has unknown ids or leaves no room in the model's context; later,
            when it is computed, if it does not fit into the cache.
        OutOfBlocksError: if the pool is full.
    """
    prompt = check_prompt(model, prompt, max_new_tokens)
    if cache is None:
        cache = make_cache("paged", model, num_tokens=len(prompt) + max_new_tokens)
    return _stream(model, prompt, max_new_tokens, cache, Sampler(sampling), frozenset(stop), seq)


def _stream(
    model: GPT, prompt: Sequence[int], max_new_tokens: int, cache: ModelCache, sampler: Sampler, stop: Collection[int],
    seq: Hashable,
) -> Generator[int, None, None]:  # fmt: skip
    if max_new_tokens == 0:
        return
    step = cache.begin(seq, prompt)
    try:
        for number in range(1, max_new_tokens + 1):
            token = sampler.pick(advance(model, step)[0])
            if token in stop:
                return
            yield token
            if number < max_new_tokens:
                step = cache.extend({seq: [token]})
    finally:
        cache.free(seq)


def generate(model: GPT, prompt: Sequence[int], **options: Any) -> list[int]:
    """Return the tokens that continue a prompt; arguments and errors as for `stream`."""
    return list(stream(model, prompt, **options))


def stream_text(model: GPT, tokenizer: Tokenizer, prompt: str, **options: Any) -> Iterator[str]:
    """Yield the text that continues a prompt, piece by piece; options and errors as for `stream`."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")  # a character may come in several tokens
    for token in stream(model, tokenizer.encode(prompt), **options):
        piece = decoder.decode(tokenizer.decode_bytes([token]))
        if piece:
            yield piece
    rest = decoder.decode(b"", final=True)
    if rest:
        yield rest


def parallel_samples(
    model: GPT,
    prompt: Sequence[int],
    num_samples: int,
    *,
    sampling: Sampling,
    max_new_tokens: int = 64,
    cache: ModelCache | None = None,
    stop: Sequence[int] = STOP,
) -> list[list[int]]:
    """Generate several continuations of one prompt, which is computed once and then shared by all samples.

    Sample i draws with ``sampling.seed + i``, so it equals what `generate` returns for that seed. In a paged cache the
    samples share the prompt's blocks; if the last one is partial, each sample but one copies it when it first writes.
    Errors are those of `stream`; after one, all sequences are freed.
    """
    check_count("num_samples", num_samples, 1, "Continuations of the prompt.")
    prompt = check_prompt(model, prompt, max_new_tokens)
    samples: list[list[int]] = [[] for _ in range(num_samples)]
    if max_new_tokens == 0:
        return samples
    if cache is None:
        cache = make_cache("paged", model, num_tokens=len(prompt) + max_new_tokens, num_seqs=num_samples)
    samplers = [Sampler(replace(sampling, seed=sampling.seed + index)) for index in range(num_samples)]
    step = cache.begin(0, prompt)
    running = [0]
    try:
        logits = advance(model, step).expand(num_samples, -1)
        cache.reorder(dict.fromkeys(range(num_samples), 0))
        running = list(range(num_samples))
        while True:
            for index, row in zip(running.copy(), logits, strict=True):
                token = samplers[index].pick(row)
                if token not in stop:
                    samples[index].append(token)
                if token in stop or len(samples[index]) == max_new_tokens:
                    cache.free(index)
                    running.remove(index)
            if not running:
                return samples
            logits = advance(model, cache.extend({index: samples[index][-1:] for index in running}))
    finally:
        for index in running:
            cache.free(index)


def check_prompt(model: GPT, prompt: Sequence[int], max_new_tokens: int) -> list[int]:
    """Return the prompt as a list of token ids that the model can continue.

    Raises:
        ArgumentError: if it is empty, has ids outside the vocabulary, or is too long with the tokens to come.
    """
    check_count("max_new_tokens", max_new_tokens, 0, "Tokens to generate at most.")
    prompt = prompt.tolist() if hasattr(prompt, "tolist") else list(prompt)
    if not prompt:
        raise ArgumentError("prompt", "no tokens", "at least one", f"Begin with the end of text, [{END_OF_TEXT}].")
    size = model.config.vocab_size
    odd = [token for token in prompt if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < size]
    if odd:
        raise ArgumentError("prompt", repr(odd[0]), f"token ids from 0 to {size - 1}", "Encode it with the tokenizer.")
    longest = model.config.context_length
    if len(prompt) + max_new_tokens > longest:
        raise ArgumentError(
            "prompt", f"{len(prompt)} tokens and {max_new_tokens} new ones",
            f"at most {longest} in all, the model's context", "Shorten it, or ask for fewer tokens.",
        )  # fmt: skip
    return prompt
