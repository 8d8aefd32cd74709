"""Rank statistics: how well one list of times orders another, and whether two lists differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """Agreement of predicted times with true ones.

    ``spearman`` and ``kendall`` are rank correlations (1: the same order). ``regret`` is the extra time of the best by
    prediction over the true best, as a share (the mean over several predicted alike). ``error`` is the median relative
    error.
    """

    spearman: float
    kendall: float
    regret: float
    error: float


def agreement(predicted: np.ndarray, true: np.ndarray) -> Agreement:
    """Compare ``predicted [n]`` with ``true [n]`` seconds, n >= 2."""
    chosen = true[predicted <= predicted.min() * (1 + 1e-9)].mean()
    error = float(np.median(np.abs(predicted / true - 1)))
    return Agreement(spearman(predicted, true), kendall(predicted, true), float(chosen / true.min() - 1), error)


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's rho: the correlation of the ranks, ties at their mean rank.

    NaN if all of one list are equal.
    """
    a, b = (_ranks(values) for values in (one, other))
    a, b = a - a.mean(), b - b.mean()
    spread = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / spread) if spread else float("nan")


def kendall(one: np.ndarray, other: np.ndarray) -> float:
    """Return Kendall's tau-b: concordant less discordant pairs, as a share of those that are not tied."""
    a, b = (np.sign(values[:, None] - values[None, :]) for values in (one, other))
    untied = np.sqrt(np.count_nonzero(a) * float(np.count_nonzero(b)))
    return float((a * b).sum() / untied) if untied else float("nan")


def rank_sum(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the chance that two lists of one distribution differ as much as these, infinities included.

    The two-sided test of Mann and Whitney (1947) by its normal approximation, corrected for ties and continuity.
    """
    count, total = len(one), len(one) + len(other)
    _, tied = np.unique([*one, *other], return_counts=True)
    spread = math.sqrt(count * (total - count) / 12 * (total + 1 - (tied**3 - tied).sum() / (total * (total - 1))))
    ranks = _ranks(np.array([*one, *other], dtype=float))[:count].sum()
    apart = abs(ranks - count * (total + 1) / 2) - 0.5
    return math.erfc(max(apart, 0.0) / spread / math.sqrt(2)) if spread else 1.0


def holm(chances: Mapping[str, float]) -> dict[str, float]:
    """Correct the chances of several comparisons for their number; return them with the smallest first.

    If nothing differs, one or more of them is below 0.05 by chance once in twenty times (Holm, 1979).
    """
    corrected, least = {}, 0.0
    for others, name in enumerate(sorted(chances, key=lambda name: chances[name])):
        least = max(least, min(1.0, chances[name] * (len(chances) - others)))
        corrected[name] = least
    return corrected


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]
