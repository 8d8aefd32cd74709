"""All commands of the command line, imported one by one."""

from __future__ import annotations

from collections.abc import Iterator

import click


def every_command(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield the commands below a group, and the groups themselves, by their full names."""
    if not isinstance(command, click.Group):
        return
    context = click.Context(command, info_name=name)
    for one in command.list_commands(context):
        found = command.get_command(context, one)
        assert found is not None
        full = f"{name} {one}".strip()
        yield full, found
        yield from every_command(found, full)
