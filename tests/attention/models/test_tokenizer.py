"""Byte-pair encoding: nothing is lost, and the merges are those that the text asks for."""

import pytest

pytest.importorskip("hypothesis", reason='no Hypothesis: python -m pip install -e ".[test]"')

import hypothesis.strategies as st
from hypothesis import given

from workbench.attention.models.tokenizer import END_OF_TEXT, Tokenizer, learn
from workbench.errors import ArgumentError

TEXT = "the cat sat on the mat, then the hat sat on the cat. " * 3 + "naïve — ünïcode\n\n  indented\t\n"


@pytest.fixture(scope="module")
def tokenizer():
    return learn([TEXT], 290)


@given(st.text())
def test_every_text_comes_back(tokenizer, text):
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert END_OF_TEXT not in tokens


def test_merges_shorten_what_they_were_learned_from(tokenizer):
    assert tokenizer.vocab_size == 290
    assert len(tokenizer.encode(TEXT)) < 0.6 * len(TEXT.encode())
    # "at" stands in cat, sat, mat, hat; "th", "he" in the words with "the": the most frequent pair comes first.
    assert tokenizer.decode_bytes([257]) in (b"at", b"th", b"he")
    assert b" the" in [tokenizer.decode_bytes([token]) for token in range(257, 290)]


def test_learning_counts_pairs_as_a_plain_count_does():
    """The incremental counts choose what counting everything again before each merge would choose."""
    found = learn(["abababab abab ab b bb bbb aab baa"], 262).merges
    words = [list(word.encode()) for word in ("abababab", " abab", " ab", " b", " bb", " bbb", " aab", " baa")]
    for number, pair in enumerate(found):
        counts = {}
        for word in words:
            for i in range(len(word) - 1):
                counts[word[i], word[i + 1]] = counts.get((word[i], word[i + 1]), 0) + 1
        assert pair == max(counts, key=lambda each: (counts[each], each))
        for word in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == pair:
                    word[i : i + 2] = [257 + number]
                i += 1


def test_a_character_cut_in_two_is_replaced(tokenizer):
    assert tokenizer.decode([0xC3]) == "\ufffd"


def test_bad_input(tokenizer):
    with pytest.raises(ArgumentError, match="0 to 289"):
        tokenizer.decode([290])
    with pytest.raises(ArgumentError, match="merges"):
        Tokenizer([(97, 300)])
    with pytest.raises(ArgumentError, match="at least 257"):
        learn(["text"], 200)
