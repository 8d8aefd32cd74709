"""The CUDA kernel that copies pages by wide accesses, as a variant of several ops: ``copy_blocks_vectors.cu``."""

from __future__ import annotations

from workbench.home import cuda_sources
from workbench.ops.copy_blocks.problem import Problem, Tensors
from workbench.ops.copy_blocks.rules import GRID
from workbench.ops.variant import Config, CudaVariant, Launch, Restriction

SPACE = {
    "NUM_THREADS": (32, 64, 128, 256, 512),
    "VEC_BYTES": (4, 8, 16),
    "VECS_PER_THREAD": (1, 2, 4, 8),
}

RESTRICTIONS = (
    Restriction(
        "whole vectors",
        "page_bytes % VEC_BYTES == 0",
        lambda c, p: p.page_bytes % c["VEC_BYTES"] == 0,
    ),
    Restriction(
        "threads per block",
        "NUM_THREADS % 32 == 0 and NUM_THREADS <= 1024",
        lambda c, p: c["NUM_THREADS"] % 32 == 0 and 32 <= c["NUM_THREADS"] <= 1024,
    ),
    Restriction(
        "every chunk has work",
        "NUM_THREADS * VEC_BYTES * VECS_PER_THREAD < 2 * page_bytes, or the smallest of each",
        lambda c, p: chunk(c) < 2 * p.page_bytes or (c["NUM_THREADS"] == 32 and c["VECS_PER_THREAD"] == 1),
    ),
    GRID,
)


def chunk(config: Config) -> int:
    """Bytes of a page that one block copies."""
    return config["NUM_THREADS"] * config["VEC_BYTES"] * config["VECS_PER_THREAD"]


def default_config(problem: Problem) -> dict:
    """16 bytes per access where the page allows, four of them in flight, on as many threads as a page feeds."""
    vec = 16
    while problem.page_bytes % vec and vec > 4:
        vec //= 2
    config = {"NUM_THREADS": 128, "VEC_BYTES": vec, "VECS_PER_THREAD": 4}
    for name, least in (("VECS_PER_THREAD", 1), ("NUM_THREADS", 32)):
        while config[name] > least and chunk(config) >= 2 * problem.page_bytes:
            config[name] //= 2
    return config


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


def vectors_variant(op: str) -> CudaVariant:
    """The variant of one of the ops that copy pages."""
    return CudaVariant(
        op=op,
        name="cuda_vectors",
        idea="a block per pair, cache and chunk of a page; every thread has several wide loads in flight",
        source=cuda_sources() / "copy_blocks_vectors.cu",
        kernel="copy_blocks_vectors",
        space=SPACE,
        restrictions=RESTRICTIONS,
        layouts=("any",),
        dtypes=("any",),
        defaults=default_config,
        macros=lambda config, problem: dict(config),
        resources=lambda config, problem: (config["NUM_THREADS"], 0),
        launcher=_launch,
    )
