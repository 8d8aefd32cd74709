"""The benchmark of the block manager: its form and its arithmetic at small sizes, not its speed."""

from __future__ import annotations

import functools
import itertools
import json

import pytest
from click.testing import CliRunner

from workbench import cli
from workbench.attention.bench import kvcache
from workbench.errors import ArgumentError


def test_every_operation_is_timed_at_every_size():
    result = kvcache.run((1000, 300), filled=0.4, rounds=3)
    assert [row.operation for row in result.rows] == list(kvcache.OPERATIONS)
    for row in result.rows:
        assert sorted(row.nanoseconds) == [300, 1000]
        assert all(nanoseconds > 0 for nanoseconds in row.nanoseconds.values())
        assert row.ratio == row.nanoseconds[1000] / row.nanoseconds[300]
    text = str(result)
    assert "1,000 blocks" in text
    assert all(name in text for name in kvcache.OPERATIONS)
    recorded = json.loads(result.to_json())
    assert recorded["rows"][0]["ratio"] == result.row("allocate").ratio
    assert recorded["rounds"] == 3


def test_the_manager_is_filled_and_every_round_leaves_it_as_it_was():
    manager = kvcache._filled_manager(1000, 0.5)
    assert manager.num_free_blocks == 500
    before = {seq: manager.block_table(seq) for seq in manager.sequences}
    blocks = list(itertools.chain(*before.values()))
    assert max(blocks) > 900, "free blocks lie at one end"
    names = [name for name, _ in kvcache._life(manager)]
    assert names == list(kvcache.OPERATIONS)
    assert {seq: manager.block_table(seq) for seq in manager.sequences} == before
    assert manager.num_free_blocks == 500


def test_each_operation_does_what_its_name_says(monkeypatch):
    """The append that copies copies, and the others do not."""
    manager, copies = kvcache._filled_manager(1000, 0.5), []
    append = manager.append
    monkeypatch.setattr(manager, "append", lambda *args: copies.append(len(append(*args).copies)))
    kvcache._life(manager)
    assert copies == [0] * 16 + [1] * 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": (1000,)}, "sizes"),
        ({"sizes": (10, 1000)}, "256 blocks"),
        ({"sizes": (300, 1000), "filled": 0.99}, "Leave room"),
        ({"sizes": (300, 1000), "rounds": 0, "filled": 0.1}, "rounds"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        kvcache.run(**arguments)


def test_command_line(monkeypatch):
    monkeypatch.setattr(kvcache, "run", functools.partial(kvcache.run, (300, 1000), filled=0.4))
    result = CliRunner().invoke(cli.main, ["bench", "kvcache", "--rounds", "2", "--json"])
    assert result.exit_code == 0, result.output
    assert {row["operation"] for row in json.loads(result.output)["rows"]} == set(kvcache.OPERATIONS)
    assert "largest/smallest" in CliRunner().invoke(cli.main, ["bench", "kvcache", "--rounds", "2"]).output
