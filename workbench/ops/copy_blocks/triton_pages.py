"""The Triton function that copies pages, as a variant of several ops: the steps of ``cuda_src/copy_blocks_vectors.cu``.

Distances come in steps of 16 bytes, so that the compiler sees by itself that every access may be 16 bytes wide.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import triton
import triton.language as tl

from workbench.ops.copy_blocks.problem import Problem, Tensors
from workbench.ops.copy_blocks.rules import GRID
from workbench.ops.variant import Config, Launch, Restriction, TritonVariant


@triton.jit
def copy_pages(
    sources,  # two addresses, in words of 4 bytes; all distances from them are in steps of 16 bytes
    targets,
    source_places,  # [num_caches]: where each cache starts
    target_places,
    pairs,  # [num_pairs, 2]: source page, destination page
    source_page_steps,
    target_page_steps,
    PAGE_WORDS: tl.constexpr,
    CHUNK_WORDS: tl.constexpr,  # of one program
):
    # 1. Find the two pages.
    source = tl.load(pairs + 2 * tl.program_id(0).to(tl.int64))
    destination = tl.load(pairs + 2 * tl.program_id(0).to(tl.int64) + 1)
    from_steps = tl.load(source_places + tl.program_id(1)) + source * source_page_steps
    to_steps = tl.load(target_places + tl.program_id(1)) + destination * target_page_steps
    word = tl.program_id(2) * CHUNK_WORDS + tl.arange(0, CHUNK_WORDS)

    # 2. Load.
    words = tl.load(sources + from_steps * 4 + word, mask=word < PAGE_WORDS)

    # 3. Store.
    tl.store(targets + to_steps * 4 + word, words, mask=word < PAGE_WORDS)


def _signature(problem: Problem) -> Mapping[str, str]:
    return {
        "sources": "*i32",
        "targets": "*i32",
        "source_places": "*i64:8",
        "target_places": "*i64:8",
        "pairs": "*i64:8",
        "source_page_steps": "i64",
        "target_page_steps": "i64",
    }


def _constexprs(config: Config, problem: Problem) -> Mapping[str, int]:
    return {"PAGE_WORDS": problem.page_bytes // 4, "CHUNK_WORDS": config["CHUNK_BYTES"] // 4}


SPACE = {
    "CHUNK_BYTES": (512, 1024, 2048, 4096, 8192, 16384, 32768),
    "num_warps": (1, 2, 4, 8),
    "num_stages": (1,),
}


def default_config(problem: Problem) -> dict:
    """8 KiB per program on four warps, or the page if that is less."""
    chunk = min(8192, triton.next_power_of_2(problem.page_bytes))
    return {"CHUNK_BYTES": max(chunk, 512), "num_warps": 4 if chunk >= 2048 else 1, "num_stages": 1}


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


def vectors_variant(op: str) -> TritonVariant:
    """The variant of one of the ops that copy pages."""
    return TritonVariant(
        op=op,
        name="triton_vectors",
        idea="a program per pair, cache and chunk of a page",
        source=Path(__file__),
        function=copy_pages,
        space=SPACE,
        restrictions=RESTRICTIONS,
        layouts=("any",),
        dtypes=("any",),
        defaults=default_config,
        signature=_signature,
        constexprs=_constexprs,
        launcher=_launch,
    )
