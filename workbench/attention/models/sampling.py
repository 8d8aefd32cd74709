"""Sampling of a token from logits: the most probable one, or one drawn with a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workbench.attention.kvcache.errors import check_count
from workbench.errors import ArgumentError, WorkbenchError


class GenerationError(WorkbenchError):
    """Logits from which no token can be chosen, because some are not finite."""


@dataclass(frozen=True)
class Sampling:
    """Parameters that control how a token is chosen; the default is greedy.

    Attributes:
        temperature: divisor of the logits; 0 takes the most probable token, whatever else is set.
        top_k: keep only the k most probable tokens (and those equal to the last of them).
        top_p: keep only the most probable tokens that together reach this probability, after ``top_k``.
        seed: seed of the draws; the same seed, prompt and logits give the same text.

    Raises:
        ArgumentError: if a value is outside its range.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (isinstance(self.temperature, int | float) and 0 <= self.temperature < math.inf):
            raise ArgumentError("temperature", self.temperature, "0 (greedy) or above", "1 leaves the model as it is.")
        if self.top_k is not None:
            check_count("top_k", self.top_k, 1, "40 is usual; None keeps every token.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ArgumentError("top_p", self.top_p, "above 0, at most 1, or None", "0.9 is usual.")


GREEDY = Sampling()


class Sampler:
    """Chooser of the tokens of one sequence, with a random generator of its own."""

    def __init__(self, sampling: Sampling = GREEDY):
        self.sampling = sampling
        self._generator = torch.Generator().manual_seed(sampling.seed)

    def pick(self, logits: torch.Tensor) -> int:
        """Choose a token for logits ``[vocab_size]``.

        Raises:
            GenerationError: if a logit is NaN or infinite.
        """
        check_finite(logits)
        if self.sampling.temperature == 0:
            return int(logits.argmax())
        return int(torch.multinomial(probabilities(logits, self.sampling), 1, generator=self._generator))


def pick_each(samplers: Sequence[Sampler], logits: torch.Tensor) -> list[int | WorkbenchError]:
    """Return the token that each sampler picks from its row of logits ``[num_seqs, vocab_size]``, or its error."""
    likeliest, finite = logits.argmax(dim=-1).tolist(), logits.isfinite().all(dim=-1).tolist()
    found: list[int | WorkbenchError] = []
    for row, sampler in enumerate(samplers):
        if finite[row] and sampler.sampling.temperature == 0:
            found.append(likeliest[row])
            continue
        try:
            found.append(sampler.pick(logits[row]))
        except WorkbenchError as error:
            found.append(error)
    return found


def check_finite(logits: torch.Tensor) -> torch.Tensor:
    """Return the logits; GenerationError if one is NaN or infinite."""
    if not bool(logits.isfinite().all()):
        raise GenerationError(
            f"{int((~logits.isfinite()).sum())} of {logits.numel()} logits of the model are not finite. "
            "Look for a broken scale of a quantized cache, or for weights that overflow."
        )
    return logits


def probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Return the probabilities of the tokens, ``[vocab_size] float64`` on the CPU, for a temperature above 0."""
    scaled = logits.detach().double().cpu() / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < len(scaled):
        scaled = scaled.masked_fill(scaled < scaled.topk(sampling.top_k).values[-1], -torch.inf)
    chances = torch.softmax(scaled, dim=-1)
    if sampling.top_p is not None:
        ordered, order = chances.sort(descending=True, stable=True)
        before = ordered.cumsum(0) - ordered  # sum of the more probable tokens: a token stays if that is below top_p
        chances = chances.index_fill(0, order[before >= sampling.top_p], 0.0)
    return chances / chances.sum()
