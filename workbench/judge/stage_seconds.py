"""Seconds of the stages of a judgement, by the clock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class StageSeconds(dict[str, float]):
    """Seconds by stage, as `workbench.judge.verdict.Verdict.stage_seconds` has them; times of one stage are added."""

    @contextlib.contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """Add the time of the block, or of each call of a function that this decorates, to a stage."""
        began = time.monotonic()
        try:
            yield
        finally:
            self[stage] = self.get(stage, 0.0) + time.monotonic() - began
