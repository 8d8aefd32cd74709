"""Progress bars: in a terminal alone, with what is worked on, and silent on demand."""

from __future__ import annotations

import io
import sys

import click
import pytest
from click.testing import CliRunner

from workbench import cli
from workbench.base import progress


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
    monkeypatch.setattr(cli, "be_quiet", lambda: seen.append(True))
    groups = [cli.main]
    for group in groups:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert [option.name for option in command.params].count("quiet") == 1, name
            groups += [command] if isinstance(command, click.Group) else []
    assert len(groups) >= 3
    assert CliRunner().invoke(cli.main, ["schema", "-q", "doctor"]).exit_code == 0
    assert seen == [True]
