"""Tensors of a run: their types, what fills them, how they lie in memory, and checks of all three.

No module here knows of an op. Begin with `run_tensors`, what a variant gets. The names below are for ops whose
arguments need checks of their own.
"""

from workbench.ops.tensors.checks import check_apart, check_devices, dtype_name, extent
from workbench.ops.tensors.run_tensors import RunTensors, made
from workbench.ops.tensors.zeros import forget_kept_zeros, kept_zeros

__all__ = [
    "RunTensors",
    "check_apart",
    "check_devices",
    "dtype_name",
    "extent",
    "forget_kept_zeros",
    "kept_zeros",
    "made",
]
