"""A GPU for tests: torch's CUDA tensors, PyCUDA and Triton's launcher over the simulated driver."""

from __future__ import annotations


def start(model: str = "h200", memory_bytes: int = 4 << 30, devices: int = 2) -> None:
    """Make this process one with ``devices`` GPUs. Must come before the first ``import torch``."""
    from workbench.driver import simulated_driver

    simulated_driver(model, force=True, memory_bytes=memory_bytes, devices=devices)
    from simulated_gpu import build

    backend = build.load()
    from simulated_gpu import cuda, triton_launcher

    cuda.start(backend, devices)
    triton_launcher.start()
