"""Which of several GPUs a tuning run is on: torch's current one, which other threads and processes have to be told."""

from __future__ import annotations

from typing import Any


def current_gpu(device: Any) -> int | None:
    """The number of torch's current GPU in this thread; None for a device that is no GPU."""
    if device.name != "cuda":
        return None
    import torch

    return torch.cuda.current_device()


def use_gpu(number: int | None) -> None:
    """Make a GPU torch's current one in this thread: a new thread, or process, begins with the first. None: nothing."""
    if number is not None:
        import torch

        torch.cuda.set_device(number)


def device_label(device: Any) -> str:
    """The name under which results on a device are kept: on a GPU that of its model."""
    if device.name != "cuda":
        return device.name
    import torch

    return torch.cuda.get_device_name()
