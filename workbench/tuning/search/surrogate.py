"""A Gaussian process over a space of configurations, which predicts times from measured ones.

Configurations are points. A number's coordinate is its place among the parameter's values (tunables are mostly powers
of two, so equal steps are equal factors). A second coordinate is how often it can be halved, if that goes up and down
with the place: numbers that a warp or a sector divides are alike, wherever they lie. Values that are no numbers are all
equally far from each other.

The model is of log seconds. Its covariance is a sum: a Matérn 5/2 with one length scale for each coordinate (automatic
relevance determination), and a part that only counts how many parameters differ, for values that do well or badly by
themselves, next to others that do not. Length scales and the parts' shares are chosen by the marginal likelihood; a
prior keeps the scales near two steps. Sources: Rasmussen and Williams, *Gaussian Processes for Machine Learning*,
chapters 2, 4 and 5; the count of differences: Ru et al. (2020), *Bayesian Optimisation over Multiple Continuous and
Categorical Inputs*; expected improvement: Jones, Schonlau and Welch (1998).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

_STEPS = (0.5, 0.7, 1.4, 2.0)
"""Factors by which a length scale is changed on trial in one round."""
_SHORTEST, _USUAL, _LONGEST = 0.3, 2.0, 30.0
"""Length scales, in steps from one value to the next; the prior has its middle at the usual one."""
_SHARES = (0.05, 0.2, 0.5)
"""Shares of the variance that the count of differences may have; the middle one is the first."""
_DIFFERENT = 0.7
"""Factor by which each parameter that differs lowers that covariance."""
_NOISE = 1e-3
"""Standard deviation of the noise, as a share of that of the scores."""
_ROOM = 64
"""Rows that are allocated ahead."""


def coordinates(parameters: Mapping[str, Sequence], rows: np.ndarray) -> np.ndarray:
    """Return points ``[number of rows, dimensions]`` for rows of indices into each parameter's values."""
    columns: list[np.ndarray] = []
    for at, values in enumerate(parameters.values()):
        index = rows[:, at]
        if len(np.unique(index)) < 2:
            continue
        if not all(isinstance(value, int | float) for value in values):
            columns.extend(math.sqrt(0.5) * (index == value) for value in range(len(values)))
            continue
        order = np.argsort(values)
        place = np.empty(len(values))
        place[order] = np.arange(len(values))
        columns.append(place[index])
        if all(isinstance(value, int) and value > 0 for value in values):
            halvings = np.array([(value & -value).bit_length() - 1 for value in values], float)
            steps = np.diff(halvings[order])
            if steps.min() < 0 < steps.max():
                columns.append(halvings[index])
    return np.stack(columns, axis=1).astype(float) if columns else np.zeros((len(rows), 0))


