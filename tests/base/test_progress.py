"""Progress bars: in a terminal alone, with what is worked on, and silent on demand."""

from __future__ import annotations

import io
import sys

import pytest
from click.testing import CliRunner
from every_command import every_command

from workbench import cli
from workbench.base import command_group, progress


class Screen(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, terminal: bool):
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(autouse=True)
def heard():
    yield
    progress.be_quiet(False)


@pytest.mark.parametrize(
    ("terminal", "quiet", "shown"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_a_bar_counts_in_a_terminal_unless_it_is_to_be_quiet(monkeypatch, terminal, quiet, shown):
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    progress.be_quiet(quiet)
    items = progress.tracked(iter("abc"), " parts", 3, name=lambda item: f"part \x1b{item}")
    assert list(items) == list("abc")
    said = screen.getvalue()
    assert bool(said) == shown
    if shown:
        assert "3/3" not in said.rstrip()[-20:], "nothing stays behind"
        assert "/3" in said
        assert "part \\x1bb" in said, "names cannot write to the terminal"


def test_every_command_has_the_option_and_heeds_it(monkeypatch):
    seen = []
    monkeypatch.setattr(command_group, "be_quiet", lambda: seen.append(True))
    counts = {name: [option.name for option in one.params].count("quiet") for name, one in every_command(cli.main)}
    assert {"setup gpu", "bench predict", "check"} <= counts.keys()
    assert [name for name, count in counts.items() if count != 1] == []
    for words, status in ((["schema", "-q", "doctor"], 0), (["bench", "no.py:op", "-q"], 2)):
        assert CliRunner().invoke(cli.main, words).exit_code == status
    assert seen == [True, True]
