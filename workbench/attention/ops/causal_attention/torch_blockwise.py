"""Causal attention block by block with an online softmax: equation (4) of the PagedAttention paper, done right.

Keys and values come in blocks of B tokens, K_j and V_j. With 1 for the vector of ones, the paper means

    A_ij = exp(q_i K_j / sqrt(d)) / sum_t exp(q_i K_t / sqrt(d)) 1,        o_i = sum_j V_j A_ij

but prints the 1 inside exp, where it would add up scores instead of their exponentials. The denominator needs all
blocks before the first weight. The *online softmax* (Milakov and Gimelshein, 2018) avoids that: it keeps a running
maximum m, a running sum l and an unnormalised output o, and rescales both by exp(m_old - m_new) at each block.

Slots of the last block that hold no token are masked to a weight of exactly zero (exp of minus infinity, not of a large
negative number) *and* their values are set to zero: such a slot may hold anything, and 0 * NaN is NaN.
"""

from __future__ import annotations

import torch

from workbench.attention.ops.causal_attention.problem import DTYPES, CausalAttentionProblem, CausalAttentionTensors
from workbench.attention.ops.causal_attention.torch_naive import repeat_kv, without_padding
from workbench.ops import Restriction, TorchVariant


def into_blocks(tokens: torch.Tensor, block_size: int) -> torch.Tensor:
    """Split ``[..., num_tokens, head_size]`` into ``[num_blocks, ..., block_size, head_size]``, NaN in unused slots."""
    missing = -tokens.shape[-2] % block_size
    padded = torch.nn.functional.pad(tokens, (0, 0, 0, missing), value=torch.nan)
    return padded.unflatten(-2, (-1, block_size)).movedim(-3, 0)


def attend_to_blocks(
    query: torch.Tensor,
    key_blocks: torch.Tensor,
    value_blocks: torch.Tensor,
    num_tokens: int | torch.Tensor,
    scale: float | None = None,
    *,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute causal attention of the last tokens, one block of keys and values at a time.

    Args:
        query: ``[..., num_queries, head_size]``, the last of the ``num_tokens`` tokens. One query is a decode step.
        key_blocks: ``[num_blocks, ..., block_size, head_size]``; slots from ``num_tokens`` on are ignored.
        value_blocks: as key_blocks.
        num_tokens: tokens that the blocks hold, at least num_queries; for sequences of different lengths a tensor, one
            per leading index of query or broadcast over them: ``[num_seqs, 1]`` if heads follow sequences.
        scale: factor of the scores; default ``head_size ** -0.5``.
        return_lse: also return m + log l of every query, ``[..., num_queries]``.

    Returns:
        ``[..., num_queries, head_size]``.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    num_queries, block_size = query.shape[-2], key_blocks.shape[-2]
    length = torch.as_tensor(num_tokens, device=query.device)[..., None, None]  # [..., 1, 1]
    position = length - num_queries + torch.arange(num_queries, device=query.device)[:, None]  # [..., num_queries, 1]
    exact = torch.promote_types(query.dtype, torch.float32)  # 16 bits would round the sums anew at every block
    highest = query.new_full((*query.shape[:-1], 1), -torch.inf, dtype=exact)  # m: [..., num_queries, 1]
    total = torch.zeros_like(highest)  # l
    out = torch.zeros_like(query, dtype=exact)  # o, not yet divided by l
    for j, (key, value) in enumerate(zip(key_blocks, value_blocks, strict=True)):
        token = j * block_size + torch.arange(block_size, device=query.device)  # [block_size]
        # 1. Load: slots without a token become zeros, in V because of 0 * NaN, in K because of its gradient.
        unused = (token >= length).transpose(-1, -2)  # [..., block_size, 1]
        key, value = (side.masked_fill(unused, 0.0) for side in (key, value))
        # 2. Score: minus infinity for later tokens, and so past the end.
        scores = (query @ key.transpose(-1, -2) * scale).to(exact).masked_fill(token > position, -torch.inf)
        # 3. Rescale what was summed under the old maximum; a query that has seen no token yet has none.
        new_highest = torch.maximum(highest, scores.amax(-1, keepdim=True))
        safe = new_highest.masked_fill(new_highest == -torch.inf, 0.0)
        rescale, weights = torch.exp(highest - safe), torch.exp(scores - safe)
        # 4. Accumulate.
        total = total * rescale + weights.sum(-1, keepdim=True)
        out = out * rescale + weights.to(value.dtype) @ value
        highest = new_highest
    # 5. Reduce: one division at the end.
    out = (out / total).to(query.dtype)
    return (out, (highest + total.log()).squeeze(-1)) if return_lse else out


def compute(problem: CausalAttentionProblem, tensors: CausalAttentionTensors) -> None:
    """Fill ``tensors.output``, and ``tensors.lse`` if there is one."""
    t, tokens = tensors, problem.num_tokens
    (query,), (key, value) = without_padding(t.query_lens, t.query), without_padding(t.seq_lens, t.key, t.value)
    if t.seq_lens is not None:  # the tokens there would be if no query were padding, filled up to whole blocks by zeros
        tokens = (t.seq_lens - t.query_lens + problem.num_queries)[:, None]
        missing = (0, 0, 0, -problem.num_tokens % problem.block_size)
        key, value = (torch.nn.functional.pad(side, missing) for side in (key, value))
    key, value = (into_blocks(repeat_kv(side, problem.num_heads), problem.block_size) for side in (key, value))
    found = attend_to_blocks(query, key, value, tokens, t.scale, return_lse=t.lse is not None)
    output, lse = (found, None) if t.lse is None else found
    t.output.copy_(without_padding(t.query_lens, output)[0])
    if t.lse is not None:
        t.lse.copy_(without_padding(t.query_lens, lse, padding=-torch.inf)[0])


VARIANT = TorchVariant(
    op="causal_attention",
    name="torch_blockwise",
    idea="a block of keys and values at a time, online softmax: no more scores in memory than one block's",
    space={"BLOCK_SIZE": (8, 16, 32, 64, 128)},
    restrictions=(
        Restriction.of("block size", "BLOCK_SIZE >= 1"),
        Restriction.of("the problem's blocks", "BLOCK_SIZE == block_size"),
    ),
    layouts=("heads first",),
    dtypes=tuple(DTYPES),
    features=("lengths",),
    defaults=lambda problem: {"BLOCK_SIZE": problem.block_size},
    compute=compute,
)
