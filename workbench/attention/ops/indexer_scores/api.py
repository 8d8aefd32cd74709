"""`indexer_scores`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.attention.cache_formats import fp8_index_keys
from workbench.attention.ops.cache_arguments import check_entries, check_tables
from workbench.attention.ops.indexer_scores.problem import DTYPES, IndexerProblem, IndexerTensors
from workbench.attention.ops.tensor_checks import check_dtype, check_pages, check_within, look_at_values
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op
from workbench.ops.tensors import dtype_name


@names_wrong_kinds
def indexer_scores(
    query: torch.Tensor,
    weights: torch.Tensor,
    index_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Score every token of every sequence for its newest token, as DeepSeek-V3.2's lightning indexer does.

    The score of a token is ``sum over heads of weight * relu(query . key)``; the tokens with the highest scores
    (`top_k_positions`) are those that sparse attention reads. Method: DeepSeek-V3.2, 2025; the cache in FP8 is that of
    vLLM and DeepGEMM (``fp8_paged_mqa_logits``).

    Args:
        query: ``[num_seqs, num_heads, head_size]`` float16, bfloat16 or float8_e4m3fn, contiguous.
        weights: ``[num_seqs, num_heads] float32``, contiguous, with all constant factors, and for FP8 the scales of the
            queries.
        index_cache: ``[num_blocks, block_size, head_size]`` in the query's dtype, one key for all heads; for FP8 bytes
            ``[num_blocks, block_size, head_size + 4]`` of `workbench.attention.cache_formats.fp8_index_keys`; pages
            contiguous, starting on 16 bytes.
        block_tables: ``[num_seqs, max_blocks] int32``, the page of each ``block_size`` tokens.
        seq_lens: ``[num_seqs] int32`` in tokens.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        out: the tensor to write, ``[num_seqs, tokens] float32`` with room for the longest sequence, contiguous, in
            memory of its own; default a new tensor of ``max_blocks * block_size`` tokens.

    Returns:
        ``out``, minus infinity past the end of a sequence.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Lengths and table entries on a GPU are
            checked only with ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    _check_query(query)
    if out is None:
        capacity = block_tables.shape[-1] * (index_cache.shape[1] if index_cache.dim() == 3 else 1)
        out = query.new_empty((len(query), max(capacity, 1)), dtype=torch.float32)
    OP.run(IndexerTensors(query, weights, index_cache, block_tables, seq_lens, out), variant=variant, config=config)
    return out


def _check_query(query: torch.Tensor) -> None:
    check_dtype("query", query, DTYPES.values())
    if query.dim() != 3 or 0 in query.shape[1:] or not query.is_contiguous():
        raise ArgumentError(
            "query",
            f"shape {tuple(query.shape)}, strides {query.stride()}",
            "[num_seqs, num_heads, head_size], contiguous",
            "Call query.contiguous().",
        )


def problem_of(t: IndexerTensors) -> IndexerProblem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, values; describe the problem.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    _check_query(t.query)
    num_seqs, num_heads, head_size = t.query.shape
    check_dtype("weights", t.weights, [torch.float32])
    if t.weights.shape != (num_seqs, num_heads) or not t.weights.is_contiguous():
        got = f"shape {tuple(t.weights.shape)}, strides {t.weights.stride()}"
        raise ArgumentError("weights", got, f"[{num_seqs}, {num_heads}], contiguous", "A weight per head.")
    quantized = t.query.element_size() == 1
    row = head_size + fp8_index_keys.SCALE_BYTES if quantized else head_size
    check_dtype("index_cache", t.index_cache, [torch.uint8 if quantized else t.query.dtype], "The query has codes.")
    if t.index_cache.dim() != 3 or t.index_cache.shape[1] == 0 or t.index_cache.shape[2] != row:
        allowed = f"[num_blocks, block_size, {row}]"
        raise ArgumentError("index_cache", f"shape {tuple(t.index_cache.shape)}", allowed, "One key for all heads.")
    check_pages("index_cache", t.index_cache)
    check_tables(t, num_seqs)
    check_dtype("out", t.out, [torch.float32])
    if t.out.dim() != 2 or len(t.out) != num_seqs or t.out.shape[1] == 0 or not t.out.is_contiguous():
        raise ArgumentError("out", f"shape {tuple(t.out.shape)}", f"[{num_seqs}, tokens], contiguous", "Pass None.")
    block_size = t.index_cache.shape[1]
    check_entries(t, block_size, len(t.index_cache))
    if look_at_values(t.seq_lens):
        check_within("seq_lens", t.seq_lens, 0, t.out.shape[1], ": a row of out has no more room", "Widen out.")
    return IndexerProblem(
        num_seqs=num_seqs,
        num_heads=num_heads,
        head_size=head_size,
        max_seq_len=t.out.shape[1],
        dtype=dtype_name(t.query.dtype),
        block_size=block_size,
        arch=arch_of(t.query),
    )


OP: DescribedOp = op(name="indexer_scores", tensors=IndexerTensors, in_place=("out",), namespace="workbench")(
    problem_of
)
