"""Files written in one step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.files import replace_file


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path, durable):
    path = tmp_path / "table.json"
    replace_file(path, "old\n", durable=durable)
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode
    replace_file(path, b"n\xc3\xa9w", durable=durable)
    assert path.read_text() == "néw"
    assert sorted(os.listdir(tmp_path)) == ["plain", "table.json"]


def test_what_fails_half_way_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, "new", durable=True)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.json"]
