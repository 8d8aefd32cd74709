"""Seeding of every generator that a problem or a solution draws from."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

import numpy as np
import torch

_ONE_AT_A_TIME = threading.RLock()  # the generators are shared by all threads of the process


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python's, NumPy's and torch's generators within the block; afterwards they go on as before.

    Other threads wait for their own block meanwhile.
    """
    with _ONE_AT_A_TIME, _seeded(seed):
        yield


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)
