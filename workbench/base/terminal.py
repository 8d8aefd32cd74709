"""Text that comes from data (names, files, errors) on a terminal: shown as it is, never obeyed."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_CONTROLS = {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {*b"\n\t"}
_ESCAPES = {code: repr(chr(code))[1:-1] for code in (*_CONTROLS, *range(0xD800, 0xE000))}


def visible(text: object) -> str:
    """The text with its control characters as Python writes them (``\\x1b``), but for line breaks and tabs.

    Those that change the direction of writing and halves of surrogate pairs, which no terminal can show, count as such.
    """
    return str(text).replace("\r\n", "\n").translate(_ESCAPES)


def say(text: object, *, err: bool = False) -> None:
    """Print a line, to stderr with ``err``."""
    import click

    click.echo(visible(text), err=err)


def plain(text: object) -> Text:
    """What rich shows as it is: in a table's cell, head or title, or in a print, brackets are brackets."""
    from rich.text import Text

    return Text(visible(text))


def drawn(*parts: object, width: int) -> list[str]:
    """What rich makes of tables and texts, as lines without colours."""
    from rich.console import Console

    text = io.StringIO()
    Console(width=width, file=text, color_system=None, force_jupyter=False).print(*parts, sep="\n")
    return [line.rstrip() for line in text.getvalue().splitlines()]
