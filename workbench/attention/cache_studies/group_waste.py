"""Waste of a pool that layers of several kinds share, on the real `BlockManager`.

Requests of a trace, each at a random moment of its life, are put into the pool until one does not fit: their prompts in
chunks, then their new tokens. The bytes of the pool are divided into what the next tokens read and what they do not.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.attention.cache_studies.traces import Lengths, Request, Workload
from workbench.attention.kvcache.block_manager import BlockManager
from workbench.attention.kvcache.errors import OutOfBlocksError, check_count
from workbench.attention.kvcache.layer_groups import LayerGroup
from workbench.attention.kvcache.page_plan import LayerKind, PagePlan
from workbench.attention.kvcache.sequence import FREED
from workbench.errors import ArgumentError

_STATE = 32 * 128 * 128 * 4
"""Bytes of a gated delta rule's state in one layer: 32 heads of 128 x 128 in fp32."""

MODELS: Mapping[str, tuple[LayerKind, ...]] = {
    "gpt-oss 120B": (LayerKind("full", 18, 2 * 8 * 64 * 2), LayerKind("window", 18, 2 * 8 * 64 * 2, 128)),
    "Gemma 3 27B": (LayerKind("full", 10, 2 * 16 * 128 * 2), LayerKind("window", 52, 2 * 16 * 128 * 2, 1024)),
    "Qwen3-Next 80B": (
        LayerKind("full", 12, 2 * 2 * 256 * 2),
        LayerKind("state", 36, _STATE + 3 * (2 * 16 + 32) * 128 * 2),
    ),
    "Kimi Linear 48B": (LayerKind("latent", 6, (512 + 64) * 2), LayerKind("state", 21, _STATE + 3 * 3 * 32 * 128 * 2)),
}
"""Layers of four models, with the bytes that each keeps of a token in bf16, or of a sequence: the state in fp32, and
the last three inputs of its convolution in bf16. From the default configurations of transformers 5.23; Gemma 3 27B from
its model card (62 layers, one in six reads everything)."""

LONG = Workload("long", Lengths(mean=4000.0, sigma=0.9, longest=16_384), Lengths(mean=1000.0, sigma=0.9, longest=4096))
"""Requests that are long enough for windows and states to matter; lengths are assumed."""


@dataclass(frozen=True)
class GroupWaste:
    """State of a full pool; the shares add up to 1.

    Attributes:
        num_seqs: running requests.
        tokens: their tokens in all.
        read: share of the bytes that the next token of a request reads, states included.
        behind: share that holds tokens which no later token reads: in blocks with others that are read, or because the
            plan keeps them.
        empty: share of last blocks that holds no token yet.
        padding: share of pages that no layer of their group can fill.
        unused: share that no request holds.
    """

    num_seqs: int
    tokens: int
    read: float
    behind: float
    empty: float
    padding: float
    unused: float


def every_token(kinds: Sequence[LayerKind]) -> tuple[LayerKind, ...]:
    """Return the layers as a manager without groups sees them: each keeps every token.

    Raises:
        ArgumentError: if the layers differ in their bytes, or keep states.
    """
    sizes = {(kind.layer_bytes, kind.kind == "state") for kind in kinds}
    if len(sizes) > 1:
        raise ArgumentError("kinds", sorted(sizes), "layers of equal bytes that keep tokens", "Plan groups for others.")
    return (LayerKind("full", sum(kind.num_layers for kind in kinds), kinds[0].layer_bytes),)


def fill_pool(
    kinds: Sequence[LayerKind],
    plan: PagePlan,
    trace: Sequence[Request],
    *,
    pool_bytes: int,
    chunk: int = 2048,
    seed: int = 0,
) -> GroupWaste:
    """Put requests into a pool until one does not fit, and divide its bytes.

    Args:
        kinds: the layers of the model, with what they read.
        plan: the groups that keep it, and the bytes of a page.
        trace: the requests, in order; each has generated a random part of its tokens.
        pool_bytes: bytes of the pool.
        chunk: tokens of a prompt that are computed in one step; windows are freed between steps.
        seed: seed of the moments.

    Raises:
        ArgumentError: if the pool has room for no page, or for all requests.
    """
    check_count("chunk", chunk, 1, "Tokens of a prompt in one step.")
    manager = BlockManager(pool_bytes // plan.page_bytes, groups=plan.layer_groups)
    rng = random.Random(seed)
    for seq, request in enumerate(trace):
        tokens = request.input_tokens + rng.randrange(request.output_tokens)
        try:
            manager.allocate(seq, min(chunk, tokens))
            while (left := tokens - manager.num_tokens(seq)) > 0:
                manager.append(seq, min(chunk, left))
            manager.append(seq)
        except OutOfBlocksError:
            if seq in manager:
                manager.free(seq)
            break
    else:
        raise ArgumentError("trace", f"{len(trace)} requests, which all fit", "more of them", "Draw a longer trace.")
    return _divided(kinds, plan, manager)


def _divided(kinds: Sequence[LayerKind], plan: PagePlan, manager: BlockManager) -> GroupWaste:
    held = read = empty = padding = tokens = 0
    readers = [(LayerGroup(kind.kind, 1, kind.kind, kind.reach), kind.num_layers * kind.layer_bytes) for kind in kinds]
    for seq in manager.sequences:
        length = manager.num_tokens(seq)
        tokens += length
        for reader, slot_bytes in readers:
            read += slot_bytes * (1 if reader.kind == "state" else length - reader.first_read(length))
        for one in plan.groups:
            table = manager.block_table(seq, one.group.name)
            live = len(table) - table.count(FREED)
            padding += live * (plan.page_bytes - one.block_bytes)
            rest = 0 if one.group.kind == "state" else -length % one.group.block_size
            empty += rest * one.slot_bytes
            held += live * one.block_bytes - rest * one.slot_bytes
    whole = manager.num_blocks * plan.page_bytes
    reads, behind, rests, pads = (part / whole for part in (read, held - read, empty, padding))
    unused = 1 - reads - behind - rests - pads
    return GroupWaste(len(manager.sequences), tokens, reads, behind, rests, pads, unused)
