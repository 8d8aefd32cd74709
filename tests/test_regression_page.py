"""docs/REGRESSION.md: its commands print what the page shows."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fenced import fenced

from workbench.analysis.difference.figures import figures_of
from workbench.cli import main

PAGE = Path(__file__).resolve().parent.parent / "docs" / "REGRESSION.md"


def test_the_page_shows_what_its_commands_print(tmp_path: Path, fresh_home, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    blocks = fenced(PAGE.read_text().split("\n## In a GitHub")[0], "python", "sh", "diff", "text")
    assert [kind for kind, _ in blocks] == [
        "python", *("sh", "diff", "sh", "text"), *("sh", "text"), *("sh", "diff", "sh", "text"),
    ]  # fmt: skip
    statuses, printed, source = [], "", tmp_path / "my_ops.py"
    for kind, text in blocks:
        if kind == "python":
            source.write_text(text)
        elif kind == "diff":
            gone, new = (re.search(rf"^\{sign}(.*)$", text, re.M)[1] for sign in "-+")
            assert gone in source.read_text()
            source.write_text(source.read_text().replace(gone, new))
        elif kind == "sh":
            for line in text.splitlines():
                monkeypatch.delitem(sys.modules, "my_ops", raising=False)
                done = CliRunner().invoke(main, shlex.split(line)[1:])
                statuses, printed = [*statuses, done.exit_code], done.output
        else:
            assert printed.rstrip() == text.rstrip()
    assert statuses == [0, 0, 3, 0, 0, 3]


@pytest.mark.parametrize("command", ["compare", "trace"])
def test_the_page_names_the_figures_of_conditions(command: str):
    (row,) = re.findall(rf"^\| `{command}` \| (.*) \|$", PAGE.read_text(), re.M)
    assert re.findall(r"`(\w+)`", row) == [*figures_of(command)]
