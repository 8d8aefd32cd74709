"""Several wide loads per thread in flight, then as many stores: pages of all layers in one launch.

The kernel is that of `workbench.ops.copy_blocks`, ``cuda_src/copy_blocks_vectors.cu``, with two memories.
"""

from __future__ import annotations

from workbench.home import cuda_sources
from workbench.ops.copy_blocks.vectors import RESTRICTIONS, SPACE, chunk, default_config
from workbench.ops.swap_blocks.problem import Problem, Tensors
from workbench.ops.variant import Config, CudaVariant, Launch


def _launch(config: Config, problem: Problem, tensors: Tensors) -> Launch:
    sources, targets = tensors.source_memory, tensors.target_memory
    return Launch(
        grid=(problem.num_pairs, problem.num_caches, -(-problem.page_bytes // chunk(config))),
        block=(config["NUM_THREADS"],),
        arguments=(
            sources.base,
            targets.base,
            sources.places,
            targets.places,
            tensors.pairs,
            sources.page_steps,
            targets.page_steps,
            problem.page_bytes,
        ),
    )


VARIANT = CudaVariant(
    op="swap_blocks",
    name="cuda_vectors",
    idea="a block per pair, cache and chunk of a page; every thread has several wide loads in flight",
    source=cuda_sources() / "copy_blocks_vectors.cu",
    kernel="copy_blocks_vectors",
    space=SPACE,
    restrictions=RESTRICTIONS,
    layouts=("any",),
    dtypes=("any",),
    defaults=lambda problem: default_config(problem),  # of this file: it says where the variant is declared
    macros=lambda config, problem: dict(config),
    resources=lambda config, problem: (config["NUM_THREADS"], 0),
    launcher=_launch,
)
