"""A Gaussian process over a space of configurations: what has been measured tells what the others may take.

Configurations are points whose coordinates are the places of their values among the parameter's values (tunables are
mostly powers of two, so equal steps are equal factors); values that are no numbers are all equally far from each other.
The model is of log seconds, with a Matérn 5/2 covariance that has one length scale for each parameter (automatic
relevance determination), chosen by the marginal likelihood under a prior that keeps them near two steps. Sources:
Rasmussen and Williams, *Gaussian Processes for Machine Learning*, chapters 2, 4 and 5; expected improvement: Jones,
Schonlau and Welch (1998).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

_STEPS = (0.5, 0.7, 1.4, 2.0)
"""Factors by which a length scale is tried longer or shorter in one round."""
_SHORTEST, _USUAL, _LONGEST = 0.3, 2.0, 30.0
"""Length scales in steps from one value to the next; the prior has its middle at the usual one."""
_NOISE = 1e-3
"""Standard deviation of the noise, as a share of that of the scores."""


def coordinates(parameters: Mapping[str, Sequence], rows: np.ndarray) -> np.ndarray:
    """Points ``[number of rows, dimensions]`` for rows of indices into each parameter's values."""
    columns = []
    for at, values in enumerate(parameters.values()):
        index = rows[:, at]
        if len(values) < 2:
            continue
        if all(isinstance(value, int | float) for value in values):
            place = np.empty(len(values))
            place[np.argsort(values)] = np.arange(len(values))
            columns.append(place[index])
        else:
            columns.extend(math.sqrt(0.5) * (index == value) for value in range(len(values)))
    return np.stack(columns, axis=1).astype(float) if columns else np.zeros((len(rows), 0))


class GaussianProcess:
    """Fitted again and again as scores come in; length scales are kept from one fit to the next."""

    def __init__(self, dimensions: int):
        self.scales = torch.full((dimensions,), _USUAL, dtype=torch.float64)

    def fit(self, points: np.ndarray, scores: np.ndarray, *, rounds: int = 1) -> None:
        """Condition on ``points [n, d]`` and ``scores [n]``, after so many rounds of choosing the length scales."""
        self._points = torch.from_numpy(points)
        self._mean, self._deviation = float(np.mean(scores)), float(np.std(scores)) or 1.0
        self._y = torch.from_numpy((scores - self._mean) / self._deviation)[:, None]
        best = self._objective(self.scales) if rounds else 0.0
        for _ in range(rounds):
            for at in range(len(self.scales)):
                for factor in _STEPS:
                    tried = self.scales.clone()
                    tried[at] = min(max(float(tried[at]) * factor, _SHORTEST), _LONGEST)
                    value = self._objective(tried)
                    if value > best:
                        best, self.scales = value, tried
        self._factor = self._factored(self.scales)
        self._weights = torch.cholesky_solve(self._y, self._factor)

    def predict(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation at ``points [m, d]``, in the unit of the scores."""
        cross = _matern(torch.from_numpy(points), self._points, self.scales)
        mean = (cross @ self._weights)[:, 0]
        half = torch.linalg.solve_triangular(self._factor, cross.T, upper=False)
        variance = (1.0 - (half * half).sum(dim=0)).clamp(min=1e-12)
        return (self._mean + self._deviation * mean).numpy(), (self._deviation * variance.sqrt()).numpy()

    def _factored(self, scales: torch.Tensor) -> torch.Tensor:
        covariance = _matern(self._points, self._points, scales)
        covariance.diagonal().add_(_NOISE**2)
        return torch.linalg.cholesky(covariance)

    def _objective(self, scales: torch.Tensor) -> float:
        """Log marginal likelihood plus the log prior of the length scales."""
        factor = self._factored(scales)
        half = torch.linalg.solve_triangular(factor, self._y, upper=False)
        likelihood = -0.5 * (half * half).sum() - factor.diagonal().log().sum()
        return float(likelihood - 0.5 * ((scales / _USUAL).log() ** 2).sum())


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """How far below ``best`` a normal variable is expected to fall, counting only what falls below it."""
    z = (best - mean) / deviation
    below = torch.special.ndtr(torch.from_numpy(z)).numpy()
    return (best - mean) * below + deviation * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def _matern(left: torch.Tensor, right: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    root = math.sqrt(5) * torch.cdist(left / scales, right / scales)
    return (1 + root + root * root / 3) * torch.exp(-root)
