"""Identities of cached prefixes: equal contents of full blocks are one `Prefix` object.

The keys and values of a token depend on every token before it. The contents of a full block are therefore determined
by its own tokens and by the contents of the block before it: a chain of `Prefix`, each with a hash of its parent's
hash and its tokens (as in vLLM's automatic prefix caching). Two tenants with different salts start different chains.

A hash alone would let two different contents collide, and so show one user the cache of another. Here the table that
finds a `Prefix` compares the tokens and the identity of the parent.
"""

from __future__ import annotations

from collections.abc import Hashable
from weakref import WeakValueDictionary


class Prefix:
    """Contents from the salt up to the end of one full block; compared by identity, created by `Prefixes` only."""

    __slots__ = ("__weakref__", "block", "hash", "parent", "tokens")

    def __init__(self, parent: Prefix | None, tokens: Hashable, hash_value: int):
        self.parent = parent
        self.tokens = tokens
        self.hash = hash_value
        self.block: int | None = None
        """Device block that holds these contents; None if no block does."""

    def __hash__(self) -> int:
        return self.hash

    __eq__ = object.__eq__


class Prefixes:
    """Table that holds one `Prefix` for given contents, as long as a block, sequence or longer prefix refers to it."""

    def __init__(self) -> None:
        self._found: WeakValueDictionary[tuple[object, ...], Prefix] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._found)

    def root(self, salt: Hashable) -> Prefix:
        """Return the empty prefix of a salt."""
        return self.extend(None, salt)

    def extend(self, parent: Prefix | None, tokens: Hashable) -> Prefix:
        """Return the prefix that extends ``parent`` by one full block of tokens."""
        key = (parent, tokens)  # hashed by parent.hash and the tokens, compared by the parent itself and the tokens
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = Prefix(parent, tokens, hash(key))
        return found

    def known(self, root: Prefix, tokens: list[Hashable], block_size: int) -> list[Prefix]:
        """Return the known contents of the leading blocks of ``tokens``, in the cache or evicted from it.

        The block of the last token is left out, even if it is full: an engine has to compute that token to continue.
        """
        chain, prefix = [], root
        for start in range(0, (len(tokens) - 1) // block_size * block_size, block_size):
            found = self._found.get((prefix, tuple(tokens[start : start + block_size])))
            if found is None:
                break
            chain.append(found)
            prefix = found
        return chain
