"""Byte-pair encoding: a tokenizer that merges the most frequent pairs of tokens of its training text.

Token ids 0 to 255 are bytes, 256 ends a document, and the rest are merges in the order in which they were learned.
Method: Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword Units", 2016, on bytes.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from workbench.errors import ArgumentError

END_OF_TEXT = 256
_FIRST_MERGE = 257
_WORD = re.compile(r" ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]+|\n+|[^\S\n]+(?=[^\s])|\s")

Pair = tuple[int, int]


class Tokenizer:
    """A converter between text and token ids; ``decode(encode(text)) == text`` for every text.

    Args:
        merges: pairs of earlier token ids; pair i makes token ``257 + i``.

    Raises:
        ArgumentError: if a pair names a token that does not exist yet, or the end of text.
    """

    def __init__(self, merges: Iterable[Pair]):
        self.merges: tuple[Pair, ...] = tuple((int(left), int(right)) for left, right in merges)
        self._bytes = [bytes([byte]) for byte in range(256)] + [b""]
        for pair in self.merges:
            if not all(0 <= token < len(self._bytes) and token != END_OF_TEXT for token in pair):
                raise ArgumentError(
                    "merges", pair, f"tokens below {len(self._bytes)}, not 256", "Train the tokenizer again."
                )
            self._bytes.append(self._bytes[pair[0]] + self._bytes[pair[1]])
        self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        self._encode_word = lru_cache(maxsize=2**16)(self._merge_word)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return [token for word in _WORD.findall(text) for token in self._encode_word(word)]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens; invalid UTF-8, such as a part of a character, becomes U+FFFD."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes of tokens, for a stream that decodes them later; ArgumentError for unknown ids."""
        found = []
        for token in tokens:
            if not 0 <= token < len(self._bytes):
                raise ArgumentError("tokens", token, f"0 to {len(self._bytes) - 1}", "Use ids of this tokenizer.")
            found.append(self._bytes[token])
        return b"".join(found)

    def _merge_word(self, word: str) -> tuple[int, ...]:
        tokens = list(word.encode())
        while len(tokens) > 1:
            rank, pair = min((self._ranks.get(pair, len(self._ranks)), pair) for pair in _pairs(tokens))
            if rank == len(self._ranks):
                break
            tokens = _merged(tokens, pair, _FIRST_MERGE + rank)
        return tuple(tokens)


def learn(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a tokenizer of ``vocab_size`` ids from texts, by merging the most frequent pair again and again."""
    if vocab_size < _FIRST_MERGE:
        raise ArgumentError(
            "vocab_size", vocab_size, f"at least {_FIRST_MERGE}", "Bytes and the end of text take ids, too."
        )
    counts = Counter(word for text in texts for word in _WORD.findall(text))
    words = [list(word.encode()) for word in counts]
    weights = list(counts.values())
    totals: Counter[Pair] = Counter()
    where: dict[Pair, set[int]] = defaultdict(set)
    for index, word in enumerate(words):
        for pair in _pairs(word):
            totals[pair] += weights[index]
            where[pair].add(index)
    merges: list[Pair] = []
    while len(merges) < vocab_size - _FIRST_MERGE and totals:
        best = max(totals, key=lambda pair: (totals[pair], pair))  # break ties by id, so that merges are reproducible
        for index in where.pop(best):
            for pair in _pairs(words[index]):
                totals[pair] -= weights[index]
            words[index] = _merged(words[index], best, _FIRST_MERGE + len(merges))
            for pair in _pairs(words[index]):
                totals[pair] += weights[index]
                where[pair].add(index)
        del totals[best]
        merges.append(best)
    return Tokenizer(merges)


def _pairs(tokens: Sequence[int]) -> list[Pair]:
    return list(itertools.pairwise(tokens))


def _merged(tokens: Sequence[int], pair: Pair, token: int) -> list[int]:
    """Replace every occurrence of a pair, from the left, by a token."""
    found, index = [], 0
    while index < len(tokens):
        if index + 1 < len(tokens) and (tokens[index], tokens[index + 1]) == pair:
            found.append(token)
            index += 2
        else:
            found.append(tokens[index])
            index += 1
    return found
