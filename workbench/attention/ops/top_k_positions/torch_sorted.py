"""The positions of the highest scores by a stable sort, in plain torch: the default on a CPU."""

from __future__ import annotations

import torch

from workbench.attention.ops.top_k_positions.problem import TopKProblem, TopKTensors
from workbench.ops import TorchVariant


def compute(problem: TopKProblem, tensors: TopKTensors) -> None:
    """Fill ``tensors.out [num_seqs, k]``."""
    scores, seq_lens, out = tensors.scores, tensors.seq_lens, tensors.out
    # 1. Rank: a stable sort leaves equal scores in order of position, and puts what lies past the end last.
    past = torch.arange(problem.max_seq_len, device=scores.device) >= seq_lens[:, None]
    by_score = scores.masked_fill(past, -torch.inf).sort(dim=1, descending=True, stable=True).indices
    order = by_score.gather(1, past.gather(1, by_score).sort(dim=1, stable=True).indices)

    # 2. Choose the first k, in order of position, as many as the sequence has.
    out.fill_(-1)
    taken = min(problem.k, problem.max_seq_len)
    chosen = torch.where(past.gather(1, order), problem.max_seq_len, order)[:, :taken].sort(dim=1).values
    out[:, :taken] = chosen.masked_fill(chosen == problem.max_seq_len, -1)


VARIANT = TorchVariant(
    op="top_k_positions",
    name="torch",
    idea="a stable sort of every row, and of the first k positions: plain torch",
    layouts=("any",),
    dtypes=("float32",),
    compute=compute,
)
