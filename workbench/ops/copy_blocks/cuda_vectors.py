"""Several wide loads per thread in flight, then as many stores: pages of all layers in one launch.

The kernel is ``cuda_src/copy_blocks_vectors.cu``.
"""

from __future__ import annotations

from workbench.home import cuda_sources
from workbench.ops.copy_blocks.problem import Problem, Tensors
from workbench.ops.copy_blocks.vectors import RESTRICTIONS, SPACE, chunk, default_config
from workbench.ops.variant import Config, CudaVariant, Launch


def _launch(config: Config, problem: Problem, tensors: Tensors) -> Launch:
    t = tensors
    return Launch(
        grid=(problem.num_pairs, problem.num_caches, -(-problem.page_bytes // chunk(config))),
        block=(config["NUM_THREADS"],),
        arguments=(
            t.memory.base,
            t.memory.base,
            t.memory.places,
            t.memory.places,
            t.pairs,
            t.memory.page_steps,
            t.memory.page_steps,
            problem.page_bytes,
        ),
    )


VARIANT = CudaVariant(
    op="copy_blocks",
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
