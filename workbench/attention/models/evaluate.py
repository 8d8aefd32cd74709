"""Perplexity of a model on held-out text over a cache, with confidence intervals.

Every window of text is read back through the cache (`PagedCache` with ``read_back``), so that a token sees its past,
and itself, as the cache stores them: as if the text had been generated token by token.

The interval is a bootstrap over windows (Efron, 1979), because tokens of one text are not independent. Two caches are
compared window by window on the same draws, so that the difficulty of a text cancels out and small differences show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from workbench.attention.kvcache.errors import check_count
from workbench.attention.models.caches import ModelCache
from workbench.attention.models.gpt import GPT
from workbench.attention.models.tokenizer import END_OF_TEXT, Tokenizer
from workbench.errors import ArgumentError


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of one cache on some windows of text.

    Attributes:
        name: name of the cache.
        value: perplexity, ``exp(mean loss per token)``.
        low: lower end of its 95 % interval.
        high: upper end of that interval.
        ratio: perplexity as a multiple of that of the first cache measured, window by window.
        ratio_low: lower end of the ratio's 95 % interval.
        ratio_high: upper end of that interval.
    """

    name: str
    value: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float

    def __str__(self) -> str:
        return (
            f"{self.name:28}{self.value:8.3f} [{self.low:.2f}, {self.high:.2f}]"
            f"{100 * (self.ratio - 1):+9.2f} % [{100 * (self.ratio_low - 1):+.2f}, {100 * (self.ratio_high - 1):+.2f}]"
        )


def token_stream(tokenizer: Tokenizer, texts: Iterable[str]) -> torch.Tensor:
    """Return token ids ``[num_tokens] int64`` of texts in a row, an end of text before each and after the last."""
    tokens = [END_OF_TEXT]
    for text in texts:
        tokens += [*tokenizer.encode(text), END_OF_TEXT]
    return torch.tensor(tokens)


def windows(tokenizer: Tokenizer, texts: Iterable[str], length: int) -> torch.Tensor:
    """Cut the token stream of texts into windows ``[num_windows, length + 1] int64`` that overlap by one token.

    Raises:
        ArgumentError: if there is less text than one window.
    """
    tokens = token_stream(tokenizer, texts)
    if len(tokens) <= length:
        raise ArgumentError(
            "texts", f"{len(tokens)} tokens", f"at least {length + 1}", "Use more text, or shorter windows."
        )
    return tokens.unfold(0, length + 1, length).contiguous()


@torch.inference_mode()
def losses(model: GPT, tokens: torch.Tensor, cache: ModelCache) -> torch.Tensor:
    """Return the cross-entropy ``[num_windows]`` in nats per token of windows ``[num_windows, length + 1]``.

    The model reads each window over the cache, which is empty before and after.
    """
    found = []
    for window in tokens:
        step = cache.begin("window", window[:-1].tolist())
        try:
            hidden = model(step.tokens, step.positions, step.attend)
            found.append(functional.cross_entropy(model.logits(hidden), window[1:].to(hidden.device)))
        finally:
            cache.free("window")
    return torch.stack(found).cpu().double()


def perplexities(
    model: GPT,
    tokens: torch.Tensor,
    caches: Mapping[str, Callable[[], ModelCache]],
    *,
    draws: int = 2000,
    seed: int = 0,
) -> list[Perplexity]:
    """Measure the perplexity of a model over several caches; ratios are relative to the first cache.

    Args:
        model: the model.
        tokens: windows ``[num_windows, length + 1]``, at least two.
        caches: functions by name, each of which makes an empty cache with room for a window.
        draws: number of bootstrap samples.
        seed: seed of the bootstrap.
    """
    check_count("draws", draws, 1, "2000 are usual.")
    if len(tokens) < 2:
        raise ArgumentError("tokens", f"{len(tokens)} windows", "two or more", "An interval needs several windows.")
    drawn = torch.randint(len(tokens), (draws, len(tokens)), generator=torch.Generator().manual_seed(seed))
    rows, first = [], None
    for name, make in caches.items():
        loss = losses(model, tokens, make())
        first = loss if first is None else first
        ends = [_interval(values, drawn) for values in (loss, loss - first)]
        ratio = math.exp(float((loss - first).mean()))
        rows.append(Perplexity(name, math.exp(float(loss.mean())), *ends[0], ratio, *ends[1]))
    return rows


def _interval(values: torch.Tensor, drawn: torch.Tensor) -> tuple[float, float]:
    """Return exp of the 2.5 % and 97.5 % quantiles of the mean over drawn windows."""
    low, high = values[drawn].mean(1).quantile(torch.tensor([0.025, 0.975], dtype=values.dtype)).exp().tolist()
    return low, high
