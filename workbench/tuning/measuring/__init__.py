"""Attempts of a tuning run, from a claim in the store to a row: compiled, run, checked, timed, here or by workers.

Begin at `attempt.py`; `measure.py` tries one configuration, `attempts.py` many. The names below time runs on a GPU for
a benchmark as the tuner does; they are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "Clock": "workbench.tuning.measuring.gpu_timing",
    "GpuClock": "workbench.tuning.measuring.gpu_timing",
    "MOST_SAMPLES": "workbench.tuning.measuring.gpu_timing",
    "gpu_lost": "workbench.tuning.measuring.gpu_state",
    "interleave": "workbench.tuning.measuring.gpu_timing",
    "is_steady": "workbench.tuning.measuring.gpu_timing",
}

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from workbench.tuning.measuring.gpu_state import gpu_lost as gpu_lost
    from workbench.tuning.measuring.gpu_timing import MOST_SAMPLES as MOST_SAMPLES
    from workbench.tuning.measuring.gpu_timing import Clock as Clock
    from workbench.tuning.measuring.gpu_timing import GpuClock as GpuClock
    from workbench.tuning.measuring.gpu_timing import interleave as interleave
    from workbench.tuning.measuring.gpu_timing import is_steady as is_steady


__getattr__, __dir__ = lazily(__name__, _LAZY)
