"""Small device tensors that follow from a call's sizes: made once, and never freed under a captured CUDA graph.

A graph reads at every replay the memory that its capture saw, so what it was given must live as long as it can. A
tensor from here that a capture uses is therefore kept to the end of the process. One that does not exist yet is made by
kernels inside the capture, in the graph's own memory, and is the graph's alone: a copy from the host may not be
captured, and outside of the graph nothing would have filled it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import torch

MOST_REMEMBERED = 256
"""Largest number of tensors kept beside those that graphs read; the least recently used is dropped."""

_Key = tuple[Sequence[int], torch.dtype, torch.device]

_remembered: OrderedDict[_Key, torch.Tensor] = OrderedDict()
_kept: dict[_Key, torch.Tensor] = {}
_lock = threading.Lock()


def constant(values: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return ``values [n]`` as a tensor of ``dtype`` on ``device``, to be read only.

    Args:
        values: a tuple or a range; equal ones give the same tensor.
        dtype: the type of its elements.
        device: with its index, if it is a GPU. For "meta" the tensor is on the CPU, where its values are known.
    """
    if device.type == "meta":
        device = torch.device("cpu")
    key, capturing = (values, dtype, device), under_capture(device)
    with _lock:
        found = _kept.get(key)
        if found is None:
            found = _remembered.pop(key, None)
            if found is not None:
                (_kept if capturing else _remembered)[key] = found
    if found is None:
        if capturing:
            return _filled(values, dtype, device)
        found = torch.tensor(values, dtype=dtype, device=device)  # waits for the copy: any stream may read it
        with _lock:
            _remembered[key] = found
            if len(_remembered) > MOST_REMEMBERED:
                _remembered.popitem(last=False)
    if device.type == "cuda" and not capturing:
        found.record_stream(torch.cuda.current_stream(device))  # it may be forgotten before the kernel has run
    return found


def under_capture(device: torch.device) -> bool:
    """Return True if work on a device becomes part of a CUDA graph now."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _filled(values: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Make the tensor by kernels alone: one for each value, or one for a range."""
    if isinstance(values, range):
        return torch.arange(values.start, values.stop, values.step, dtype=dtype, device=device)
    made = torch.empty(len(values), dtype=dtype, device=device)
    for place, value in enumerate(values):
        made[place].fill_(value)
    return made
