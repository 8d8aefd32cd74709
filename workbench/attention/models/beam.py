"""Beam search over any cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workbench.attention.kvcache.errors import check_count
from workbench.attention.models.caches import ModelCache, make_cache
from workbench.attention.models.generation import STOP, advance, check_prompt
from workbench.attention.models.gpt import GPT
from workbench.attention.models.sampling import check_finite
from workbench.errors import ArgumentError


@dataclass(frozen=True)
class Beam:
    """One result of `beam_search`: new tokens, and the sum of their log probabilities."""

    tokens: list[int]
    log_probability: float

    def score(self, length_penalty: float) -> float:
        """Return ``log_probability / length ** length_penalty``, by which beams are ranked."""
        return self.log_probability / max(len(self.tokens), 1) ** length_penalty


def beam_search(
    model: GPT,
    prompt: Sequence[int],
    beam_width: int,
    *,
    max_new_tokens: int = 32,
    length_penalty: float = 0.0,
    cache: ModelCache | None = None,
    stop: Sequence[int] = STOP,
) -> list[Beam]:
    """Return the ``beam_width`` best continuations found, the best first.

    Every step scores all tokens after all beams and keeps the best ``beam_width`` of them; several of these may extend
    the same beam, and some beams end. In the cache that is one `reorder`, which in a paged cache only changes block
    tables. A beam that ends with a stop token is finished, and the next best takes its place.

    Args:
        model: the model that scores tokens.
        prompt: token ids, at least one.
        beam_width: number of beams; at most half of the vocabulary.
        max_new_tokens: largest number of tokens of a beam; 0 returns one empty beam.
        length_penalty: finished beams are ranked by ``log_probability / length ** length_penalty``.
        cache: where keys and values are kept; default: a paged cache of the size needed.
        stop: token ids that end a beam.

    Raises:
        ArgumentError: if a size, or the prompt, does not fit the model or the cache.
        OutOfBlocksError: if the pool is full. After either error, all sequences are freed.
    """
    check_count("beam_width", beam_width, 1, "1 is greedy search.")
    if beam_width * 2 > model.config.vocab_size:
        raise ArgumentError("beam_width", beam_width, f"at most {model.config.vocab_size // 2}", "Take fewer beams.")
    prompt = check_prompt(model, prompt, max_new_tokens)
    if max_new_tokens == 0:
        return [Beam([], 0.0)]
    if cache is None:
        cache = make_cache("paged", model, num_tokens=len(prompt) + max_new_tokens, num_seqs=beam_width)
    ends = frozenset(stop)
    beams, finished, names = [Beam([], 0.0)], list[Beam](), [0]
    step = cache.begin(0, prompt)
    try:
        while True:
            chances = torch.log_softmax(check_finite(advance(model, step)).double(), dim=-1)
            parents, chosen = [], []
            for parent, token, total in _best(chances, beams, beam_width + len(ends) * len(beams)):
                if token in ends:
                    finished.append(Beam(beams[parent].tokens, total))
                else:
                    parents.append(parent)
                    chosen.append(Beam([*beams[parent].tokens, token], total))
                if len(chosen) == beam_width:
                    break
            beams = chosen
            full = len(beams[0].tokens) == max_new_tokens
            # Without a penalty a sum of logarithms only falls: a beam behind the finished ones stays behind.
            beaten = length_penalty == 0 and len(finished) >= beam_width and (
                sorted(beam.log_probability for beam in finished)[-beam_width] >= beams[0].log_probability
            )  # fmt: skip
            if full or beaten:
                found = finished + (beams if full else [])
                return sorted(found, key=lambda beam: beam.score(length_penalty), reverse=True)[:beam_width]
            cache.reorder(dict(enumerate(parents)))
            names = list(range(len(beams)))
            step = cache.extend({index: beam.tokens[-1:] for index, beam in enumerate(beams)})
    finally:
        for name in names:
            cache.free(name)


def _best(chances: torch.Tensor, beams: list[Beam], number: int) -> list[tuple[int, int, float]]:
    """Return the most probable (beam, token, sum of log probabilities) for ``chances [num_beams, vocab_size]``."""
    sums = chances + torch.tensor([beam.log_probability for beam in beams], dtype=chances.dtype)[:, None].to(chances)
    best, vocab_size = sums.flatten().topk(min(number, sums.numel())), chances.shape[1]
    places = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [(place // vocab_size, place % vocab_size, total) for place, total in places]
