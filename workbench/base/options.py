"""Options and output that commands share, also those of installed packages (entry points ``workbench.commands``)."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import click

from workbench.base.terminal import say
from workbench.errors import ArgumentError

json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
device_option = click.option("--device", default="auto", show_default=True, help="auto, sim or cuda.")


def names(name: str, help: str, *, metavar: str | None = "NAME") -> Callable[[Any], Any]:
    """Return an option that may be repeated; the command gets a list, or None without the option."""

    def listed(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> list[str] | None:
        return list(given) or None

    return click.option(f"--{name}", f"{name}s", multiple=True, metavar=metavar, callback=listed, help=help)


def without(what: str, help: str) -> Callable[[Any], Any]:
    """Return an option ``--skip-WHAT``; the command gets True unless it is given."""
    return click.option(f"--skip-{what}", what, is_flag=True, callback=lambda ctx, option, given: not given, help=help)


def configurations(help: str) -> Callable[[Any], Any]:
    """Return an option ``--config "NAME=VALUE ..."`` that may be repeated; the command gets a list of dictionaries."""

    def parsed(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> list[dict[str, Any]]:
        return [_configuration(text) for text in given]

    return click.option("--config", "configs", multiple=True, metavar="'NAME=VALUE ...'", callback=parsed, help=help)


def _configuration(text: str) -> dict[str, Any]:
    found = {}
    for word in text.replace(",", " ").split():
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ArgumentError(
                "config", repr(word), "NAME=VALUE", "Name each tunable with its value: 'BLOCK=128 VEC=4'."
            )
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def tell(result: Any, as_json: bool) -> None:
    """Print a result as text, or with ``as_json`` as a JSON document."""
    say(result.to_json() if as_json else str(result))


def tell_on_the_way(line: object) -> None:
    """Print a line to stderr about a result that is still to come."""
    say(line, err=True)
