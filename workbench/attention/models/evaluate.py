"""How well a model predicts held-out text over a cache: perplexity, with the interval that its sample allows.

Every window of text is read through the cache (`PagedCache` with ``read_back``), so that a token sees its past, and
itself, as the cache kept them: what it would see if the text had been generated token by token.

The interval is a bootstrap over windows (Efron, 1979), because tokens of one text are not independent. Two caches are
compared window by window on the same draws: how hard a text is cancels out, and small differences show.
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
    """One cache on some windows of text.

    Attributes:
        name: of the cache.
        value, low, high: perplexity, ``exp(mean loss per token)``, and the ends of its 95 % interval.
        ratio, ratio_low, ratio_high: the same over that of the first cache measured, window by window.
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
    """Token ids ``[num_tokens] int64`` of texts one after the other, an end of text before each and after the last."""
    tokens = [END_OF_TEXT]
    for text in texts:
        tokens += [*tokenizer.encode(text), END_OF_TEXT]
    return torch.tensor(tokens)


def windows(tokenizer: Tokenizer, texts: Iterable[str], length: int) -> torch.Tensor:
    """The stream of some texts cut into ``[num_windows, length + 1] int64``, each window sharing a token with the next.

    Raises:
        ArgumentError: less text than one window.
    """
    tokens = token_stream(tokenizer, texts)
    if len(tokens) <= length:
        raise ArgumentError(
            "texts", f"{len(tokens)} tokens", f"at least {length + 1}", "Take more, or shorter windows."
        )
    return tokens.unfold(0, length + 1, length).contiguous()


@torch.inference_mode()
def losses(model: GPT, tokens: torch.Tensor, cache: ModelCache) -> torch.Tensor:
    """Cross-entropy ``[num_windows]`` in nats per token of windows ``[num_windows, length + 1]`` over a cache."""
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
    """The perplexity of a model over several caches; the first is the one that the others are compared with.

    Args:
        tokens: windows ``[num_windows, length + 1]``, at least two.
        caches: name -> what makes the cache, empty and large enough for a window.
        draws: of the bootstrap, with this seed.
    """
    check_count("draws", draws, 1, "2000 are usual.")
    if len(tokens) < 2:
        raise ArgumentError("tokens", f"{len(tokens)} windows", "two or more", "An interval needs several.")
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
    """exp of the 2.5 % and 97.5 % quantiles of the mean over drawn windows."""
    low, high = values[drawn].mean(1).quantile(torch.tensor([0.025, 0.975], dtype=values.dtype)).exp().tolist()
    return low, high
