"""Traces of request lengths for serving studies, drawn at random with published means.

Kwon et al. ("Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, section 6.1 and
Figure 11) publish the mean input and output lengths of two data sets, tokenised for OPT. They publish the spread as a
picture, without numbers, and the data sets are not part of this package. So each length is drawn from a log-normal
distribution, truncated at ``longest``, whose mean is exactly the published one and whose spread is chosen here:

* ShareGPT outputs: fitted to one bar of the paper's Figure 2. Orca (Max) holds 7 requests in 15.7 K slots and 13.3 % of
  the slots are reserved for tokens to come, 298 per request; averaged over time that is E[n^2] / (2 E[n]) of the output
  lengths n. Everything else in that figure is then a prediction.
* the other three: assumed, with the shape of the histograms in Figure 11. Pass another ``sigma`` to see how much
  a conclusion depends on it.

``longest`` is assumed too, such that a request has at most the 2048 tokens of the model.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

from workbench.attention.kvcache.errors import check_count
from workbench.errors import ArgumentError

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Request:
    """One request of a trace: the number of tokens of its prompt, and the number that it will generate."""

    input_tokens: int
    output_tokens: int

    @property
    def total_tokens(self) -> int:
        """Length of the finished request in tokens."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True)
class Lengths:
    """Log-normal distribution of lengths, truncated to 1 to ``longest`` tokens.

    Attributes:
        mean: mean length after truncation.
        sigma: standard deviation of the logarithm before truncation.
        longest: largest length.
    """

    mean: float
    sigma: float
    longest: int = 1024

    def __post_init__(self) -> None:
        if not 1 < self.mean < self.longest / 2:
            raise ArgumentError(
                "mean", self.mean, f"above 1, below {self.longest / 2}", "Lower mean, or raise longest."
            )
        if not self.sigma > 0:
            raise ArgumentError("sigma", self.sigma, "a positive number", "About 0.5 is narrow, 1.2 is wide.")

    @cached_property
    def mu(self) -> float:
        """Mean of the logarithm before truncation, chosen so that the mean after truncation is ``mean``."""
        low, high = -20.0, 20.0
        for _ in range(100):
            mu = (low + high) / 2
            low, high = (mu, high) if self._moment(mu, 1) < self.mean else (low, mu)
        return mu

    def draw(self, rng: random.Random) -> int:
        """Draw one length."""
        low, high = (_NORMAL.cdf((math.log(end) - self.mu) / self.sigma) for end in (1, self.longest))
        uniform = low + (high - low) * rng.random()
        return max(1, min(self.longest, round(math.exp(self.mu + self.sigma * _NORMAL.inv_cdf(uniform)))))

    def _moment(self, mu: float, power: int) -> float:
        """Return E[n^power] of the truncated distribution, for a mean ``mu`` of the logarithm."""

        def share(shift: float) -> float:
            ends = ((math.log(end) - mu - shift) / self.sigma for end in (self.longest, 1))
            upper, lower = (_NORMAL.cdf(end) for end in ends)
            return max(upper - lower, 1e-300)

        variance = self.sigma**2
        return math.exp(power * mu + power**2 * variance / 2) * share(power * variance) / share(0)


@dataclass(frozen=True)
class Workload:
    """Distributions of the request lengths of one data set."""

    name: str
    input_lengths: Lengths
    output_lengths: Lengths

    def trace(self, num_requests: int, seed: int = 0) -> list[Request]:
        """Draw requests in order of arrival; the same seed gives the same requests."""
        check_count("num_requests", num_requests, 1, "Requests in the trace.")
        rng = random.Random(f"{self.name} {seed}")
        return [Request(self.input_lengths.draw(rng), self.output_lengths.draw(rng)) for _ in range(num_requests)]


SHAREGPT = Workload(
    "ShareGPT-like", Lengths(mean=161.31, sigma=1.2, longest=512), Lengths(mean=337.99, sigma=0.975, longest=1536)
)
ALPACA = Workload("Alpaca-like", Lengths(mean=19.31, sigma=0.5), Lengths(mean=58.45, sigma=0.9))
