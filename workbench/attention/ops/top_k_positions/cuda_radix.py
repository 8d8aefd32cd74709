"""Radix selection by a block per sequence: ``top_k_positions_radix.cu``."""

from __future__ import annotations

from workbench.attention.ops.rules import THREADS, rules
from workbench.attention.ops.top_k_positions.problem import ARGUMENTS, TopKProblem
from workbench.base.packages import cuda_sources
from workbench.ops import CudaStep, CudaVariant


def default_config(problem: TopKProblem) -> dict:
    """Return as many threads as a row feeds with four scores each."""
    threads = 1024
    while threads > 128 and threads * 2 >= problem.max_seq_len:
        threads //= 2
    return {"NUM_THREADS": threads}


VARIANT = CudaVariant(
    op="top_k_positions",
    name="cuda_radix",
    idea="a block per sequence: the k-th highest score digit by digit of its bits, then a count of those above it",
    source=cuda_sources() / "top_k_positions_radix.cu",
    steps=(
        CudaStep(
            kernel="top_k_positions",
            grid=lambda config, problem: (problem.num_seqs,),
            arguments=ARGUMENTS,
        ),
    ),
    space={"NUM_THREADS": (128, 256, 512, 1024)},
    restrictions=rules(THREADS),
    layouts=("any",),
    dtypes=("float32",),
    defaults=default_config,
)
