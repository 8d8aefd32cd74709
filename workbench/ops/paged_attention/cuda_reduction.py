"""The CUDA kernel that combines the partial results of the partitions of a sequence, as a step of a variant.

It is ``paged_attention_reduce`` of the variant's own file, made of ``cuda_src/common/partitions.cuh``.
"""

from __future__ import annotations

from workbench.ops.paged_attention.problem import Problem, Tensors
from workbench.ops.scales import scale_strides
from workbench.ops.variant import Config, CudaStep, Launch


def _launch(config: Config, problem: Problem, tensors: Tensors) -> Launch:
    t = tensors
    return Launch(
        grid=(problem.num_heads, problem.num_seqs),
        block=(config["NUM_THREADS"],),
        arguments=(
            t.out,
            t.workspace.out,
            t.workspace.stats,
            t.seq_lens,
            None if "token_scales" in problem.features else t.v_scale,  # else the partitions have used it
            t.sinks,
            t.sliding_window or 0,
            scale_strides(t.v_scale)[1],
            problem.num_kv_heads,
            t.workspace.count,
        ),
    )


REDUCTION = CudaStep(
    kernel="paged_attention_reduce",
    resources=lambda config, problem: (config["NUM_THREADS"], 0),
    launcher=_launch,
)
