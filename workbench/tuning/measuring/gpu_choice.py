"""Choice among several GPUs: torch's current one, which must be passed on to other threads and processes."""

from __future__ import annotations

from typing import Any


def current_gpu(device: Any) -> int | None:
    """Return the number of torch's current GPU in this thread, or None for a device that is no GPU."""
    if device.name != "cuda":
        return None
    import torch

    return torch.cuda.current_device()


def use_gpu(number: int | None) -> None:
    """Make a GPU torch's current one in this thread; None does nothing.

    A new thread or process begins with the first GPU.
    """
    if number is not None:
        import torch

        torch.cuda.set_device(number)


def device_label(device: Any) -> str:
    """Return the name under which results on a device are kept; for a GPU it is the model's."""
    if device.name != "cuda":
        return device.name
    import torch

    return torch.cuda.get_device_name()
