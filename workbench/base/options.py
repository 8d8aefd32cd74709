"""Options and output that commands share, those of installed packages too (entry points ``workbench.commands``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from workbench.base.terminal import say

json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
device_option = click.option("--device", default="auto", show_default=True, help="auto, sim or cuda.")


def names(name: str, help: str, *, metavar: str | None = "NAME") -> Callable[[Any], Any]:
    """Return an option that may be repeated; a command gets a list, None where it is not given."""

    def listed(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> list[str] | None:
        return list(given) or None

    return click.option(f"--{name}", f"{name}s", multiple=True, metavar=metavar, callback=listed, help=help)


def without(what: str, help: str) -> Callable[[Any], Any]:
    """Return an option ``--skip-WHAT``: what is there unless it is given."""
    return click.option(f"--skip-{what}", what, is_flag=True, callback=lambda ctx, option, given: not given, help=help)


def tell(result: Any, as_json: bool) -> None:
    """Print a result as text, or with ``as_json`` as a JSON document."""
    say(result.to_json() if as_json else str(result))


def tell_on_the_way(line: object) -> None:
    """Print a line about a result that is still to come, to stderr."""
    say(line, err=True)
