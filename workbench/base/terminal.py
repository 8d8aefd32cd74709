"""Terminal output of text that comes from data (names, files, errors): control characters are shown, not obeyed."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_CONTROLS = {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {*b"\n\t"}
_ESCAPES = {code: repr(chr(code))[1:-1] for code in (*_CONTROLS, *range(0xD800, 0xE000))}


def visible(text: object) -> str:
    r"""Return the text with its control characters as Python writes them (``\x1b``), except line breaks and tabs.

    Characters that change the direction of writing, and halves of surrogate pairs, which no terminal can show, count as
    control characters.
    """
    return str(text).replace("\r\n", "\n").translate(_ESCAPES)


def say(text: object, *, err: bool = False) -> None:
    """Print a line, to stderr with ``err``."""
    import click

    click.echo(visible(text), err=err)


def plain(text: object) -> Text:
    """Return text that rich shows unchanged, in a table or a print: brackets stay brackets."""
    from rich.text import Text

    return Text(visible(text))


def drawn(*parts: object, width: int) -> list[str]:
    """Render tables and texts with rich, as lines without colours."""
    from rich.console import Console

    text = io.StringIO()
    Console(width=width, file=text, color_system=None, force_jupyter=False).print(*parts, sep="\n")
    return [line.rstrip() for line in text.getvalue().splitlines()]
