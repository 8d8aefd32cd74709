"""`mla_decode`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from workbench.attention.cache_formats import fp8_latents
from workbench.attention.ops.cache_arguments import check_entries, check_tables
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.mla_decode.problem import MlaDecodeProblem, MlaDecodeTensors, features_of
from workbench.attention.ops.tensor_checks import (
    ALIGNMENT,
    alignment_of,
    check_dtype,
    check_out,
    check_pages,
    check_vector,
)
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of, multiprocessors_of
from workbench.ops.declared import op
from workbench.ops.tensors import dtype_name


@names_wrong_kinds
def mla_decode(
    query: torch.Tensor,
    latent_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    scale: float,
    latent_size: int = 512,
    kv_cache_dtype: str = "auto",
    sinks: torch.Tensor | None = None,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute multi-head latent attention of every sequence's newest token over its paged cache of latents.

    The result is ``softmax(scale * q K^T) V`` over the ``seq_lens[i]`` tokens of sequence i, including the newest,
    which is already in the cache. A token's row of the cache is its key for every head, and the first ``latent_size``
    elements of the same row are its value: this is the absorbed form, whose queries come from
    `workbench.attention.ops.mla_decode.reference.absorb`. A sequence without tokens gives zeros. Method: DeepSeek-V2,
    2024; the cache is that of FlashMLA and vLLM. Attention to chosen tokens alone (DeepSeek-V3.2) is attention to pages
    of one token: pass ``latent_cache.view(-1, 1, row)`` and `chosen_slots` as ``block_tables``.

    Args:
        query: ``[num_seqs, num_heads, latent_size + rope_size]`` float32, float16 or bfloat16, absorbed; rows may be
            apart, and start on 16 bytes.
        latent_cache: ``[num_blocks, block_size, latent_size + rope_size]`` in the query's dtype, the latent and then
            the rotated part of the key, or bytes ``[num_blocks, block_size, row_bytes]`` of
            `workbench.attention.cache_formats.fp8_latents`; pages contiguous, starting on 16 bytes.
        block_tables: ``[num_seqs, max_blocks] int32``, the page of each ``block_size`` tokens.
        seq_lens: ``[num_seqs] int32`` in tokens.
        scale: factor of the scores, that of the unabsorbed product: ``(nope_size + rope_size) ** -0.5``, 192 ** -0.5
            for DeepSeek-V3. It does not follow from the shapes.
        latent_size: number of elements of a latent (kv_lora_rank); all of them where the whole key is the value, as in
            DeepSeek-V4.
        kv_cache_dtype: "auto" (the query's dtype) or "fp8_ds_mla", whose rotated part, and so the query, is bfloat16.
        sinks: ``[num_heads] float32``, scores that take weight and give no value.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        out: the tensor to write, ``[num_seqs, num_heads, latent_size]`` in the query's dtype, contiguous, in memory of
            its own; default a new tensor.

    Returns:
        ``out``. There is no backward.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Lengths and table entries on a GPU are
            checked only with ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    _check_query(query, latent_size)
    out = torch.empty_like(_answer_like(query, latent_size)) if out is None else out
    t = MlaDecodeTensors(query, latent_cache, block_tables, seq_lens, float(scale), out, sinks)
    OP.run(t, latent_size=latent_size, kv_cache_dtype=kv_cache_dtype, variant=variant, config=config)
    return out


def _answer_like(query: torch.Tensor, latent_size: int) -> torch.Tensor:
    """Return a tensor without memory that has the shape and the dtype of the result."""
    return query.new_empty(1).expand(*query.shape[:2], latent_size)


def _check_query(query: torch.Tensor, latent_size: int) -> None:
    check_dtype("query", query, DTYPES.values())
    if query.dim() != 3 or query.shape[1] == 0 or not 0 < latent_size <= query.shape[2]:
        raise ArgumentError(
            "query",
            f"shape {tuple(query.shape)}",
            f"[num_seqs, num_heads, {latent_size} + rope_size]",
            "Pass latent_size=, and absorbed queries: the query times the matrices of the keys.",
        )


def problem_of(t: MlaDecodeTensors, *, latent_size: int = 512, kv_cache_dtype: str = "auto") -> MlaDecodeProblem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, values; describe the problem.

    On a GPU the longest length is taken to be the capacity of the block table, because reading ``seq_lens`` would wait.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    _check_query(t.query, latent_size)
    num_seqs, num_heads, key_size = t.query.shape
    if t.query.stride(2) != 1 or t.query.stride(1) != key_size or alignment_of(t.query) < ALIGNMENT:
        raise ArgumentError(
            "query",
            f"strides {t.query.stride()}, address {t.query.data_ptr():#x}",
            f"(any, {key_size}, 1), every head starting on {ALIGNMENT} bytes",
            "Call query.clone(memory_format=torch.contiguous_format).",
        )
    if not math.isfinite(t.scale):
        raise ArgumentError("scale", t.scale, "a finite number", "Of DeepSeek-V3 it is 192 ** -0.5.")
    _check_cache(t, latent_size, kv_cache_dtype)
    if t.sinks is not None:
        check_vector("sinks", t.sinks, num_heads, torch.float32, "Pass one per head.")
    check_tables(t, num_seqs)
    check_out(t.out, _answer_like(t.query, latent_size))
    block_size = t.latent_cache.shape[1]
    check_entries(t, block_size, len(t.latent_cache))
    if t.query.is_cuda:
        longest = t.block_tables.shape[1] * block_size
        total = longest * num_seqs
    else:
        longest, total = (int(t.seq_lens.max()), int(t.seq_lens.sum())) if num_seqs else (0, 0)
    return MlaDecodeProblem(
        num_seqs=num_seqs,
        num_heads=num_heads,
        latent_size=latent_size,
        rope_size=key_size - latent_size,
        max_seq_len=longest,
        total_tokens=total,
        dtype=dtype_name(t.query.dtype),
        block_size=block_size,
        kv_cache_dtype=kv_cache_dtype,
        features=features_of(kv_cache_dtype, sinks=t.sinks is not None),
        arch=arch_of(t.query),
        multiprocessors=multiprocessors_of(t.query),
    )


def _check_cache(t: MlaDecodeTensors, latent_size: int, kv_cache_dtype: str) -> None:
    cache, key_size = t.latent_cache, t.query.shape[2]
    if kv_cache_dtype == "auto":
        dtype, row, meaning = t.query.dtype, key_size, "A row is a token's latent, then the rotated part of its key."
    elif kv_cache_dtype == fp8_latents.NAME:
        dtype, row = torch.uint8, fp8_latents.row_bytes(latent_size, key_size - latent_size)
        meaning = "A row is bytes, as workbench.attention.cache_formats.fp8_latents.pack makes them."
        check_dtype("query", t.query, [torch.bfloat16], f"kv_cache_dtype is {kv_cache_dtype!r}.")
    else:
        raise ArgumentError("kv_cache_dtype", repr(kv_cache_dtype), f"auto, {fp8_latents.NAME}", "Name one of these.")
    check_dtype("latent_cache", cache, [dtype], f"kv_cache_dtype is {kv_cache_dtype!r}.")
    if cache.dim() != 3 or cache.shape[1] == 0 or cache.shape[2] != row:
        raise ArgumentError("latent_cache", f"shape {tuple(cache.shape)}", f"[num_blocks, block_size, {row}]", meaning)
    check_pages("latent_cache", cache)


OP: DescribedOp = op(name="mla_decode", tensors=MlaDecodeTensors, in_place=("out",), namespace="workbench")(problem_of)
