# mypy: allow-untyped-defs, allow-incomplete-defs
"""The Triton function that copies pages, as a variant of several ops: the steps of ``cuda_src/copy_blocks_vectors.cu``.

Distances come in steps of 16 bytes, so that the compiler sees by itself that every access may be 16 bytes wide.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from workbench.attention.ops.copy_blocks.problem import ARGUMENTS, GRID, CopyBlocksProblem, MovesPages
from workbench.attention.ops.rules import rules
from workbench.attention.ops.triton_types import TYPES
from workbench.ops import TritonStep, TritonVariant, cdiv


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
    """Copy CHUNK_WORDS of one page of one cache."""
    source = tl.load(pairs + 2 * tl.program_id(0).to(tl.int64))
    destination = tl.load(pairs + 2 * tl.program_id(0).to(tl.int64) + 1)
    from_steps = tl.load(source_places + tl.program_id(1)) + source * source_page_steps
    to_steps = tl.load(target_places + tl.program_id(1)) + destination * target_page_steps
    word = tl.program_id(2) * CHUNK_WORDS + tl.arange(0, CHUNK_WORDS)

    # 2. Load.
    words = tl.load(sources + from_steps * 4 + word, mask=word < PAGE_WORDS)

    # 3. Store.
    tl.store(targets + to_steps * 4 + word, words, mask=word < PAGE_WORDS)


SPACE = {
    "CHUNK_BYTES": (512, 1024, 2048, 4096, 8192, 16384, 32768),
    "num_warps": (1, 2, 4, 8),
    "num_stages": (1,),
}


def default_config(problem: CopyBlocksProblem) -> dict:
    """Return 8 KiB per program on four warps, or the page's size if that is less."""
    chunk = min(8192, triton.next_power_of_2(problem.page_bytes))
    return {"CHUNK_BYTES": max(chunk, 512), "num_warps": 4 if chunk >= 2048 else 1, "num_stages": 1}


RESTRICTIONS = rules(
    ("whole words", "page_bytes % 4 == 0"),
    ("powers of two", "is_power_of_two(CHUNK_BYTES) and CHUNK_BYTES >= 4 * 32 * num_warps"),
    ("every chunk has work", "CHUNK_BYTES < 2 * page_bytes or CHUNK_BYTES == 512"),
    ("a chunk fits in registers", "CHUNK_BYTES <= 256 * 32 * num_warps", "256 bytes per thread"),
    GRID,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Vectors(MovesPages, TritonVariant):
    """Variant in Triton that copies pages in chunks."""


def variant(op: str) -> TritonVariant:
    """Return the variant of one of the ops that copy pages."""
    return _Vectors(
        op=op,
        name="triton_vectors",
        idea="a program per pair, cache and chunk of a page",
        steps=(
            TritonStep(
                function=copy_pages,
                grid=lambda config, problem: (
                    problem.num_pairs,
                    problem.num_caches,
                    cdiv(problem.page_bytes, config["CHUNK_BYTES"]),
                ),
                types=lambda problem: TYPES | {"sources": "*i32", "targets": "*i32"},
                constexprs=lambda config, problem: {
                    "PAGE_WORDS": problem.page_bytes // 4,
                    "CHUNK_WORDS": config["CHUNK_BYTES"] // 4,
                },
                arguments=ARGUMENTS
                | {
                    "sources": lambda config, problem, tensors: tensors.source_memory.base.view(torch.int32),
                    "targets": lambda config, problem, tensors: tensors.target_memory.base.view(torch.int32),
                },
            ),
        ),
        space=SPACE,
        restrictions=RESTRICTIONS,
        layouts=("any",),
        dtypes=("any",),
        defaults=default_config,
    )
