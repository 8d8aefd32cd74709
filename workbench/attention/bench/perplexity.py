"""Perplexity of the shipped model on held-out text with quantized caches: ``workbench bench perplexity``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from workbench.attention.cache_formats.quantization import CACHE_DTYPES, EIGHT_BITS
from workbench.attention.kvcache.errors import check_count
from workbench.attention.models import NoCache, held_out_documents, load_gpt, make_cache
from workbench.attention.models.caches import TOKEN_SCALES, ModelCache
from workbench.attention.models.calibration import calibrated_scales
from workbench.attention.models.evaluate import Perplexity, perplexities, windows
from workbench.tuning.bench import Benchmark

UNCALIBRATED = {"k_scale": 1.0, "v_scale": 1.0}


@dataclass(frozen=True)
class PerplexityBenchmark(Benchmark):
    """Result of `run`.

    Attributes:
        num_windows: number of windows of text.
        length: tokens of a window.
        calibration_windows: number of other windows, on which scales were calibrated.
        rows: perplexity of each cache; the first is without a cache.
    """

    kind = "bench-perplexity"

    num_windows: int
    length: int
    calibration_windows: int
    rows: tuple[Perplexity, ...]

    def row(self, name: str) -> Perplexity:
        """Return the row of a cache."""
        return next(row for row in self.rows if row.name == name)

    def __str__(self) -> str:
        head = (
            f"{self.num_windows} windows of {self.length} held-out tokens, scales from {self.calibration_windows} "
            "others; 95 % intervals over windows"
        )
        names = f"{'cache':28}{'perplexity':>8}{'':18}change against no cache"
        return "\n".join([head, names, *map(str, self.rows)])


def run(*, num_windows: int | None = None, length: int = 256, calibration_windows: int = 8) -> PerplexityBenchmark:
    """Measure the perplexity of held-out text over every cache, with every granularity of scales, calibrated or not.

    Args:
        num_windows: number of windows of text; default all.
        length: tokens of a window.
        calibration_windows: number of other held-out windows, evenly spread, on which scales are calibrated.

    Raises:
        ArgumentError: if a number of windows is too small.
    """
    model, tokenizer = load_gpt()
    check_count("calibration_windows", calibration_windows, 1, "8 are enough for a maximum.")
    found = windows(tokenizer, held_out_documents().values(), length)
    most = len(found) - calibration_windows
    num_windows = min(most if num_windows is None else check_count("num_windows", num_windows, 2, "At least 2."), most)
    chosen = {round(index * (len(found) - 1) / calibration_windows) for index in range(calibration_windows)}
    rest = [index for index in range(len(found)) if index not in chosen]
    tokens = found[[rest[round(index * (len(rest) - 1) / (num_windows - 1))] for index in range(num_windows)]]
    texts = found[sorted(chosen)].tolist()

    caches: dict[str, Callable[[], ModelCache]] = {"no cache": NoCache}
    for dtype in ("", *CACHE_DTYPES):
        kind = f"paged {dtype}".strip()
        make = functools.partial(make_cache, kind, model, num_tokens=length, read_back=True)
        if not dtype:
            caches["paged"] = make
            continue
        caches[f"{dtype}, scale 1"] = functools.partial(make, scales=UNCALIBRATED)
        for name, per_head in (("per tensor", False), ("per head", True)):
            scales = calibrated_scales(model, texts, dtype, per_head=per_head)
            caches[f"{dtype}, {name}"] = functools.partial(make, scales=scales)
        if dtype in EIGHT_BITS:
            caches[f"{dtype}, per token and head"] = functools.partial(make, scales=TOKEN_SCALES)
    rows = perplexities(model, tokens, caches)
    return PerplexityBenchmark(len(tokens), length, len(texts), tuple(rows))
