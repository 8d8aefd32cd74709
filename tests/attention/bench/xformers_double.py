"""xformers without a GPU: the paged mask and the split-K operator with the real signatures, computed by torch.

Signatures are those of xformers 0.0.35 (`test_attention_peers_long.py` compares them).
"""

from __future__ import annotations

import torch
from flashinfer_double import attention, install_modules

VERSION = "0.0.35"


class PagedBlockDiagonalPaddedKeysMask:
    def __init__(self, q_seqlen, kv_seqlen, block_tables, page_size):
        self.q_seqlen, self.kv_seqlen = q_seqlen, kv_seqlen
        self.block_tables, self.page_size = block_tables, page_size

    @classmethod
    def from_seqlens(cls, q_seqlen, kv_seqlen, block_tables, page_size, *, device=None):
        assert len(q_seqlen) == len(kv_seqlen) == len(block_tables)
        assert device == block_tables.device
        return cls(q_seqlen, kv_seqlen, block_tables, page_size)


class FwOp:
    SPLIT_K = None
    BLOCK_N = 64
    NUM_WARPS = 2
    NUM_STAGES = 1

    @classmethod
    def get_split_k(cls, B, G, H, Mk, Mq, page_size, is_paged=False):
        return max(1, min(64, Mk // max(B * H, 1), Mk // 128))

    @classmethod
    def get_operator(
        cls, splitk, *, block_m=None, block_n=None, num_warps=None, num_stages=None, split_k_early_exit=None
    ):
        sizes = {"BLOCK_N": block_n, "NUM_WARPS": num_warps, "NUM_STAGES": num_stages}
        return type(f"FwOp_S{splitk}", (cls,), {"SPLIT_K": splitk, **{k: v for k, v in sizes.items() if v is not None}})


def memory_efficient_attention_forward(
    query, key, value, attn_bias=None, p=0.0, scale=None, *, op=None, output_dtype=None
):
    bias, group = attn_bias, query.shape[3]
    if bias.page_size % op.BLOCK_N:
        raise ValueError(f"page size should be divisible by the block size, but got {bias.page_size} and {op.BLOCK_N}")
    assert op.BLOCK_N >= 16, "a product of Triton's takes 16 tokens"
    assert op.SPLIT_K >= 1
    assert bias.block_tables.shape[1] * bias.page_size % op.SPLIT_K == 0
    assert query.shape[:2] == (1, sum(bias.q_seqlen))
    assert key.shape[1] % bias.page_size == 0
    assert group == 1 or key.stride(3) == value.stride(3) == 0, "else keys are read once per query head"
    pages = [cache[0, :, :, 0].unflatten(0, (-1, bias.page_size)) for cache in (key, value)]
    lengths = torch.tensor(bias.kv_seqlen)
    out = attention(query[0].flatten(1, 2), *pages, bias.block_tables, lengths, query.shape[-1] ** -0.5)
    return out.to(query.dtype).view(query.shape)


def install(monkeypatch):
    """Put the double where ``import xformers`` finds it."""
    names = ("xformers", "xformers.ops", "xformers.ops.fmha", "xformers.ops.fmha.attn_bias")
    modules = install_modules(monkeypatch, "xformers", VERSION, (*names, "xformers.ops.fmha.triton_splitk"))
    modules["xformers.ops.fmha"].memory_efficient_attention_forward = memory_efficient_attention_forward
    modules["xformers.ops.fmha.triton_splitk"].FwOp = FwOp
    modules["xformers.ops.fmha.attn_bias"].PagedBlockDiagonalPaddedKeysMask = PagedBlockDiagonalPaddedKeysMask
