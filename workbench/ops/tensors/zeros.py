"""Zeros that kernels leave as zeros: counters of blocks, for instance, that the last block sets back.

Filling a tensor with zeros is a launch of its own on a GPU, which may take as long as a short kernel. So such a tensor
is filled once for each device and stream and then kept: kernels on one stream follow each other, and each finds the
zeros that the one before left.

* Host memory is not kept: the simulator gets new zeros at every call.
* Under CUDA graph capture the zeros are new and filled inside the graph, from its own memory: a graph may be replayed
  on any stream, beside launches that use the kept ones.
* A kernel that is ended in the middle leaves other numbers behind. On a GPU it takes the context, and with it all
  memory, along; one that the driver refuses has not begun.
* One with a fault of its own may end and leave other numbers too. Whoever sees a wrong result calls
  `forget_kept_zeros`, so that the next kernel does not pay for the one before.
"""

from __future__ import annotations

import torch

_kept: dict[tuple[int, int], torch.Tensor] = {}
"""(device index, stream) -> zeros, int32."""


def kept_zeros(count: int, device: torch.device) -> torch.Tensor:
    """Return ``count`` zeros, int32, for kernels on torch's current stream that leave zeros; a count of 0 is free.

    What is too short is replaced. Launches that still use it are safe: torch hands its memory on in the order of the
    stream.
    """
    if device.type != "cuda" or not count or torch.cuda.is_current_stream_capturing():
        return torch.zeros(count, dtype=torch.int32, device=device)
    key = device.index, torch.cuda.current_stream(device).cuda_stream
    zeros = _kept.get(key)
    if zeros is None or zeros.numel() < count:
        zeros = _kept[key] = torch.zeros(max(count, 1024), dtype=torch.int32, device=device)
    return zeros


def forget_kept_zeros() -> None:
    """Give up all kept zeros: some kernel may have left other numbers."""
    _kept.clear()
