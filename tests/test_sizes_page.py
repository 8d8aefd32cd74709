"""The page on sizes and cases: its op and its commands as they stand there print what stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "SIZES.md").read_text()


def block(language: str) -> str:
    """The first block of a language."""
    return re.search(rf"^```{re.escape(language)}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]


def blocks() -> list[tuple[list[str], str]]:
    """The arguments of each printed command, and what the page says it prints."""
    found = re.findall(r"^```console\n\$ workbench (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [(command.split(), printed) for command, printed in found]


@pytest.mark.long
def test_the_page_prints_what_it_says(tmp_path: Path, fresh_home: Path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_ops", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_ops.py").write_text(block("python"))
    (tmp_path / "softmax.cu").write_text(block("c++"))
    assert len(blocks()) == 4
    for words, printed in blocks():
        done = CliRunner().invoke(main, words)
        told = "\n".join(line for line in done.output.splitlines() if not line.startswith("written to "))
        pattern = r"(?:.*\n)*?".join(re.escape(part) for part in printed.split("...\n"))
        assert re.fullmatch(pattern.rstrip("\\\n") + r"\s*", told + "\n"), told
    assert (tmp_path / "sizes.png").is_file()
