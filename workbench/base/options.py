"""Options and output that commands share, also those of installed packages (entry points ``workbench.commands``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from workbench.base.architectures import DEVICE_NAMES
from workbench.base.config_text import ConfigText
from workbench.base.files import append_file
from workbench.base.lazy import offered
from workbench.base.op_names import check_op
from workbench.base.terminal import say
from workbench.errors import UnknownNameError

if TYPE_CHECKING:
    from workbench.base.tables import Tabular

json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable.")


def checked(check: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Return a callback that refuses a value before the command imports anything; ``check`` raises the error."""

    def look(ctx: click.Context, option: click.Parameter, given: str | None) -> str | None:
        if given is not None and not ctx.resilient_parsing:
            check(given)
        return given

    return look


def check_device(name: str) -> None:
    """Raise UnknownNameError for a name that no device has."""
    if name not in DEVICE_NAMES:
        raise UnknownNameError("device", repr(name), ", ".join(DEVICE_NAMES), "Choose one of these.")


device_option = click.option(
    "--device", default="auto", show_default=True, callback=checked(check_device), help="auto, sim or cuda."
)


def names(name: str, help: str, *, metavar: str | None = "NAME") -> Callable[[Any], Any]:
    """Return an option that may be repeated; the command gets a list, or None without the option."""

    def listed(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> list[str] | None:
        return list(given) or None

    return click.option(f"--{name}", f"{name}s", multiple=True, metavar=metavar, callback=listed, help=help)


def complete_op(ctx: click.Context, argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete an OP in a shell: names of installed ops, without loading them, and files."""
    names = [name for name in offered("workbench.ops") if name.startswith(incomplete)]
    return [*(CompletionItem(name) for name in sorted(names)), CompletionItem(incomplete, type="file")]


def op_argument(**options: Any) -> Callable[[Any], Any]:
    """Return the argument OP, an installed op or FILE.py:NAME; others are refused before the command imports torch."""
    return click.argument("op", shell_complete=complete_op, callback=checked(check_op), **options)


def without(what: str, help: str) -> Callable[[Any], Any]:
    """Return an option ``--skip-WHAT``; the command gets True unless it is given."""
    return click.option(f"--skip-{what}", what, is_flag=True, callback=lambda ctx, option, given: not given, help=help)


@dataclass(frozen=True)
class Pages:
    """Parsed options ``--markdown`` and ``--html``."""

    markdown: str | None = None
    html: str | None = None

    def write(self, *results: Tabular, beside: Sequence[Tabular] = ()) -> None:
        """Append the results to the Markdown file, and write one page of them and those ``beside``."""
        if self.markdown is not None:
            text = "\n".join(f"### {one.headline}\n\n{one.markdown()}" for one in results)
            append_file(self.markdown, text + "\n")
        if self.html is not None:
            results[0].save_html(self.html, *results[1:], *beside)


def pages_options(command: Any) -> Any:
    """Add the options ``--markdown`` and ``--html``; the command gets `Pages`."""

    @functools.wraps(command)
    def call(markdown: str | None, html: str | None, **options: Any) -> Any:
        return command(pages=Pages(markdown, html), **options)

    path = click.Path(dir_okay=False)
    page = "Write the result as one HTML file that needs no network."
    summary = "Append the tables in Markdown to this file, such as $GITHUB_STEP_SUMMARY."
    with_page = click.option("--html", type=path, metavar="FILE", help=page)(call)
    return click.option("--markdown", type=path, metavar="FILE", help=summary)(with_page)


def config_option(help: str) -> Callable[[Any], Any]:
    """Return the option ``--config``, which may be repeated; the command gets a list of `ConfigText`."""

    def parsed(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> list[ConfigText]:
        return [ConfigText.parse(text) for text in given]

    metavar = "[VARIANT:]NAME=VALUE..."
    return click.option("--config", "configs", multiple=True, metavar=metavar, callback=parsed, help=help)


def tell(result: Any, as_json: bool) -> None:
    """Print a result as text, or with ``as_json`` as a JSON document."""
    say(result.to_json() if as_json else str(result))


def tell_on_the_way(line: object) -> None:
    """Print a line to stderr about a result that is still to come."""
    say(line, err=True)
