"""Pages of equal bytes for layers that keep different things.

A pool that several kinds of layers share has blocks of one size in bytes. `plan_pages` divides the layers of each kind
into groups, and gives each group the block size with which its blocks fill a page: layers that keep little of a token
have more tokens in it, and a page holds the states of as many layers as a group has. What does not come out even is
padding: places of layers that a group does not have, and bytes at the end of a page.

Method: as in vLLM's hybrid KV cache manager, which has the same number of layers in every group and makes the blocks of
attention layers longer until a state fits; here each kind has a number of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.attention.kvcache.errors import check_count
from workbench.attention.kvcache.layer_groups import LayerGroup
from workbench.errors import ArgumentError


@dataclass(frozen=True)
class LayerKind:
    """Layers of a model that keep the same part of a sequence.

    Attributes:
        kind: one of `workbench.attention.kvcache.layer_groups.KINDS`.
        num_layers: number of these layers.
        layer_bytes: bytes of a token in one of them; of a state, the bytes of a sequence.
        reach: tokens of a window or of a chunk.
    """

    kind: str
    num_layers: int
    layer_bytes: int
    reach: int | None = None


@dataclass(frozen=True)
class PageGroup:
    """A group of a plan: what the block manager knows of it, and its bytes.

    Attributes:
        group: the group, for `BlockManager`.
        num_layers: number of its layers; the last group of a kind may have fewer than a page has places for.
        layer_bytes: bytes of a token (or of the state) in one layer.
    """

    group: LayerGroup
    num_layers: int
    layer_bytes: int

    @property
    def slot_bytes(self) -> int:
        """Bytes of a token, or of the state, in all layers of the group."""
        return self.num_layers * self.layer_bytes

    @property
    def block_bytes(self) -> int:
        """Bytes of a page that the group can fill."""
        return self.slot_bytes * self.group.slots_per_block


@dataclass(frozen=True)
class PagePlan:
    """Groups over pages of one size, in the order of the kinds."""

    page_bytes: int
    groups: tuple[PageGroup, ...]

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """The groups for `BlockManager`."""
        return tuple(one.group for one in self.groups)


def plan_pages(kinds: Sequence[LayerKind], layers_per_group: Sequence[int], *, block_size: int = 16) -> PagePlan:
    """Divide layers into groups over pages of equal size.

    The first kind that keeps tokens has blocks of ``block_size`` tokens, or of the next multiple with which a page
    holds the state groups too. The other kinds have as many tokens in a page as fit, rounded down to a multiple of that
    block size or to a divisor of it, so that prefixes end where blocks of all groups end. States can be saved at each
    multiple of it.

    Args:
        kinds: the layers, each kind once.
        layers_per_group: number of layers in a group, for each kind.
        block_size: least number of tokens in a block of the first kind that keeps tokens.

    Raises:
        ArgumentError: if no kind keeps tokens, a number is not whole or too small, or a block of a group would not hold
            one token.
    """
    check_count("block_size", block_size, 1, "Tokens per block; 16 is usual.")
    if len(layers_per_group) != len(kinds):
        raise ArgumentError(
            "layers_per_group", f"{len(layers_per_group)} numbers", f"{len(kinds)}, one per kind", "Give each kind one."
        )
    pairs = list(zip(kinds, layers_per_group, strict=True))
    for kind, layers in pairs:
        check_count("layers_per_group", layers, 1, "Layers of one group.")
        check_count("num_layers", kind.num_layers, 1, "Leave kinds without layers out.")
        check_count("layer_bytes", kind.layer_bytes, 1, "Bytes of a token, or of a state, in one layer.")
    token_bytes = next((layers * kind.layer_bytes for kind, layers in pairs if kind.kind != "state"), None)
    if token_bytes is None:
        raise ArgumentError("kinds", "states alone", "a kind that keeps tokens", "Its blocks are the pages.")
    states = [layers * kind.layer_bytes for kind, layers in pairs if kind.kind == "state"]
    first = -(-max([block_size * token_bytes, *states]) // (block_size * token_bytes)) * block_size
    page = first * token_bytes
    groups = []
    for kind, layers in pairs:
        size = first if kind.kind == "state" else _common(page // (layers * kind.layer_bytes), first)
        if not size:
            raise ArgumentError(
                "layers_per_group", f"{layers} {kind.kind} layers of {kind.layer_bytes} bytes",
                f"at most {page} bytes a token, those of a page", "Put fewer layers in a group, or raise block_size.",
            )  # fmt: skip
        for index, start in enumerate(range(0, kind.num_layers, layers)):
            group = LayerGroup(f"{kind.kind} {index}", size, kind.kind, kind.reach)
            groups.append(PageGroup(group, min(layers, kind.num_layers - start), kind.layer_bytes))
    return PagePlan(page, tuple(groups))


def _common(fitting: int, size: int) -> int:
    """Return the largest number of at most ``fitting`` that is a multiple or a divisor of ``size``; 0 if none is."""
    if fitting >= size:
        return fitting // size * size
    return next((part for part in range(fitting, 0, -1) if size % part == 0), 0)
