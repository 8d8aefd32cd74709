"""A kernel developer's workbench: write, compile, check, look at, tune and import GPU kernels.

The public names are loaded when first used: ``import workbench`` imports none of torch, triton or pycuda.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.base.lazy import hand_in, lazily
from workbench.base.versions import __version__
from workbench.errors import WorkbenchError

_LAZY = {
    "doctor": "workbench.doctor",
    "fresh_notebook": "workbench.ui.notebooks",
    "variants": "workbench.ops",
    "compile": "workbench.ops",
    "compare": "workbench.comparison.compare",
    "compare_code": "workbench.comparison.code_comparison",
    "occupancy": "workbench.comparison.occupancy",
    "trace": "workbench.ops.tracing",
    "debug": "workbench.ops.debugging",
    "debug_kernel": "workbench.launch.debug",
    "diff": "workbench.analysis.difference",
    "trace_kernel": "workbench.launch",
    "tune": "workbench.tuning",
    "sweep_sizes": "workbench.comparison.bench.sizes",
    "load_cuda": "workbench.launch",
    "load_ptx": "workbench.launch",
    "TensorMap": "workbench.ptx.tensor_map",
    "check_kernel": "workbench.launch",
    "check": "workbench.judge",
    "check_kernelbench": "workbench.judge",
    "check_many": "workbench.judge",
    "prove": "workbench.proof",
    "simulated_driver": "workbench.driver",
    "simulated_gpu": "workbench.driver.torch_device",
    "simulated_triton": "workbench.driver.triton.driver",
    "op": "workbench.ops.declared",
    "step": "workbench.ops.declared",
    "randn": "workbench.ops.declared",
    "rand": "workbench.ops.declared",
    "randint": "workbench.ops.declared",
    "full": "workbench.ops.declared",
}

__all__ = ["WorkbenchError", "__version__", *_LAZY]

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from workbench.analysis.difference import diff as diff
    from workbench.comparison.bench.sizes import sweep_sizes as sweep_sizes
    from workbench.comparison.code_comparison import compare_code as compare_code
    from workbench.comparison.compare import compare as compare
    from workbench.comparison.occupancy import occupancy as occupancy
    from workbench.doctor import doctor as doctor
    from workbench.driver import simulated_driver as simulated_driver
    from workbench.driver.torch_device.starting import simulated_gpu as simulated_gpu
    from workbench.driver.triton.driver import simulated_triton as simulated_triton
    from workbench.judge import check as check
    from workbench.judge import check_kernelbench as check_kernelbench
    from workbench.judge import check_many as check_many
    from workbench.launch import check_kernel as check_kernel
    from workbench.launch import load_cuda as load_cuda
    from workbench.launch import load_ptx as load_ptx
    from workbench.launch import trace_kernel as trace_kernel
    from workbench.launch.debug import debug_kernel as debug_kernel
    from workbench.ops import compile as compile
    from workbench.ops import variants as variants
    from workbench.ops.debugging import debug as debug
    from workbench.ops.declared import full as full
    from workbench.ops.declared import rand as rand
    from workbench.ops.declared import randint as randint
    from workbench.ops.declared import randn as randn
    from workbench.ops.declared import step as step
    from workbench.ops.declared.op import op as op
    from workbench.ops.tracing import trace as trace
    from workbench.proof import prove as prove
    from workbench.ptx.tensor_map import TensorMap as TensorMap
    from workbench.tuning.tuner import tune as tune
    from workbench.ui.notebooks import fresh_notebook as fresh_notebook


__getattr__, __dir__ = lazily(__name__, _LAZY)
hand_in("sweep_sizes", _LAZY["sweep_sizes"])


def load_ipython_extension(shell: InteractiveShell) -> None:
    """``%load_ext workbench``: the magics ``%%cuda`` and ``%workbench``, and figures in the reader's theme."""
    from workbench.ui.figures import show_as_vectors
    from workbench.ui.magics import CudaMagics
    from workbench.ui.run_magics import RunMagics

    shell.register_magics(CudaMagics, RunMagics)
    show_as_vectors()
