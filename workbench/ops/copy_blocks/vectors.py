"""What the CUDA variants that copy pages by wide accesses declare alike: tunables, rules, the untuned configuration."""

from __future__ import annotations

from workbench.ops.copy_blocks.problem import Problem
from workbench.ops.copy_blocks.rules import GRID
from workbench.ops.variant import Config, Restriction

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
