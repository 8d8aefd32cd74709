"""Comparison of kernels: variants of an op side by side, their machine code, their occupancy, their times over sizes.

`workbench.compare`, `compare_code`, `occupancy` and `sweep_sizes` are its functions; begin at `compare.py`.
"""

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "SizePoint": "workbench.comparison.bench.size_sweep",
    "SizeSweep": "workbench.comparison.bench.size_sweep",
}

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from workbench.comparison.bench.size_sweep import SizePoint as SizePoint
    from workbench.comparison.bench.size_sweep import SizeSweep as SizeSweep


__getattr__, __dir__ = lazily(__name__, _LAZY)
