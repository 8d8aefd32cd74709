"""Speed and memory of the shipped model over every cache, and their growth: ``workbench bench generate``.

The caches take steps in turn, so that other load on the machine affects all of them: trust the ratios rather than the
seconds. The tokens of the unquantized caches are compared first; one that changes the text gets no time. The engine,
with its continuous batching, is measured beside transformers in `workbench.attention.bench.serving`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.attention.bench.serving import Serving, agreement, serve
from workbench.attention.kvcache import MemoryUse
from workbench.attention.kvcache.errors import check_count
from workbench.attention.models import CACHES, held_out_documents, load_gpt, make_cache
from workbench.attention.models.generation import advance, check_prompt
from workbench.errors import UnknownNameError, WrongResultError
from workbench.tuning.bench import Benchmark

_UNQUANTIZED = ("none", "contiguous", "paged")
_EDGE = 16
"""Number of steps at each end from which the growth is computed."""


@dataclass(frozen=True)
class GenerationRow:
    """Measurements of one cache.

    Attributes:
        cache: name of the cache.
        prompt_seconds: time to compute all prompts, one after the other.
        step_seconds: time of each step, in which every sequence gets one token.
        reserved_bytes: bytes that the sequences hold after each step.
        memory: memory use after the last step.
        same_tokens: fraction of the tokens that equal those of an unquantized cache, up to the first difference of each
            sequence.
    """

    cache: str
    prompt_seconds: float
    step_seconds: tuple[float, ...]
    reserved_bytes: tuple[int, ...]
    memory: MemoryUse
    same_tokens: float

    @property
    def growth(self) -> float:
        """Median time of the last steps, as a multiple of that of the first steps."""
        return statistics.median(self.step_seconds[-_EDGE:]) / statistics.median(self.step_seconds[:_EDGE])


@dataclass(frozen=True)
class GenerationBenchmark(Benchmark):
    """Result of `run`: a row for each cache, and with peers ``serving``, the comparison with transformers."""

    kind = "bench-generate"

    prompt_tokens: tuple[int, ...]
    new_tokens: int
    context_length: int
    rows: tuple[GenerationRow, ...]
    serving: tuple[Serving, ...] = ()

    def row(self, cache: str) -> GenerationRow:
        """Return the row of a cache."""
        return next(row for row in self.rows if row.cache == cache)

    def tokens_per_second(self, row: GenerationRow) -> float:
        """Return the new tokens per second of all sequences together, without the time of the prompts."""
        return len(self.prompt_tokens) / statistics.median(row.step_seconds)

    def __str__(self) -> str:
        first = self.tokens_per_second(self.rows[0])
        lines = [
            f"{len(self.prompt_tokens)} sequences, prompts of {', '.join(map(str, self.prompt_tokens))} tokens, "
            f"{self.new_tokens} new tokens each; rows of {self.context_length}; seconds of this CPU, ratios of one run",
            f"{'cache':16}{'tokens/s':>10}{'ratio':>8}{'step grows':>12}{'held KiB':>10}{'wasted':>8}{'same text':>11}",
        ]
        for row in self.rows:
            speed, use = self.tokens_per_second(row), row.memory
            wasted = f"{use.wasted_bytes / use.reserved_bytes:.0%}" if use.reserved_bytes else "–"
            lines.append(
                f"{row.cache:16}{speed:>10.0f}{speed / first:>7.1f}x{row.growth:>11.2f}x"
                f"{use.reserved_bytes / 1024:>10.0f}{wasted:>8}{row.same_tokens:>11.0%}"
            )
        return "\n".join([*lines, *map(str, self.serving)])


def run(
    *,
    new_tokens: int = 160,
    prompt_tokens: Sequence[int] = (64, 40, 16, 4),
    caches: Sequence[str] = CACHES,
    peers: bool = False,
) -> GenerationBenchmark:
    """Generate the same sequences over every cache; the caches take steps in turn.

    Args:
        new_tokens: new tokens of each sequence; at least 1.
        prompt_tokens: lengths of the prompts, which are the beginnings of held-out documents.
        caches: names in `CACHES`, in the order of the table; ratios are relative to the first.
        peers: True also lets the engine and transformers serve four times as many requests, first with ``new_tokens``
            each, then with lengths from a quarter of that to all of it, as real requests differ.

    Raises:
        ArgumentError: if the model's context is too short for the lengths, or a cache does not exist.
        WrongResultError: if an unquantized cache changed the text.
        MissingToolError: if ``peers`` is given without transformers.
    """
    check_count("new_tokens", new_tokens, 1, "160 show the growth well.")
    for name in caches:
        if name not in CACHES:
            raise UnknownNameError("caches", repr(name), ", ".join(CACHES), "See workbench.attention.models.caches.")
    model, tokenizer = load_gpt()
    longest = model.config.context_length
    texts = [tokenizer.encode(text) for text in held_out_documents().values()]
    texts = [text for text in texts if len(text) >= max(prompt_tokens)]
    prompts = [
        check_prompt(model, texts[index % len(texts)][:length], new_tokens)
        for index, length in enumerate(prompt_tokens)
    ]
    opened = {name: make_cache(name, model, num_tokens=longest, num_seqs=len(prompts)) for name in caches}
    tokens: dict[str, list[list[int]]] = {name: [] for name in caches}
    prompt_seconds = dict.fromkeys(caches, 0.0)
    seconds: dict[str, list[float]] = {name: [] for name in caches}
    reserved: dict[str, list[int]] = {name: [] for name in caches}
    for seq, prompt in enumerate(prompts):
        for name, cache in opened.items():
            start = time.perf_counter()
            tokens[name].append([int(advance(model, cache.begin(seq, prompt)).argmax())])
            prompt_seconds[name] += time.perf_counter() - start
    for _ in range(new_tokens - 1):
        for name, cache in opened.items():
            start = time.perf_counter()
            step = cache.extend({seq: found[-1:] for seq, found in enumerate(tokens[name])})
            chosen = advance(model, step).argmax(dim=-1).tolist()
            seconds[name].append(time.perf_counter() - start)
            for found, token in zip(tokens[name], chosen, strict=True):
                found.append(token)
            reserved[name].append(cache.memory().reserved_bytes)
    exact = next((tokens[name] for name in caches if name in _UNQUANTIZED), None)
    rows = []
    for name, cache in opened.items():
        same = 1.0 if exact is None else agreement(tokens[name], exact)
        if name in _UNQUANTIZED and same < 1:
            raise WrongResultError(f"cache {name!r} changed the text: {same:.0%} of the tokens agree before it differs")
        rows.append(
            GenerationRow(name, prompt_seconds[name], tuple(seconds[name]), tuple(reserved[name]), cache.memory(), same)
        )
    serving: tuple[Serving, ...] = ()
    if peers:
        many = 4 * prompts
        uneven = [max(new_tokens * (1 + (index + index // 4) % 4) // 4, 1) for index in range(len(many))]
        serving = tuple(serve(model, many, lengths) for lengths in ([new_tokens] * len(many), uneven))
    return GenerationBenchmark(tuple(map(len, prompts)), new_tokens, longest, tuple(rows), serving)
