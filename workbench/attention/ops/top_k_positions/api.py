"""`top_k_positions`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.attention.ops.tensor_checks import check_dtype, check_vector, check_within, look_at_values
from workbench.attention.ops.top_k_positions.problem import TopKProblem, TopKTensors
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op


@names_wrong_kinds
def top_k_positions(
    scores: torch.Tensor,
    seq_lens: torch.Tensor,
    k: int,
    *,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Choose the positions of the ``k`` highest scores of each sequence, in ascending order.

    Of equal scores those at lower positions are chosen; -0 equals 0. A sequence of fewer than ``k`` tokens gives all
    its positions, and -1 after them. `torch.topk` promises no order of ties. Method: radix selection, as vLLM's
    ``top_k_per_row`` and SGLang's DeepSeek-V3.2 kernels; positions in order make the reads that follow regular.

    Args:
        scores: ``[num_seqs, max_seq_len] float32``, of `indexer_scores`, without NaN; rows may be apart. What follows
            the first ``seq_lens[i]`` scores of row i is not read.
        seq_lens: ``[num_seqs] int32`` in tokens.
        k: number of positions, at least 1.
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.
        out: the tensor to write, ``[num_seqs, k] int32``, contiguous, in memory of its own; default a new tensor.

    Returns:
        ``out``.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Lengths on a GPU are checked only with
            ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    _check_scores(scores)
    if k < 1:
        raise ArgumentError("k", k, "at least 1", "DeepSeek-V3.2 takes 2048.")
    out = scores.new_empty((len(scores), k), dtype=torch.int32) if out is None else out
    OP.run(TopKTensors(scores, seq_lens, out), variant=variant, config=config)
    return out if scores.shape[1] else out.fill_(-1)  # an op does nothing where a tensor is empty


def _check_scores(scores: torch.Tensor) -> None:
    check_dtype("scores", scores, [torch.float32])
    if scores.dim() != 2 or scores.stride(1) != 1:
        raise ArgumentError(
            "scores",
            f"shape {tuple(scores.shape)}, strides {scores.stride()}",
            "[num_seqs, max_seq_len], each row contiguous",
            "Call scores.contiguous().",
        )


def problem_of(t: TopKTensors) -> TopKProblem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, lengths; describe the problem.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    _check_scores(t.scores)
    num_seqs, columns = t.scores.shape
    check_vector("seq_lens", t.seq_lens, num_seqs, torch.int32, "One length per sequence.")
    check_dtype("out", t.out, [torch.int32])
    if t.out.dim() != 2 or len(t.out) != num_seqs or not t.out.is_contiguous():
        raise ArgumentError("out", f"shape {tuple(t.out.shape)}", f"[{num_seqs}, k], contiguous", "Pass None.")
    if look_at_values(t.seq_lens):
        check_within("seq_lens", t.seq_lens, 0, columns, ": a row has no more scores", "Shorten it.")
    return TopKProblem(num_seqs=num_seqs, max_seq_len=columns, k=t.out.shape[1], arch=arch_of(t.scores))


OP: DescribedOp = op(name="top_k_positions", tensors=TopKTensors, in_place=("out",), namespace="workbench")(problem_of)
