"""Pooled windows by their formula, in float64."""

from __future__ import annotations

import torch


def pooled(values: torch.Tensor, gates: torch.Tensor, position_bias: torch.Tensor) -> torch.Tensor:
    """Compute `pool_windows` in float64; arguments as there.

    Returns:
        ``[num_windows, head_size] float64``.
    """
    logits = gates.double() + position_bias.double()
    return (logits.softmax(1).nan_to_num(0.0) * values.double()).sum(1)
