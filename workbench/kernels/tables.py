"""Tables as plain text and as HTML for a notebook."""

from __future__ import annotations

import html as markup
import textwrap
from collections.abc import Sequence

WIDTH = 110
"""Columns of a printed trace."""


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns."""
    return text if len(text) <= width else text[: width - 1] + "…"


def wrap(text: str) -> list[str]:
    """``text`` as lines of at most WIDTH columns."""
    return textwrap.wrap(text, WIDTH, break_long_words=False)


def text(heads: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    """Lines of head, then a table. ``align`` has one letter per column: l or r."""
    table = [tuple(columns), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    out = list(heads)
    for row in table:
        cells = (
            cell.ljust(width) if side == "l" else cell.rjust(width)
            for cell, width, side in zip(row, widths, align, strict=True)
        )
        out.append("  ".join(cells).rstrip())
    return "\n".join(out)


def html(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    align: str,
    styles: Sequence[Sequence[str]] = (),
    note: str = "",
) -> str:
    """The same as HTML. ``align``: l, r, n (left, never wrapped) or c (code).

    ``styles`` holds more CSS for cells, row by row. Cells are escaped here.
    """
    sides = {
        "l": "text-align:left",
        "n": "text-align:left;white-space:nowrap",
        "r": "text-align:right",
        "c": "text-align:left;font:11px monospace;white-space:pre",
    }
    head = "".join(
        f'<th style="{sides["l" if side in "cn" else side]}">{markup.escape(name)}</th>'
        for name, side in zip(columns, align, strict=True)
    )
    body = []
    for at, row in enumerate(rows):
        extra = styles[at] if styles else [""] * len(row)
        cells = "".join(
            f'<td style="{sides[side]};{more}">{markup.escape(cell)}</td>'
            for cell, side, more in zip(row, align, extra, strict=True)
        )
        body.append(f"<tr>{cells}</tr>")
    foot = f"<p>{markup.escape(note)}</p>" if note else ""
    return (
        f'<table><caption style="text-align:left">{markup.escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{foot}"
    )
