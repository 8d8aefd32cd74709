"""The command ``workbench diff``; options and exit status of the commands that compare with a saved result."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from workbench.base.options import Pages, json_option, pages_options, tell
from workbench.base.saved_documents import parse_document, read_document
from workbench.errors import ArgumentError

if TYPE_CHECKING:
    from workbench.analysis.difference.conditions import Condition
    from workbench.analysis.difference.difference import Difference
    from workbench.base.tables import Tabular

STATUS = 3
"""The exit status if a condition fails."""

fail_if_option = click.option(
    "--fail-if",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 3 where this holds, or can no longer be checked (repeatable): 'warp_instructions > 1.02' for the "
    "ratio to the saved figure, 'absolute spill_bytes > 0' for the figure itself.",
)


class WithStatuses(click.Command):
    """Command whose help ends with its exit statuses."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit statuses below the options."""
        rows = [("1", "a variant is wrong or does not run")] if self.name == "compare" else []
        rows += [("2", "a wrong argument, or a file that is not a saved result")]
        rows += [(str(STATUS), "a condition of --fail-if holds, or can no longer be checked")]
        with formatter.section("Exit status"):
            formatter.write_dl(rows)


@dataclass(frozen=True)
class Baseline:
    """Parsed options ``--save``, ``--against`` and ``--fail-if``."""

    save: str | None
    against: Mapping[str, Any] | None
    conditions: Sequence[Condition]

    @property
    def used(self) -> bool:
        """True if a result is saved or compared with a saved one."""
        return self.save is not None or self.against is not None

    def finish(self, result: Any, as_json: bool, pages: Pages, ok: bool = True) -> NoReturn:
        """Save a result, print it or its difference to the saved one, write pages, and exit.

        A result that is not ``ok`` is printed beside its difference, and the exit status is 1.
        """
        from workbench.analysis.difference.difference import KINDS, difference_of

        if self.save is not None:
            result.save(self.save)
        if self.against is None:
            tell(result, as_json)
            pages.write(result)
            sys.exit(0 if ok else 1)
        now = parse_document(result.to_json(), "the result", KINDS)
        found = difference_of(self.against, now, self.conditions)
        if not ok and not as_json:
            tell(result, as_json=False)
        finish(found, as_json, pages, ok, beside=[result])


def finish(found: Difference, as_json: bool, pages: Pages, ok: bool = True, beside: Sequence[Tabular] = ()) -> NoReturn:
    """Print a difference, write its pages, the HTML one with the results ``beside``, and exit."""
    tell(found, as_json)
    pages.write(found, beside=beside)
    sys.exit(1 if not ok else 0 if found.ok else STATUS)


def baseline_options(kind: str) -> Callable[[Any], Any]:
    """Return the options ``--save``, ``--against`` and ``--fail-if``; the command gets a `Baseline`.

    The saved file, one of this ``kind``, and the conditions are read before the command runs.
    """
    path = click.Path(dir_okay=False)

    def decorate(command: Any) -> Any:
        @functools.wraps(command)
        def call(save: str | None, against: str | None, fail_if: Sequence[str], **options: Any) -> Any:
            return command(baseline=_baseline(kind, save, against, fail_if), **options)

        for option in (
            fail_if_option,
            click.option("--against", type=path, metavar="FILE", help="Show what changed since this was saved."),
            click.option("--save", type=path, metavar="FILE", help="Save the result as JSON, for --against."),
        ):
            call = option(call)
        return call

    return decorate


def _baseline(kind: str, save: str | None, against: str | None, fail_if: Sequence[str]) -> Baseline:
    from workbench.analysis.difference.conditions import Condition, check_figures

    conditions = [Condition.parse(text) for text in fail_if]
    check_figures(conditions, kind)
    if conditions and against is None:
        raise ArgumentError("--fail-if", conditions[0].text, "a condition with --against", "Name the saved result.")
    if save is not None and against is not None and Path(save).resolve() == Path(against).resolve():
        remedy = "Save to another file; without --against it replaces the saved result."
        raise ArgumentError("--save", save, "a file other than that of --against", remedy)
    return Baseline(save, None if against is None else read_document(against, [kind]), conditions)


@click.command(cls=WithStatuses)
@click.argument("before", type=click.Path(dir_okay=False))
@click.argument("now", type=click.Path(dir_okay=False))
@fail_if_option
@pages_options
@json_option
def diff(before: str, now: str, fail_if: tuple[str, ...], as_json: bool, pages: Pages) -> None:
    """Show what changed between two saved results of compare, or two of trace, by figure and by source line."""
    from workbench.analysis.difference import diff as run

    finish(run(before, now, fail_if=fail_if), as_json, pages)
