"""The seeds of everything that a problem or a solution draws from."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python's, NumPy's and torch's generators within the block; afterwards they go on as before."""
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
