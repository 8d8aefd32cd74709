"""A chunk of a page per program, in Triton: the steps of ``cuda_src/copy_blocks_vectors.cu``."""

from __future__ import annotations

import torch

from workbench.ops.copy_blocks.problem import Problem, Tensors
from workbench.ops.copy_blocks.triton_pages import (
    RESTRICTIONS,
    SOURCE,
    SPACE,
    constexprs,
    copy_pages,
    default_config,
    signature,
)
from workbench.ops.variant import Config, Launch, TritonVariant


def _launch(config: Config, problem: Problem, tensors: Tensors) -> Launch:
    t = tensors
    words = t.memory.base.view(torch.int32)
    return Launch(
        grid=(problem.num_pairs, problem.num_caches, -(-problem.page_bytes // config["CHUNK_BYTES"])),
        block=(32 * config["num_warps"],),
        arguments=(words, words, t.memory.places, t.memory.places, t.pairs, t.memory.page_steps, t.memory.page_steps),
    )


VARIANT = TritonVariant(
    op="copy_blocks",
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
