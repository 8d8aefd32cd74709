"""Options and output that commands share, also those of installed packages (entry points ``workbench.commands``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from workbench.base.terminal import say

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


@dataclass(frozen=True)
class Pages:
    """Parsed options ``--markdown`` and ``--html``."""

    markdown: str | None = None

    def write(self, result: Any, *beside: Any) -> None:
        """Append the result to the Markdown file."""
        if self.markdown is not None:
            with Path(self.markdown).open("a", encoding="utf-8") as file:
                file.write(result.markdown() + "\n")


def pages_options(command: Any) -> Any:
    """Add the options ``--markdown`` and ``--html``; the command gets `Pages`."""

    @functools.wraps(command)
    def call(markdown: str | None, **options: Any) -> Any:
        return command(pages=Pages(markdown), **options)

    help = "Append the tables in Markdown to this file, such as $GITHUB_STEP_SUMMARY."
    return click.option("--markdown", type=click.Path(dir_okay=False), metavar="FILE", help=help)(call)


def tell(result: Any, as_json: bool) -> None:
    """Print a result as text, or with ``as_json`` as a JSON document."""
    say(result.to_json() if as_json else str(result))


def tell_on_the_way(line: object) -> None:
    """Print a line to stderr about a result that is still to come."""
    say(line, err=True)
