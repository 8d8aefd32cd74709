"""Tables as plain text and as HTML for a notebook."""

from __future__ import annotations

import html as markup
import re
import textwrap
from collections.abc import Sequence

WIDTH = 80
"""Columns of a printed trace: the default width of a terminal."""


def cut(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` columns."""
    return text if len(text) <= width else text[: width - 1] + "…"


def alike(columns: Sequence[str], rows: Sequence[Sequence[str]], plain: dict[str, str]) -> list[str]:
    """Return the columns that say nothing: all rows (if there are several) are empty or have the value in ``plain``."""
    said = {name: {row[at] for row in rows} - {""} for at, name in enumerate(columns)}
    return [name for name in columns if len(rows) > 1 and said[name] == {plain.get(name)}]


def wrap(text: str) -> list[str]:
    """Return ``text`` as lines of at most WIDTH columns."""
    return textwrap.wrap(text, WIDTH, break_long_words=False)


def text(heads: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    """Return the lines of ``heads``, then a table, with a header row if ``columns`` are given.

    ``align`` has a letter for each column: l (left) or r (right).
    """
    table = [*filter(None, [columns]), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    out = list(heads)
    for row in table:
        cells = (
            cell.ljust(width) if side == "l" else cell.rjust(width)
            for cell, width, side in zip(row, widths, align, strict=True)
        )
        out.append("  ".join(cells).rstrip())
    return "\n".join(out)


_SIDES = {
    "l": "text-align:left",
    "r": "text-align:right;white-space:nowrap;padding:0.4em 0.3em",
    "c": "text-align:left;font:12px/1.35 monospace;white-space:pre-wrap;overflow-wrap:anywhere;min-width:15em",
    "h": "text-align:left;font-weight:bold",
    "m": "text-align:left;vertical-align:top",
}


def html(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    align: str,
    styles: Sequence[Sequence[str]] = (),
    note: str = "",
) -> str:
    """Return a table as HTML; ``align`` has a letter for each column.

    The letters are l (left), r (right, never wrapped), c (code, wrapped as the page needs it), h (the row's heading)
    and m. Cells of m are HTML already; the others are escaped here. ``styles`` holds more CSS for cells, row by row.
    """
    head = "".join(
        f'<th style="text-align:{"right" if side == "r" else "left"}">{_heading(name, side)}</th>'
        for name, side in zip(columns, align, strict=bool(columns))
    )
    body = []
    for at, row in enumerate(rows):
        extra = styles[at] if styles else [""] * len(row)
        cells = "".join(
            f'<td style="{_SIDES[side]};{more}">{_shown(cell, side)}</td>'
            for cell, side, more in zip(row, align, extra, strict=True)
        )
        body.append(f"<tr>{cells}</tr>")
    foot = f"<p>{markup.escape(note)}</p>" if note else ""
    above = f'<caption style="text-align:left">{markup.escape(caption)}</caption>' if caption else ""
    over = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<table>{above}{over}<tbody>{''.join(body)}</tbody></table>{foot}"


def _heading(name: str, side: str) -> str:
    """Return a column's heading; that of numbers may break in its middle, so that narrow columns stay narrow."""
    escaped = markup.escape(name)
    return escaped.replace("_", "_<wbr>").replace("/", "/<wbr>") if side == "r" else escaped


def _shown(cell: str, side: str) -> str:
    """Return a cell as HTML. In text, numbers with an exponent do not break at its sign."""
    if side == "m":
        return cell
    escaped = markup.escape(cell)
    return re.sub(r"[\d.]+e-\d+", r'<span style="white-space:nowrap">\g<0></span>', escaped) if side == "l" else escaped


def details(summary: str, columns: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    """Return a table as HTML, folded until a reader opens it; empty without rows."""
    if not rows:
        return ""
    return f"<details><summary>{markup.escape(summary)}</summary>{html('', columns, rows, align)}</details>"
