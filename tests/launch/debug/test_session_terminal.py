"""A session by commands, as ``workbench debug`` runs them."""

from __future__ import annotations

import shlex

import sessions
import torch
from click.testing import CliRunner

from workbench.cli import main
from workbench.judge.debugging import debug_command
from workbench.launch.debug.on_finding import FindingDebugger
from workbench.launch.debug.terminal import SessionTerminal

SUM = sessions.line_of("sum += expf")


def test_commands_move_and_show():
    with sessions.softmax() as session:
        shown = SessionTerminal(session).run([
            f"stop {SUM} if lane == 3", "stops", "go", "print sum", "print lane * 2", "list", "warps", "ni 2", "pi",
            "remove 0", "end", "print y[0, 0]", "last y[0, 0]", "operands", "nonsense", "step zero", "quit", "end",
        ])  # fmt: skip
        said = [*shown]
        assert len(said) == 16
        assert said[1] == f"0: {SUM} if lane == 3"
        assert said[2].startswith(f"softmax.cu:{SUM}: sum += expf")
        assert said[3].startswith("sum (%f")
        assert said[4].startswith("[ 0.  2.  4.")
        assert f"->{SUM:5}" in said[5]
        assert float(said[11].removeprefix("tensor(").rstrip(")")) > 0
        assert "the last write of y[0, 0]" in said[12]
        assert said[14].startswith("UnknownNameError: command: got 'nonsense'")
        assert said[15].startswith("ValueError")


def test_an_op_is_debugged_from_a_terminal():
    command = ["debug", f"{sessions.__file__}:softmax_op", "--case", "wide", "--stop", "write y[2, 99]"]
    done = CliRunner().invoke(main, [*command, "-x", "print total", "-x", "back"])
    assert done.exit_code == 0, done.output
    assert "y[blockIdx.x * cols + c]" in done.output
    assert "total (%f" in done.output
    done = CliRunner().invoke(main, [*command, "--stop", "nowhere"])
    assert done.exit_code == 2


def test_a_launch_with_checks_stops_at_its_first_finding(capsys):
    y, x = torch.zeros(64), torch.randn(256)
    kernel, at = sessions.module("faults.cu").stale_tile, FindingDebugger(lambda: ["warps", "back", "quit"])
    reports = [kernel(1, 64, y, x, 4, checks=True, debugger=at) for _ in range(2)]
    assert [one.kind for one in reports[0].findings] == [one.kind for one in reports[1].findings]
    said = capsys.readouterr().out
    assert said.count("the other side is") == 1
    assert "FAULT 2 (runs)\nwarp 1" in said
    assert "(a step back)" in said
    assert "sum += tile" in said.rsplit("warp 1, lanes", 1)[1]


def test_a_verdict_names_the_command_that_stops_there():
    words = shlex.split(debug_command("softmax_op", sessions.__file__, "softmax", "wide", {}, "wrong_result", False))
    done = CliRunner().invoke(main, [*words[1:], "-x", "end", "-x", "last y[1, 2]"])
    assert done.exit_code == 0, done.output
    assert "the last write of y[1, 2]" in done.output
    found = debug_command("paged_attention", "", "v", "c", {"A": 1, "B": 2}, "race", True)
    assert found == "workbench debug paged_attention --case c --variant v --config 'A=1 B=2' --checks --stop finding"
    assert debug_command("paged_attention", "", "v", "c", {}, "not_compiled", False) == ""
    assert debug_command("of_a_notebook", "", "v", "c", {}, "race", True) == ""
