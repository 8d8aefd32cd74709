"""The benchmark of generation: every cache in the table, and none that changes the text."""

import json

import pytest

from workbench.attention.bench.generate import run
from workbench.attention.models import ContiguousCache
from workbench.errors import ArgumentError, WrongResultError


@pytest.fixture(scope="module")
def result():
    return run(new_tokens=36, prompt_tokens=(40, 9))


def test_every_cache_is_in_the_table(result):
    names = [row.cache for row in result.rows]
    assert names[:3] == ["none", "contiguous", "paged"]
    for row in result.rows:
        assert len(row.step_seconds) == len(row.reserved_bytes) == 35
        assert row.cache in str(result)
    assert {row["cache"] for row in json.loads(result.to_json())["rows"]} == set(names)


def test_bytes_are_those_of_rows_and_blocks(result):
    token = 4 * 2 * 2 * 32 * 4  # layers, keys and values, KV heads, elements, bytes
    assert result.row("none").memory.reserved_bytes == 0
    assert result.row("contiguous").memory.reserved_bytes == 2 * result.context_length * token
    paged = result.row("paged")
    assert paged.memory.reserved_bytes == (5 + 3) * 16 * token  # of 75 and 44 tokens
    assert paged.memory.used_bytes == (75 + 44) * token == result.row("contiguous").memory.used_bytes
    assert list(paged.reserved_bytes) == sorted(paged.reserved_bytes)


def test_a_cache_that_changes_the_text_gets_no_time(monkeypatch):
    extend = ContiguousCache.extend

    def forget(self, batch):
        self.kv.layers[0].zero_()
        return extend(self, batch)

    monkeypatch.setattr(ContiguousCache, "extend", forget)
    with pytest.raises(WrongResultError, match="'contiguous' changed the text"):
        run(new_tokens=24, prompt_tokens=(30,), caches=("none", "contiguous"))


def test_bad_arguments():
    with pytest.raises(ArgumentError, match="512 in all"):
        run(new_tokens=500, prompt_tokens=(40,))
    with pytest.raises(ArgumentError, match="paged"):
        run(caches=("fast",))
