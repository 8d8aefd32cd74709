"""States of sequences in slots of a pool: what ops on them read, and tensors for their cases."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_UNWRITTEN = 0xFF


def read_states(states: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Return the states ``[num_seqs, ...]`` in the slots ``[num_seqs] int32`` of ``states``, zeros for -1."""
    found = states.new_zeros((len(slots), *states.shape[1:]))
    known = slots >= 0
    found[known] = states[slots[known].long()]
    return found


def drawn_slots(num_seqs: int, states: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw slots of ``states`` to read ``[num_seqs] int32``, and as many to write behind them, both shuffled.

    Every third sequence starts from nothing, and every fifth forgets its state: these have -1. States that nobody
    reads become NaN, in place.
    """
    read, written = (torch.randperm(len(states), generator=generator)[:num_seqs].int() for _ in range(2))
    number = torch.arange(num_seqs)
    read = torch.where(number % 3 == 2, -1, read)
    unread = torch.ones(len(states), dtype=torch.bool)
    unread[read[read >= 0].long()] = False
    states[unread] = torch.nan
    return read, torch.where(number % 5 == 3, -1, written + len(states))


def slots_and_output(
    states: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, device: str | torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a pool, an output, and the bytes of all that may be written, in one piece of memory.

    The pool has ``states`` and as many slots behind them; all bits of these and of the output are set.
    """
    half, size = states.numel() * states.itemsize, torch.Size(shape).numel() * dtype.itemsize
    memory = torch.full((2 * half + size,), _UNWRITTEN, dtype=torch.uint8)
    memory[:half] = states.view(torch.uint8).flatten()
    memory = memory.to(device)
    pool = memory[: 2 * half].view(states.dtype).view(2 * len(states), *states.shape[1:])
    return pool, memory[2 * half :].view(dtype).view(*shape), memory[half:]
