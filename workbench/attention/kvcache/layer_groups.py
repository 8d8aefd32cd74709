"""Groups of layers: layers that keep the same part of every sequence, in blocks of one size.

Layers of one model may keep different things of a sequence. A `LayerGroup` says what its layers keep by one number for
each length, `LayerGroup.first_read`: the first token that the next token still reads. Blocks before it can be freed,
and a prefix can be continued if the blocks from there to its end are in the cache. With a state the next token reads
what the token before it left, so a state group is a group that reads one token back and keeps one state for a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.attention.kvcache.errors import check_count
from workbench.errors import ArgumentError, UnknownNameError

KINDS = {
    "full": "every token is kept and read",
    "latent": "every token is kept and read, as one latent vector for all heads (MLA)",
    "window": "a token reads the last `reach` tokens, itself included",
    "chunked": "a token reads the tokens since the last multiple of `reach`",
    "state": "every token changes one state; a block keeps the state after its last token",
}
"""Description of each kind of group."""

_WITH_REACH = ("window", "chunked")


@dataclass(frozen=True)
class LayerGroup:
    """Layers that share one block table for each sequence.

    Attributes:
        name: name of the group in a `BlockManager`.
        block_size: tokens per block. A state group keeps one state in a block, however many tokens have gone into it;
            ``block_size`` is then the distance in tokens between the states that the prefix cache can save.
        kind: one of `KINDS`.
        reach: tokens of a window or of a chunk; None for the other kinds.

    Raises:
        ArgumentError: if a size is too small, or ``reach`` does not fit the kind.
        UnknownNameError: if there is no such kind.
    """

    name: str
    block_size: int
    kind: str = "full"
    reach: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("kind", repr(self.kind), ", ".join(KINDS), "See layer_groups.KINDS.")
        check_count("block_size", self.block_size, 1, "Tokens per block; 16 is usual.")
        if self.kind in _WITH_REACH:
            check_count("reach", self.reach, 1, f"Tokens that a {self.kind} layer reads back, the newest included.")
        elif self.reach is not None:
            kinds = " or ".join(_WITH_REACH)
            raise ArgumentError("reach", self.reach, f"None for {self.kind} layers", f"Leave it out, or say {kinds}.")

    def first_read(self, num_tokens: int) -> int:
        """Return the first token that the next token reads, when a sequence has ``num_tokens`` tokens."""
        if self.kind == "window":
            return max(0, num_tokens + 1 - (self.reach or 0))
        if self.kind == "chunked":
            return num_tokens - num_tokens % (self.reach or 1)
        return max(0, num_tokens - 1) if self.kind == "state" else 0

    @property
    def slots_per_block(self) -> int:
        """Number of entries in a block: its tokens, or one state."""
        return 1 if self.kind == "state" else self.block_size


def check_groups(groups: Sequence[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Return the groups as a tuple; ArgumentError if there are none, or two have one name."""
    names = [group.name for group in groups]
    if not names or len(set(names)) < len(names):
        raise ArgumentError("groups", names, "one or more groups with names of their own", "Rename or add groups.")
    return tuple(groups)
