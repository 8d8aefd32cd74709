"""Bayesian optimisation: a Gaussian process, updated with each score, says where an improvement is most likely.

The search starts with the untuned rule's configuration and points spread over the space. Then it asks for pairs until
the space is empty: the configuration of largest expected improvement, and the one of largest expected improvement among
those that differ from the best in one parameter. So the neighbourhood of the best is searched along with the rest of
the space.

Real spaces are full of failures, and the best configurations often lie beside them. A failure says nothing about times,
so none is made up for it: the process takes it to come out as expected. The chance that a configuration runs is the
process's mean of successes (1) and failures (0); the expected improvement is multiplied by it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from typing import Any

import numpy as np

from workbench.ops.variant import Config
from workbench.tuning.search.space import Space
from workbench.tuning.search.surrogate import GaussianProcess, coordinates, expected_improvement

BATCH = 2
"""Configurations asked for at once, so that one can be compiled while the other is measured."""

_CANDIDATES = 8192
"""Random points looked at in a larger space, besides the neighbours of the best."""
_FITTED = 400
"""Largest number of scores that the process is fitted to, the best ones; half as many failures are added.

The cost of a fit grows with the cube.
"""
_REFITS, _EVERY = 64, 8
"""Up to _REFITS scores the process is fitted anew at each step, later after every _EVERY more scores."""
_AMONG = 4
"""Random points among which each of the first configurations is the farthest from those before it.

With more points it would lie in a corner of the space.
"""
_HOPELESS = 0.02
"""Least chance to run that a configuration is given."""


def bayesian(
    space: Space, start: Config | None, rng: random.Random
) -> Generator[list[dict[str, Any]], list[float], None]:
    """Search by expected improvement under a Gaussian process; a strategy of `workbench.tuning.search.strategies`."""
    points = coordinates(space.parameters, space.rows)
    if not len(points):
        return
    first = space.index(start) if start is not None else rng.randrange(len(points))
    wanted = _spread(points, first, points.shape[1], rng)
    search = _Search(points, space.rows, rng)
    while wanted:
        search.tell(wanted, (yield [space[at] for at in wanted]))
        wanted = search.next()


class _Search:
    """Scores known so far, and the choice of the next configurations; configurations are indices into the space."""

    def __init__(self, points: np.ndarray, rows: np.ndarray, rng: random.Random):
        self._rows, self._rng = rows, rng
        self._process = GaussianProcess(points, rows)
        self._logs: dict[int, float] = {}
        self._failed: dict[int, None] = {}
        self._fitted = 0
        self._pool = np.zeros(0, dtype=int)

    def tell(self, asked: list[int], seconds: list[float]) -> None:
        """Record the scores of configurations; infinity stands for one that failed."""
        for at, value in zip(asked, seconds, strict=True):
            if math.isfinite(value):
                self._logs[at] = math.log(value)
            else:
                self._failed[at] = None

    def next(self) -> list[int]:
        """Return the next pair; one configuration or none if no more are left."""
        count = len(self._logs) + len(self._failed)
        most = min(BATCH, len(self._rows) - count)
        if not most:
            return []
        if not self._logs:
            left = [at for at in range(len(self._rows)) if at not in self._failed]
            return self._rng.sample(left, most)
        best = min(self._logs, key=self._logs.__getitem__)
        asked = self._asked()
        if count <= _REFITS or count - self._fitted >= _EVERY or asked.all():
            self._fit()
            self._fitted, asked = count, self._asked()
        near = np.count_nonzero(self._rows[self._pool] != self._rows[best], axis=1) == 1
        wanted: list[int] = []
        while len(wanted) < most and not asked.all():
            promise = self._promise(self._logs[best])
            among = ~asked & near if wanted and (~asked & near).any() else ~asked
            chosen = int(np.argmax(np.where(among, promise, -1.0)))
            asked[chosen] = True
            wanted.append(int(self._pool[chosen]))
            self._process.add(wanted[-1])
        return wanted

    def _asked(self) -> np.ndarray:
        return np.isin(self._pool, [*self._logs, *self._failed])

    def _fit(self) -> None:
        ordered = sorted(self._logs, key=self._logs.__getitem__)
        self._pool = np.arange(len(self._rows))
        if len(self._rows) > _CANDIDATES:
            self._pool = self._pool[~self._asked()]
            some = set(self._rng.sample(self._pool.tolist(), min(len(self._pool), _CANDIDATES)))
            for at in ordered[:3]:
                differ = np.count_nonzero(self._rows[self._pool] != self._rows[at], axis=1)
                some.update(self._pool[differ == 1].tolist())
            self._pool = np.array(sorted(some), dtype=int)
        known = ordered[:_FITTED]
        self._process.fit(known, np.array([self._logs[at] for at in known]), self._pool)
        for at in list(self._failed)[-_FITTED // 2 :]:
            self._process.add(at)

    def _promise(self, best: float) -> np.ndarray:
        """Return the expected improvement times the chance to run, at each point of the pool."""
        known = self._process.known
        values = np.array([self._logs.get(at, math.nan) for at in known])
        deviation = self._process.deviation() * (float(np.nanstd(values)) or 1.0)
        promise = expected_improvement(self._process.mean(values), deviation, best)
        if self._failed:
            ran = (len(self._logs) + 1) / (len(self._logs) + len(self._failed) + 2)
            labels = np.array([1.0 if at in self._logs else 0.0 if at in self._failed else math.nan for at in known])
            promise *= np.clip(self._process.mean(labels, ran), _HOPELESS, 1.0)
        return promise


def _spread(points: np.ndarray, first: int, count: int, rng: random.Random) -> list[int]:
    """Return ``first`` and further points, each the farthest among a random few from those before it."""
    chosen = [first]
    extent = np.maximum(np.ptp(points, axis=0), 1e-9)
    scaled = points / extent
    nearest = np.sum((scaled - scaled[first]) ** 2, axis=1)
    while len(chosen) < min(count, len(points)):
        some = rng.sample(range(len(points)), min(len(points), _AMONG))
        best = max(some, key=lambda at: nearest[at])
        if nearest[best] <= 0:
            best = int(np.argmax(nearest))
        if nearest[best] <= 0:
            break
        chosen.append(best)
        nearest = np.minimum(nearest, np.sum((scaled - scaled[best]) ** 2, axis=1))
    return chosen
