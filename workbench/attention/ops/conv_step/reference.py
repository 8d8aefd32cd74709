"""One step of a causal convolution by its formula.

Every channel has ``width`` weights for its newest inputs, the oldest first, and SiLU after the sum:

    y_c = silu(sum_j weight[j, c] x[j, c])      x = the state's width - 1 inputs, then the new one

The new state is x without its oldest input.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def step(inputs: torch.Tensor, weight: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute one step for any number of sequences, in the dtype of ``weight``.

    Args:
        inputs: ``[num_seqs, channels]``.
        weight: ``[width, channels]``.
        state: ``[num_seqs, width - 1, channels]``, in the dtype of ``inputs``.

    Returns:
        The output ``[num_seqs, channels]``, and the new states in the dtype of ``inputs``.
    """
    window = torch.cat([state, inputs[:, None]], dim=1)
    return functional.silu((window.to(weight.dtype) * weight).sum(1)), window[:, 1:]
