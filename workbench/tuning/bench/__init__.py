"""Benchmarks of the tuner and of predictions, and the parts of any benchmark: turns, records, facts of the machine.

The names below are for benchmarks of packages (entry points ``workbench.benchmarks``); they are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "Benchmark": "workbench.tuning.bench.results",
    "all_versions": "workbench.tuning.bench.machine",
    "gpu_facts": "workbench.tuning.bench.machine",
    "gpu_state": "workbench.tuning.bench.machine",
    "in_turn": "workbench.tuning.bench.results",
    "measure_again": "workbench.tuning.bench.streaming",
    "measure_ceiling": "workbench.tuning.bench.streaming",
    "result_path": "workbench.tuning.bench.results",
}

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from workbench.tuning.bench.machine import all_versions as all_versions
    from workbench.tuning.bench.machine import gpu_facts as gpu_facts
    from workbench.tuning.bench.machine import gpu_state as gpu_state
    from workbench.tuning.bench.results import Benchmark as Benchmark
    from workbench.tuning.bench.results import in_turn as in_turn
    from workbench.tuning.bench.results import result_path as result_path
    from workbench.tuning.bench.streaming import measure_again as measure_again
    from workbench.tuning.bench.streaming import measure_ceiling as measure_ceiling


__getattr__, __dir__ = lazily(__name__, _LAZY)
