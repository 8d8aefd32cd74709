"""Group of commands that are imported when they are used, with one treatment of errors and of ``-q``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click

from workbench.base.files import raise_if_full
from workbench.base.lazy import offered
from workbench.base.progress import be_quiet
from workbench.base.terminal import say
from workbench.errors import FileError, StoreError, WorkbenchError, did_you_mean


class CommandGroup(click.Group):
    """Group that prints a WorkbenchError as one message and exits with 2; a traceback is left for faults of our own.

    Args:
        places: the module and the name of each command, such as ``"workbench.judge.commands:check"``.
        entry_points: name of the entry points by which installed packages add commands.
    """

    def __init__(
        self, *args: Any, places: Mapping[str, str] | None = None, entry_points: str = "", **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._places = dict(places or {})
        self._entry_points = entry_points

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *self._places, *self._offered()})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return the command of that name, imported if need be, with the option ``-q``."""
        found = super().get_command(ctx, name) or self._imported(name) or self.other_command(name)
        if found is not None and not any(option.name == "quiet" for option in found.params):
            found.params.append(_quiet_option())
        return found

    def other_command(self, name: str) -> click.Command | None:
        """Return the command of a name that is not listed; here there is none."""
        return None

    def names_of_commands(self) -> Iterable[str]:
        """Return the names that a misspelt one is compared with."""
        return self.list_commands(click.get_current_context())

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the arguments; the error for a misspelt one has the name that was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = did_you_mean(args[0], self.names_of_commands())
            if not near or near in error.message:
                raise
            raise click.UsageError(f"{error.message.rstrip('.')}. {near}", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that the context names."""
        try:
            return super().invoke(ctx)
        except (WorkbenchError, OSError) as error:
            if not isinstance(error, StoreError):  # its message names a full disk already
                try:
                    raise_if_full(error)
                except FileError as full:
                    error = full
            if not isinstance(error, WorkbenchError):
                raise
            say(f"workbench: {error}", err=True)
            sys.exit(2)

    def _imported(self, name: str) -> click.Command | None:
        if place := self._places.get(name):
            module, _, attribute = place.partition(":")
            return getattr(importlib.import_module(module), attribute)
        point = self._offered().get(name)
        return None if point is None else point.load()

    def _offered(self) -> Mapping[str, Any]:
        return offered(self._entry_points) if self._entry_points else {}


def _quiet_option() -> click.Option:
    """Return the option of every command that turns progress bars off."""

    def heed(ctx: click.Context, option: click.Parameter, given: bool) -> None:
        if given:
            be_quiet()

    return click.Option(
        ["-q", "--quiet"], is_flag=True, is_eager=True, expose_value=False, callback=heed, help="Show no progress bars."
    )