class GaussianProcess:
    """Gaussian process of scores at some of ``points [m, d]``, which predicts at a pool of them.

    ``rows [m, parameters]`` are the same points as indices of values. Points are added one at a time. A point's part of
    the computation that does not depend on its score is kept for the whole pool, so that one more costs a product of a
    matrix and a vector. Scales are kept from fit to fit.
    """

    def __init__(self, points: np.ndarray, rows: np.ndarray):
        self.scales = torch.full((points.shape[1],), _USUAL, dtype=torch.float64)
        self.share = _SHARES[1]
        self.known: list[int] = []
        self._points = torch.from_numpy(points)
        self._rows = torch.from_numpy(rows.astype(np.float64))

    def fit(self, known: Sequence[int], scores: np.ndarray, pool: np.ndarray, *, rounds: int = 1) -> None:
        """Start anew with the points ``known``, after ``rounds`` rounds of choosing scales and shares by ``scores``."""
        at = torch.as_tensor(known, dtype=torch.long)
        scaled = torch.from_numpy((scores - np.mean(scores)) / (np.std(scores) or 1.0))[:, None]
        best = self._objective(at, scaled, self.scales, self.share) if rounds else 0.0
        for _ in range(rounds):
            for axis in range(len(self.scales)):
                for factor in _STEPS:
                    tried = self.scales.clone()
                    tried[axis] = min(max(float(tried[axis]) * factor, _SHORTEST), _LONGEST)
                    value = self._objective(at, scaled, tried, self.share)
                    if value > best:
                        best, self.scales = value, tried
            for share in _SHARES:
                value = self._objective(at, scaled, self.scales, share)
                if value > best:
                    best, self.share = value, share
        self.known, self._pool = list(known), torch.from_numpy(pool)
        count = len(at)
        self._factor = torch.zeros((count + _ROOM, count + _ROOM), dtype=torch.float64)
        self._factor[:count, :count] = self._factored(at, self.scales, self.share)
        self._told = torch.zeros((count + _ROOM, len(pool)), dtype=torch.float64)
        cross = self._covariance(at, self._pool, self.scales, self.share)
        self._told[:count] = torch.linalg.solve_triangular(self._factor[:count, :count], cross, upper=False)
        self._variance = 1.0 - (self._told[:count] ** 2).sum(dim=0)

    def add(self, at: int) -> None:
        """Add a point whose score is known, or will be."""
        count = len(self.known)
        if count == len(self._factor):
            self._factor = torch.nn.functional.pad(self._factor, (0, _ROOM, 0, _ROOM))
            self._told = torch.nn.functional.pad(self._told, (0, 0, 0, _ROOM))
        new, known = torch.tensor([at]), torch.as_tensor(self.known, dtype=torch.long)
        cross = self._covariance(known, new, self.scales, self.share)
        row = torch.linalg.solve_triangular(self._factor[:count, :count], cross, upper=False)[:, 0]
        own = math.sqrt(max(1.0 + _NOISE**2 - float(row @ row), _NOISE**2))
        self._factor[count, :count], self._factor[count, count] = row, own
        news = self._covariance(new, self._pool, self.scales, self.share)[0] - row @ self._told[:count]
        self._told[count] = news / own
        self._variance = self._variance - self._told[count] ** 2
        self.known.append(at)

    def mean(self, scores: np.ndarray, otherwise: float | None = None) -> np.ndarray:
        """Return the mean at each point of the pool, from ``scores`` of `known`.

        NaN marks a point without a score; the process takes it to come out as expected. ``otherwise`` is the mean far
        from all known points; by default it is the mean of the scores.
        """
        given = np.isfinite(scores)
        middle = float(scores[given].mean()) if otherwise is None else otherwise
        first = int(np.argmin(given)) if not given.all() else len(scores)
        factor = self._factor.numpy()
        weights = np.zeros(len(scores))
        begun = torch.from_numpy(scores[:first] - middle)[:, None]
        weights[:first] = torch.linalg.solve_triangular(self._factor[:first, :first], begun, upper=False)[:, 0]
        for at in range(first, len(scores)):
            if given[at]:
                weights[at] = (scores[at] - middle - factor[at, :at] @ weights[:at]) / factor[at, at]
        return middle + (torch.from_numpy(weights) @ self._told[: len(scores)]).numpy()

    def deviation(self) -> np.ndarray:
        """Return the standard deviation at each point of the pool, as a share of that of the scores."""
        return self._variance.clamp(min=1e-12).sqrt().numpy()

    def _covariance(self, left: torch.Tensor, right: torch.Tensor, scales: torch.Tensor, share: float) -> torch.Tensor:
        root = math.sqrt(5) * torch.cdist(self._points[left] / scales, self._points[right] / scales)
        near = (1 + root + root * root / 3) * torch.exp(-root)
        return (1 - share) * near + share * _DIFFERENT ** torch.cdist(self._rows[left], self._rows[right], p=0)

    def _factored(self, at: torch.Tensor, scales: torch.Tensor, share: float) -> torch.Tensor:
        covariance = self._covariance(at, at, scales, share)
        covariance.diagonal().add_(_NOISE**2)
        return torch.linalg.cholesky(covariance)

    def _objective(self, at: torch.Tensor, scaled: torch.Tensor, scales: torch.Tensor, share: float) -> float:
        """Return the log marginal likelihood plus the log prior of the length scales."""
        factor = self._factored(at, scales, share)
        half = torch.linalg.solve_triangular(factor, scaled, upper=False)
        likelihood = -0.5 * (half * half).sum() - factor.diagonal().log().sum()
        return float(likelihood - 0.5 * ((scales / _USUAL).log() ** 2).sum())


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """Return how far below ``best`` a normal variable is expected to fall; values above it count 0."""
    z = (best - mean) / deviation
    below = torch.special.ndtr(torch.from_numpy(z)).numpy()
    return (best - mean) * below + deviation * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
