"""The command ``workbench debug``: a session inside a kernel, for a terminal or an editor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from workbench.base.config_text import ConfigText
from workbench.base.options import config_option, op_argument
from workbench.base.terminal import say
from workbench.errors import ArgumentError

if TYPE_CHECKING:
    from workbench.launch.debug import DebugSession
    from workbench.ui.dap.adapter import Opener


@click.command()
@op_argument(required=False)
@click.option("--case", metavar="NAME", help="A case of the op (default: its small one).")
@click.option("--variant", default=None, help="The variant to stop in; not needed where there is only one.")
@config_option("Its configuration (default: the untuned rule).")
@click.option("--arch", metavar="ARCH", help="Architecture to compile for (default: the first that the variant takes).")
@click.option("--stop", "stops", multiple=True, metavar="TEXT", help="Stop there: '12 if lane == 3' (repeatable).")
@click.option("--checks", is_flag=True, help="Look for races and the like: --stop finding stops at them.")
@click.option("--launch", default=0, metavar="N", help="Of a variant of several kernels the one to stop in, from 0.")
@click.option("-x", "lines", multiple=True, metavar="COMMAND", help="Run this command and exit (repeatable).")
@click.option("--dap", is_flag=True, help="Serve an editor on stdin and stdout, by the Debug Adapter Protocol.")
@click.option("--port", type=click.IntRange(0, 65535), help="Serve editors on this port of localhost; 0: a free one.")
def debug(
    op: str | None, lines: tuple[str, ...], dap: bool, port: int | None, configs: list[ConfigText], **options: Any
) -> None:
    """Stop inside a kernel of OP, without a GPU, and go forward and back; commands are read line by line.

    The command help lists the commands: step, back, go, last y[3, 5], print sum, warps and others (docs/DEBUG.md). With
    --dap or --port an editor gives them, and its launch request may name another OP and other options.
    """
    options["stop"] = options.pop("stops")
    if dap or port is not None:
        _serve(op, port, configs, options, lines)
        return
    if op is None:
        raise ArgumentError("op", "no name", "OP, or --dap or --port for an editor", "Name the op: my_ops.py:my_op.")
    from workbench.launch.debug.terminal import SessionTerminal, typed_lines

    with _opened(op, configs, options) as session:
        say(session.where)
        for shown in SessionTerminal(session).run(lines or typed_lines()):
            say(shown)


def _opened(op: str, configs: Sequence[ConfigText], options: Mapping[str, Any]) -> DebugSession:
    from workbench.ops.debugging import debug as open_session
    from workbench.ops.files import load_op
    from workbench.ops.selection import config_of

    found = load_op(op)
    options = dict(options)
    case, variant = options.pop("case"), options.pop("variant")
    name, config = config_of(found, configs, variant, found.case(case))
    return open_session(found, case, variant=name, config=config, **options)


def _serve(
    op: str | None, port: int | None, configs: list[ConfigText], options: dict[str, Any], lines: tuple[str, ...]
) -> None:
    if lines:
        raise ArgumentError("-x", lines[0], "no commands with --dap or --port", "The editor gives the commands.")
    from workbench.ui.dap.serving import serve_on_port, serve_on_stdio

    if port is None:
        serve_on_stdio(opened_by(op, configs, options))
    else:
        serve_on_port(opened_by(op, configs, options), port)


def opened_by(
    op: str | None = None, configs: Sequence[ConfigText] = (), options: Mapping[str, Any] | None = None
) -> Opener:
    """Return a function that opens the session of a launch request; what that leaves out is as given here."""
    from workbench.ui.dap.serving import requested

    def opened(arguments: Mapping[str, Any]) -> DebugSession:
        program, given = requested(arguments, op)
        return _opened(
            program, given.pop("configs", configs), {"case": None, "variant": None, **(options or {}), **given}
        )

    return opened
