"""Bayesian optimisation: a Gaussian process says where an improvement is most likely, and is told what came of it.

First the untuned rule's configuration and points spread over the space, then always the configurations of largest
expected improvement, until the space is empty. Failed configurations count as worse than the worst measured one, so the
search keeps away from where kernels do not compile.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Mapping

import numpy as np

from workbench.tuning.space import Space
from workbench.tuning.surrogate import GaussianProcess, coordinates, expected_improvement

BATCH = 2
"""Asked for at once, so that one can be compiled while the other is measured."""

_CANDIDATES = 4096
"""Of a larger space so many random points are looked at in each step, and the neighbours of the best."""
_FITTED = 400
"""The process is fitted to the best so many scores at most: its cost grows with the cube."""
_REFITS = 64
"""Up to so many scores the length scales are chosen anew at each step, later at every eighth."""
_FAILED = 2.0
"""What a failed configuration counts as: so many times the worst measured."""


def bayesian(space: Space, start: Mapping | None, rng: random.Random) -> Generator[list[dict], list[float], None]:
    """A strategy (see :mod:`workbench.tuning.search`): expected improvement under a Gaussian process."""
    points = coordinates(space.parameters, space.rows)
    count, dimensions = points.shape
    if not count:
        return
    first = space.index(start) if start is not None else rng.randrange(count)
    wanted = _spread(points, first, dimensions + 2, rng)
    scores: dict[int, float] = {}
    process = GaussianProcess(dimensions)
    while wanted:
        answers = yield [space[at] for at in wanted]
        scores.update(zip(wanted, answers, strict=True))
        wanted = _improving(process, points, scores, _candidates(space, scores, rng))


def _spread(points: np.ndarray, first: int, count: int, rng: random.Random) -> list[int]:
    """``first`` and others, each far from those before it among a random few."""
    chosen = [first]
    extent = np.maximum(np.ptp(points, axis=0), 1e-9)
    scaled = points / extent
    nearest = np.sum((scaled - scaled[first]) ** 2, axis=1)
    while len(chosen) < min(count, len(points)):
        some = rng.sample(range(len(points)), min(len(points), max(16, len(points) // 20)))
        best = max(some, key=lambda at: nearest[at])
        if nearest[best] <= 0:
            best = int(np.argmax(nearest))
        if nearest[best] <= 0:
            break
        chosen.append(best)
        nearest = np.minimum(nearest, np.sum((scaled - scaled[best]) ** 2, axis=1))
    return chosen


def _candidates(space: Space, scores: Mapping[int, float], rng: random.Random) -> np.ndarray:
    if len(space) <= _CANDIDATES:
        return np.array([at for at in range(len(space)) if at not in scores], dtype=int)
    some = set(rng.sample(range(len(space)), _CANDIDATES))
    for at in sorted(scores, key=scores.__getitem__)[:3]:
        some.update(space.index(config) for config in space.neighbours(space[at], adjacent=False))
    return np.array(sorted(some - scores.keys()), dtype=int)


def _improving(
    process: GaussianProcess, points: np.ndarray, scores: Mapping[int, float], left: np.ndarray
) -> list[int]:
    """The next batch: each the largest expected improvement, the ones before it taken to come out as predicted."""
    if not len(left):
        return []
    known = sorted(scores, key=scores.__getitem__)[:_FITTED]
    values = _log(np.array([scores[at] for at in known]))
    best = float(values.min())
    count = len(scores)
    rounds = 1 if count <= _REFITS or count % 8 == 0 else 0
    batch: list[int] = []
    while len(batch) < BATCH and len(left):
        process.fit(points[known], values, rounds=0 if batch else rounds)
        mean, deviation = process.predict(points[left])
        at = int(np.argmax(expected_improvement(mean, deviation, best)))
        batch.append(int(left[at]))
        known, values = [*known, batch[-1]], np.append(values, mean[at])
        left = np.delete(left, at)
    return batch


def _log(scores: np.ndarray) -> np.ndarray:
    finite = np.isfinite(scores)
    worst = float(scores[finite].max()) if finite.any() else 1.0
    return np.log(np.where(finite, scores, _FAILED * worst)) if math.isfinite(worst) else np.zeros(len(scores))
