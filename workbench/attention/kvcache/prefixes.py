"""What full blocks contain, named so that equal prefixes have one name.

The keys and values of a token depend on every token before it. The contents of a full block are therefore determined
by its own tokens and by the contents of the block before it: a chain of `Prefix`, each with a hash of its parent's
hash and its tokens (as in vLLM's automatic prefix caching). Two tenants with different salts start different chains.

A hash alone would let two contents collide into one block, that is, show one user the cache of another. Here equal
contents are one object, because the table that finds them compares the tokens and the identity of the parent.
"""

from __future__ import annotations

from collections.abc import Hashable
from weakref import WeakValueDictionary


class Prefix:
    """Everything from the salt up to the end of one full block. Compared by identity; made by `Prefixes` only."""

    __slots__ = ("__weakref__", "block", "hash", "parent", "tokens")

    def __init__(self, parent: Prefix | None, tokens: Hashable, hash_value: int):
        self.parent = parent
        self.tokens = tokens
        self.hash = hash_value
        self.block: int | None = None
        """The device block that holds these contents, if one does."""

    def __hash__(self) -> int:
        return self.hash

    __eq__ = object.__eq__


class Prefixes:
    """Finds the one `Prefix` of given contents. One that no block, sequence or longer prefix refers to vanishes."""

    def __init__(self) -> None:
        self._found: WeakValueDictionary[tuple[object, ...], Prefix] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._found)

    def root(self, salt: Hashable) -> Prefix:
        """The empty prefix of a salt."""
        return self.extend(None, salt)

    def extend(self, parent: Prefix | None, tokens: Hashable) -> Prefix:
        """The prefix that follows ``parent`` with one more full block of tokens."""
        key = (parent, tokens)  # hashed by parent.hash and the tokens, compared by the parent itself and the tokens
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = Prefix(parent, tokens, hash(key))
        return found

    def longest_cached(self, root: Prefix, tokens: list[Hashable], block_size: int) -> tuple[list[int], Prefix]:
        """The blocks that hold the longest cached run of full blocks of ``tokens``, and its name.

        The block of the last token is left out, full or not: that token has to be computed to go on from it.
        """
        blocks, prefix = [], root
        for start in range(0, (len(tokens) - 1) // block_size * block_size, block_size):
            found = self._found.get((prefix, tuple(tokens[start : start + block_size])))
            if found is None or found.block is None:
                break
            blocks.append(found.block)
            prefix = found
        return blocks, prefix
