"""How well one list of times orders what another one orders: rank correlation, and what the first choice costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """Predicted times against true ones.

    ``spearman`` and ``kendall`` are rank correlations (1: the same order); ``regret`` is how much longer the best by
    prediction takes than the best, as a share (of several predicted alike, their mean); ``error`` the median relative
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
    """Spearman's rho: the correlation of the ranks, ties at their mean rank. NaN where all of one list are equal."""
    a, b = (_ranks(values) for values in (one, other))
    a, b = a - a.mean(), b - b.mean()
    spread = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / spread) if spread else float("nan")


def kendall(one: np.ndarray, other: np.ndarray) -> float:
    """Kendall's tau-b: concordant less discordant pairs, as a share of those that are not tied."""
    a, b = (np.sign(values[:, None] - values[None, :]) for values in (one, other))
    untied = np.sqrt(np.count_nonzero(a) * float(np.count_nonzero(b)))
    return float((a * b).sum() / untied) if untied else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]
