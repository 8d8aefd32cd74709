"""A chunk of a page per program, in Triton: the steps of ``cuda_src/copy_blocks_vectors.cu``, with two memories."""

from __future__ import annotations

import torch

from workbench.ops.copy_blocks.triton_pages import (
    RESTRICTIONS,
    SOURCE,
    SPACE,
    constexprs,
    copy_pages,
    default_config,
    signature,
)
from workbench.ops.swap_blocks.problem import Problem, Tensors
from workbench.ops.variant import Config, Launch, TritonVariant


def _launch(config: Config, problem: Problem, tensors: Tensors) -> Launch:
    sources, targets = tensors.source_memory, tensors.target_memory
    return Launch(
        grid=(problem.num_pairs, problem.num_caches, -(-problem.page_bytes // config["CHUNK_BYTES"])),
        block=(32 * config["num_warps"],),
        arguments=(
            sources.base.view(torch.int32),
            targets.base.view(torch.int32),
            sources.places,
            targets.places,
            tensors.pairs,
            sources.page_steps,
            targets.page_steps,
        ),
    )


VARIANT = TritonVariant(
    op="swap_blocks",
    name="triton_vectors",
    idea="a program per pair, cache and chunk of a page",
    source=SOURCE,
    function=copy_pages,
    space=SPACE,
    restrictions=RESTRICTIONS,
    layouts=("any",),
    dtypes=("any",),
    defaults=lambda problem: default_config(problem),  # of this file: it says where the variant is declared
    signature=signature,
    constexprs=constexprs,
    launcher=_launch,
)
