"""The tensors of one backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from workbench.ops.tensors import RunTensors, made


@dataclass
class CausalAttentionBackwardTensors(RunTensors):
    """The inputs and results of the forward pass, the results' gradients, and the gradients that a variant fills.

    query, output, d_output, d_query ``[num_seqs, num_heads, num_queries, head_size]``; key, value, d_key, d_value
    ``[num_seqs, num_kv_heads, num_tokens, head_size]``; lse, d_lse ``[num_seqs, num_heads, num_queries]``; query_lens,
    seq_lens ``[num_seqs] int32``, both or None. All but query, key and value are contiguous.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor
    lse: torch.Tensor
    d_output: torch.Tensor
    d_lse: torch.Tensor
    scale: float | None
    query_lens: torch.Tensor | None
    seq_lens: torch.Tensor | None
    d_query: torch.Tensor = made()
    d_key: torch.Tensor = made()
    d_value: torch.Tensor = made()
    out: torch.Tensor | None = made()
    """The three gradients one after the other, as they are judged."""
    workspace: Any = made()
    """Memory through which the kernels of one variant pass results to each other."""
