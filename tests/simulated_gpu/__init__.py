"""A GPU for tests: torch's CUDA tensors, PyCUDA and Triton's launcher over the simulated driver.

A process gets it when ``site/sitecustomize.py`` is on its PYTHONPATH and WORKBENCH_SIMULATED_GPU is set.
"""

from __future__ import annotations

import ctypes


def before_torch(model: str = "h200", memory_bytes: int = 4 << 30, devices: int = 2) -> ctypes.CDLL:
    """The driver with its devices, and torch's backend for them: torch asks for it while it is imported."""
    from workbench.driver import simulated_driver

    simulated_driver(model, force=True, memory_bytes=memory_bytes, devices=devices)
    from simulated_gpu import build

    return build.load()


def after_torch(backend: ctypes.CDLL, devices: int = 2) -> None:
    """What Python sees of them."""
    from simulated_gpu import cuda, triton_launcher

    cuda.start(backend, devices)
    triton_launcher.start()
