"""Byte-pair encoding: bytes, and the pairs of tokens that the training text repeats most, merged into tokens.

Token ids: 0 to 255 are bytes, 256 ends a document, the rest are merges in the order in which they were learned.
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
    """Text to token ids and back; ``decode(encode(text)) == text`` for every text.

    Args:
        merges: pairs of earlier token ids; pair i makes token ``257 + i``.

    Raises:
        ArgumentError: a pair that names a token that does not exist yet, or the end of text.
    """

    def __init__(self, merges: Iterable[Pair]):
        self.merges: tuple[Pair, ...] = tuple((int(left), int(right)) for left, right in merges)
        self._bytes = [bytes([byte]) for byte in range(256)] + [b""]
        for pair in self.merges:
            if not all(0 <= token < len(self._bytes) and token != END_OF_TEXT for token in pair):
                raise ArgumentError("merges", pair, f"tokens below {len(self._bytes)}, not 256", "Learn them again.")
            self._bytes.append(self._bytes[pair[0]] + self._bytes[pair[1]])
        self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        self._encode_word = lru_cache(maxsize=2**16)(self._merge_word)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        return [token for word in _WORD.findall(text) for token in self._encode_word(word)]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; bytes that are no UTF-8, as of a character cut in two, become U+FFFD."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        """The bytes of tokens, for a stream that joins them before it decodes; ArgumentError for unknown ids."""
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
    """The tokenizer of so many ids for these texts: the most frequent pair is merged, again and again."""
    if vocab_size < _FIRST_MERGE:
        raise ArgumentError("vocab_size", vocab_size, f"at least {_FIRST_MERGE}", "Bytes and the end of text are ids.")
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
        best = max(totals, key=lambda pair: (totals[pair], pair))  # ties by id: the same text gives the same merges
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
    """Tokens with every occurrence of a pair, from the left, replaced."""
    found, index = [], 0
    while index < len(tokens):
        if index + 1 < len(tokens) and (tokens[index], tokens[index + 1]) == pair:
            found.append(token)
            index += 2
        else:
            found.append(tokens[index])
            index += 1
    return found
