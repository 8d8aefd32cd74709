"""Strategies, driven without measuring: what they ask for, given the cost of what they asked before."""

from __future__ import annotations

import random
from contextlib import closing


def asked_by(plan, space, score, start=None, seed=0, count=10**9) -> list[dict]:
    """Return the first ``count`` configurations that a strategy asks for, in order; ``score`` is a configuration's."""
    asked: list[dict] = []
    with closing(plan(space, start, random.Random(seed))) as batches:
        try:
            batch = next(batches)
            while len(asked) < count:
                asked += batch
                batch = batches.send([score(config) for config in batch])
        except StopIteration:
            pass
    return asked[:count]
