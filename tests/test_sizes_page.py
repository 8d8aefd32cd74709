"""The page on sizes and cases: its op and its commands as they stand there print what stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fenced import block, fenced

from workbench.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "SIZES.md").read_text()


def printed_commands() -> list[tuple[list[str], str]]:
    """Return the arguments of each printed command, and what the page says it prints."""
    found = (text.partition("\n") for _, text in fenced(PAGE, "console") if text.startswith("$ workbench "))
    return [(command.removeprefix("$ workbench ").split(), printed) for command, _, printed in found]


@pytest.mark.long
def test_the_page_prints_what_it_says(tmp_path: Path, fresh_home: Path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_ops", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_ops.py").write_text(block(PAGE, "python"))
    (tmp_path / "softmax.cu").write_text(block(PAGE, "c++"))
    assert len(printed_commands()) == 4
    for words, printed in printed_commands():
        done = CliRunner().invoke(main, words)
        told = "\n".join(line for line in done.output.splitlines() if not line.startswith("written to "))
        pattern = r"(?:.*\n)*?".join(re.escape(part) for part in printed.split("...\n"))
        assert re.fullmatch(pattern.rstrip("\\\n") + r"\s*", told + "\n"), told
    assert (tmp_path / "sizes.png").is_file()
