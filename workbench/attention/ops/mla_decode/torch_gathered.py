"""Decode over the latent cache in plain torch operations, all sequences at once: the default on a CPU."""

from __future__ import annotations

import torch

from workbench.attention.cache_formats.fp8_latents import NAME, unpack
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.mla_decode.problem import MlaDecodeProblem, MlaDecodeTensors
from workbench.ops import TorchVariant


def compute(problem: MlaDecodeProblem, tensors: MlaDecodeTensors) -> None:
    """Fill ``tensors.out [num_seqs, num_heads, latent_size]``."""
    t, p = tensors, problem
    if p.max_seq_len == 0:
        t.out.zero_()
        return
    # 1. Load: the rows of each sequence up to the longest, [num_seqs, tokens, key_size] in fp32.
    token = torch.arange(p.max_seq_len, device=t.query.device)
    valid = token < t.seq_lens[:, None]
    pages = t.block_tables[:, token // p.page].long().masked_fill(~valid, 0)
    rows = t.latent_cache[pages, token % p.page]
    keys = unpack(rows, p.latent_size) if p.quantized else rows.float()
    values = keys[..., : p.latent_size].masked_fill(~valid[..., None], 0.0)  # 0 * NaN of an unused slot would be NaN

    # 2. Score: [num_seqs, num_heads, tokens].
    scores = (t.query.float() @ keys.transpose(1, 2) * t.scale).masked_fill(~valid[:, None], -torch.inf)

    # 3. Softmax; a sequence without tokens has no maximum, and weights of zero. A sink takes weight and gives no value.
    highest = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).min)
    if t.sinks is not None:
        highest = torch.maximum(highest, t.sinks[:, None])
    weights = torch.exp(scores - highest)
    total = weights.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    if t.sinks is not None:
        total = total + torch.exp(t.sinks[:, None] - highest)

    # 4. Accumulate, then divide once per row.
    t.out.copy_(weights @ values / total)


VARIANT = TorchVariant(
    op="mla_decode",
    name="torch",
    idea="rows up to the longest sequence, gathered and masked: plain torch",
    layouts=("latent",),
    dtypes=tuple(DTYPES),
    features=(NAME, "sinks"),
    compute=compute,
)
