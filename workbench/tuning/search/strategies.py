"""Search strategies: which configurations to try, in which order.

A strategy is a generator: it yields a batch of configurations, receives their scores (seconds; infinity for one that
has no time) in the same order, and yields the next batch. A batch may be compiled ahead, so a strategy that needs no
scores yields everything at once. It must not yield a configuration twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops.variant import Config
from workbench.tuning.search import kernel_tuner_strategies
from workbench.tuning.search.bayesian import bayesian
from workbench.tuning.search.space import Batches, Space, Strategy

SAMPLE_BATCH = 16


def exhaustive(space: Space, start: Config | None, rng: random.Random) -> Batches:
    """Try every configuration in the order of the space, the untuned rule's first."""
    yield _start_first(start, space)


def sampled(space: Space, start: Config | None, rng: random.Random) -> Batches:
    """Try the untuned rule's configuration, then the others in random order."""
    yield from _batches(_start_first(start, space.sample(len(space), rng)))


def greedy(space: Space, start: Config | None, rng: random.Random) -> Batches:
    """Move from the untuned rule to the best neighbour, again and again, and restart at a local optimum.

    A restart is at a random new point.
    """
    known: dict[tuple, float] = {}
    restarts = iter(space.sample(len(space), rng))
    here = dict(start) if start is not None else next(restarts, None)
    while here is not None:
        if _key(here) not in known:
            (known[_key(here)],) = yield [here]
        while True:
            near = space.neighbours(here)
            new = [config for config in near if _key(config) not in known]
            if new:
                scores = yield new
                known.update(zip(map(_key, new), scores, strict=True))
            best = min(near, key=lambda config: known[_key(config)], default=here)
            if known[_key(best)] >= known[_key(here)]:
                break
            here = best
        here = next((config for config in restarts if _key(config) not in known), None)


def predicted(space: Space, start: Config | None, rng: random.Random) -> Batches:
    """Try the untuned rule's configuration, then the others by predicted time (``space.estimate``), unknown ones last.

    Raises ArgumentError if the space has no predictions.
    """
    estimate = estimate_of(space)
    yield from _batches(_start_first(start, sorted(space.sample(len(space), rng), key=estimate)))


def _start_first(start: Config | None, configs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    first = [dict(start)] if start is not None else []
    return first + [config for config in configs if config != start]


def _batches(order: list[dict[str, Any]]) -> Batches:
    for at in range(0, len(order), SAMPLE_BATCH):
        yield order[at : at + SAMPLE_BATCH]


def estimate_of(space: Space) -> Callable[[Config], float]:
    """Return the function that predicts the times of a space. Raises ArgumentError if there is none, as in a replay."""
    if space.estimate is None:
        raise ArgumentError(
            "strategy", "'predicted'", "a strategy that needs no prediction", "Times of this space cannot be predicted."
        )
    return space.estimate


STRATEGIES: dict[str, Strategy] = {
    "exhaustive": exhaustive,
    "random": sampled,
    "greedy": greedy,
    "predicted": predicted,
    "bayesian": bayesian,
}
"""Our own strategies by name."""


def strategy(name: str | Strategy) -> Strategy:
    """Return a strategy by name, ``"kernel_tuner:NAME"`` for one of Kernel Tuner's.

    A generator function is returned as it is. Raises UnknownNameError listing those that exist; MissingToolError if
    Kernel Tuner is not installed.
    """
    if callable(name):
        return name
    if isinstance(name, str) and name.startswith(kernel_tuner_strategies.PREFIX):
        return kernel_tuner_strategies.strategy(name.removeprefix(kernel_tuner_strategies.PREFIX))
    if name not in STRATEGIES:
        known = ", ".join([*STRATEGIES, f"{kernel_tuner_strategies.PREFIX}NAME"])
        raise UnknownNameError("strategy", repr(name), known, "Name one of these, or pass a generator function.")
    return STRATEGIES[name]


def _key(config: Config) -> tuple:
    return tuple(config.values())
