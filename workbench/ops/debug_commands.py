"""The command ``workbench debug``."""

from __future__ import annotations

import click

from workbench.base.config_text import ConfigText
from workbench.base.options import config_option, op_argument
from workbench.base.terminal import say


@click.command()
@op_argument()
@click.option("--case", metavar="NAME", help="A case of the op (default: its small one).")
@click.option("--variant", default=None, help="The variant to stop in; not needed where there is only one.")
@config_option("Its configuration (default: the untuned rule).")
@click.option("--arch", metavar="ARCH", help="Architecture to compile for (default: the first that the variant takes).")
@click.option("--stop", "stops", multiple=True, metavar="TEXT", help="Stop there: '12 if lane == 3' (repeatable).")
@click.option("--checks", is_flag=True, help="Look for races and the like: --stop finding stops at them.")
@click.option("--launch", default=0, metavar="N", help="Of a variant of several kernels the one to stop in, from 0.")
@click.option("-x", "lines", multiple=True, metavar="COMMAND", help="Run this command and exit (repeatable).")
def debug(
    op: str, case: str | None, variant: str | None, configs: list[ConfigText], arch: str | None,
    stops: tuple[str, ...], checks: bool, launch: int, lines: tuple[str, ...],
) -> None:  # fmt: skip
    """Stop inside a kernel of OP, without a GPU, and go forward and back; commands are read line by line.

    The command help lists the commands: step, back, go, last y[3, 5], print sum, warps and others (docs/DEBUG.md).
    """
    from workbench.launch.debug.terminal import SessionTerminal, typed_lines
    from workbench.ops.debugging import debug as open_debug
    from workbench.ops.files import load_op
    from workbench.ops.selection import config_of

    found = load_op(op)
    name, config = config_of(found, configs, variant, found.case(case))
    with open_debug(
        found, case, variant=name, config=config, arch=arch, stop=stops, checks=checks, launch=launch
    ) as session:
        say(session.where)
        for shown in SessionTerminal(session).run(lines or typed_lines()):
            say(shown)
