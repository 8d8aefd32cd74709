"""A chunk of a page per program, in Triton: the steps of ``cuda_src/copy_blocks_vectors.cu``.

Distances come in steps of 16 bytes, so that the compiler sees by itself that every access may be 16 bytes wide.
"""

from __future__ import annotations

from pathlib import Path

import torch
import triton
import triton.language as tl

from workbench.ops.copy_blocks.problem import Problem, Tensors
from workbench.ops.copy_blocks.rules import GRID
from workbench.ops.variant import Config, Launch, Restriction, TritonVariant


@triton.jit
def copy_blocks_vectors(
    base,  # in words of 4 bytes; all distances from it are in steps of 16 bytes
    places,  # [num_caches]: where each cache starts
    pairs,  # [num_pairs, 2]: source page, destination page
    page_steps,
    PAGE_WORDS: tl.constexpr,
    CHUNK_WORDS: tl.constexpr,  # of one program
):
    # 1. Find the two pages.
    source = tl.load(pairs + 2 * tl.program_id(0).to(tl.int64))
    destination = tl.load(pairs + 2 * tl.program_id(0).to(tl.int64) + 1)
    cache = tl.load(places + tl.program_id(1))
    word = tl.program_id(2) * CHUNK_WORDS + tl.arange(0, CHUNK_WORDS)

    # 2. Load.
    words = tl.load(base + (cache + source * page_steps) * 4 + word, mask=word < PAGE_WORDS)

    # 3. Store.
    tl.store(base + (cache + destination * page_steps) * 4 + word, words, mask=word < PAGE_WORDS)


def default_config(problem: Problem) -> dict:
    """8 KiB per program on four warps, or the page if that is less."""
    chunk = min(8192, triton.next_power_of_2(problem.page_bytes))
    return {"CHUNK_BYTES": max(chunk, 512), "num_warps": 4 if chunk >= 2048 else 1, "num_stages": 1}


def _launch(config: Config, problem: Problem, tensors: Tensors) -> Launch:
    t = tensors
    return Launch(
        grid=(problem.num_pairs, problem.num_caches, -(-problem.page_bytes // config["CHUNK_BYTES"])),
        block=(32 * config["num_warps"],),
        arguments=(t.base.view(torch.int32), t.places, t.pairs, t.page_steps),
    )


RESTRICTIONS = (
    Restriction(
        "whole words",
        "page_bytes % 4 == 0",
        lambda c, p: p.page_bytes % 4 == 0,
    ),
    Restriction(
        "powers of two",
        "CHUNK_BYTES is a power of two, at least 4 * 32 * num_warps",
        lambda c, p: c["CHUNK_BYTES"] & (c["CHUNK_BYTES"] - 1) == 0 and c["CHUNK_BYTES"] >= 128 * c["num_warps"],
    ),
    Restriction(
        "every chunk has work",
        "CHUNK_BYTES < 2 * page_bytes, or the smallest",
        lambda c, p: c["CHUNK_BYTES"] < 2 * p.page_bytes or c["CHUNK_BYTES"] == 512,
    ),
    Restriction(
        "a chunk fits in registers",
        "CHUNK_BYTES / (32 * num_warps) <= 256 bytes per thread",
        lambda c, p: c["CHUNK_BYTES"] <= 256 * 32 * c["num_warps"],
    ),
    GRID,
)

VARIANT = TritonVariant(
    op="copy_blocks",
    name="triton_vectors",
    idea="a program per pair, cache and chunk of a page",
    source=Path(__file__),
    function=copy_blocks_vectors,
    space={
        "CHUNK_BYTES": (512, 1024, 2048, 4096, 8192, 16384, 32768),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1,),
    },
    restrictions=RESTRICTIONS,
    layouts=("any",),
    dtypes=("any",),
    defaults=default_config,
    signature=lambda problem: {"base": "*i32", "places": "*i64:8", "pairs": "*i64:8", "page_steps": "i64"},
    constexprs=lambda config, problem: {
        "PAGE_WORDS": problem.page_bytes // 4,
        "CHUNK_WORDS": config["CHUNK_BYTES"] // 4,
    },
    launcher=_launch,
)
