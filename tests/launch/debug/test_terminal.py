"""A session by commands, as ``workbench debug`` runs them."""

from __future__ import annotations

import sessions
from click.testing import CliRunner

from workbench.cli import main
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
