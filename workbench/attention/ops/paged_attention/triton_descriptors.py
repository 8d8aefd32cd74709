"""Pages by TMA: the kernel of ``triton_grouped`` with tensor descriptors over the cache, whose boxes are pages.

One copy brings a KV head's part of a page, keys or values, so that no thread computes addresses of tokens. Slots past
the end of a sequence in its last page are copied too; values are set to zero there before the product.
"""

from __future__ import annotations

from dataclasses import replace

from workbench.attention.ops.paged_attention.problem import PagedAttentionProblem
from workbench.attention.ops.paged_attention.rules import num_partitions
from workbench.attention.ops.paged_attention.triton_grouped import VARIANT as GROUPED
from workbench.attention.ops.paged_attention.triton_grouped import constexprs, footprint, shared_bytes
from workbench.attention.ops.rules import TMA, shared_limit, shared_memory
from workbench.ops import Config, Footprint, Restriction, next_power_of_2


def _shared_bytes(config: Config, problem: PagedAttentionProblem) -> int:
    """Return the bytes of ``triton_grouped``, and of a tile of values with zeros past the end."""
    tile = config["TILE_TOKENS"] * next_power_of_2(problem.head_size) * problem.cache_itemsize
    return shared_bytes(config, problem) + tile


def _footprint(config: Config, problem: PagedAttentionProblem) -> Footprint:
    return replace(footprint(config, problem), shared_bytes=_shared_bytes(config, problem))


def default_config(problem: PagedAttentionProblem) -> dict:
    """Return the default of ``triton_grouped`` with tiles of a page.

    Large pages get more warps, and as many pages are copied ahead as fit.
    """
    config = GROUPED.default_config(problem) | {"TILE_TOKENS": problem.page}
    if problem.page * next_power_of_2(problem.head_size) > 128 * 32 * config["num_warps"]:
        config["num_warps"] = 8
    for stages in (5, 3):
        config["num_stages"] = stages
        if _shared_bytes(config, problem) <= shared_limit(problem):
            break
    return config


VARIANT = replace(
    GROUPED,
    name="triton_descriptors",
    idea="triton_grouped with tensor descriptors: TMA brings a page of keys or values at once",
    steps=(
        replace(
            GROUPED.steps[0],
            grid=lambda config, problem: (problem.num_kv_heads, problem.num_seqs, num_partitions(config, problem)),
            constexprs=lambda config, problem: constexprs(config, problem) | {"DESCRIPTORS": True},
        ),
    ),
    space={**GROUPED.space, "BLOCK_SIZE": (16, 32, 64, 128)},
    restrictions=(
        TMA,
        Restriction.of("a tile is a page", "TILE_TOKENS == BLOCK_SIZE"),
        shared_memory(
            _shared_bytes,
            "the bytes of triton_grouped + TILE_TOKENS * next_power_of_2(head_size) * sizeof(cache element)",
        ),
        *(rule for rule in GROUPED.restrictions if rule.name != "shared memory"),
    ),
    features=("alibi", "sliding_window", "soft_cap", "sinks"),
    defaults=default_config,
    footprint=_footprint,
)
