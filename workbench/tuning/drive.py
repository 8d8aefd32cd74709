"""The loop between a strategy and what answers it: ask for a batch, have it tried, hand back the scores."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from workbench.errors import ArgumentError
from workbench.trials.trial import Trial, canonical, geometric_mean
from workbench.tuning.search import Budget, Strategy
from workbench.tuning.space import Space

if TYPE_CHECKING:
    from workbench.ops.variant import Config
    from workbench.tuning.replay import AnyCase, AnyVariant


class Answers(Protocol):
    """What a strategy's questions go to: attempts on a device, or a recorded sweep."""

    trials: dict[tuple, Trial]
    """What came out, by :func:`workbench.tuning.attempts.trial_key`."""

    @property
    def cases(self) -> Sequence[AnyCase]:
        """On which every configuration is tried."""

    def run(self, variant: Any, configs: Iterable[Config], deadline: float = math.inf) -> bool:
        """Try configurations on every case; False if ``deadline`` (time.monotonic) came before all were done."""


def drive(
    answers: Answers,
    variant: AnyVariant,
    space: Space,
    start: Config | None,
    strategy: Strategy,
    budget: Budget,
    seed: int,
) -> None:
    """Have one strategy search one variant's space until it has no more to ask or its budget is spent.

    ``start`` is the untuned rule's configuration, None where it is not in the space. The random numbers depend on
    ``seed`` and the variant's name only, so that a run can be repeated. Raises ArgumentError for a strategy that is no
    generator function, or yields something else than lists.
    """
    deadline = time.monotonic() + budget.seconds
    left = budget.configurations
    batches = strategy(space, start, random.Random(f"{seed} {variant.name}"))
    if not isinstance(batches, Generator):
        _refuse(f"a function that returns {type(batches).__name__}")
    try:
        batch = next(batches)
        while left > 0:
            if not isinstance(batch, Sequence):
                _refuse(f"a generator that yields {type(batch).__name__}")
            taken = batch[: int(min(left, len(batch)))]
            left -= len(taken)
            if not answers.run(variant, taken, deadline) or len(taken) < len(batch):
                return
            batch = batches.send([score(answers, variant, config) for config in taken])
    except StopIteration:
        return
    finally:
        batches.close()


def _refuse(got: str) -> NoReturn:
    allowed = "a generator function that yields lists of configurations"
    raise ArgumentError("strategy", got, allowed, "See workbench.tuning.search for the ones there are.")


def score(answers: Answers, variant: AnyVariant, config: Config) -> float:
    """Geometric mean of a configuration's times over the cases; infinity unless it is right in all of them."""
    key = canonical(dict(config))
    times = [answers.trials[variant.name, case.name, key].seconds for case in answers.cases]
    return geometric_mean(math.inf if seconds is None else seconds for seconds in times)
