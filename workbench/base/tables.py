"""Tables of results: one value, shown as text, HTML and Markdown."""

from __future__ import annotations

import html as markup
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.base.pages import Section, framed, save_page
from workbench.base.terminal import drawn, plain, visible

if TYPE_CHECKING:
    from rich.table import Table as RichTable

WIDTH = 80
"""Columns of a printed trace, and of a terminal of the usual width."""

_WIDEST = 10_000
"""More columns than any table has: as text it is never folded unless asked to be."""

_SIDES = {
    "l": "text-align:left",
    "r": "text-align:right;white-space:nowrap;padding:0.4em 0.3em",
    "c": "text-align:left;font:12px/1.35 monospace;white-space:pre-wrap;overflow-wrap:anywhere;min-width:15em",
    "h": "text-align:left;font-weight:bold",
}
_MARKS = {"": ("", ""), "best": ("bold green", "font-weight:bold"), "failed": ("dim", "")}


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        columns: names of the columns; none, and the table has no head.
        rows: cells, a text for each column. A line break in a cell stays one.
        align: a letter for each column: l (left), r (right, never wrapped), c (code) or h (heading of the row).
        title: line above the table.
        note: paragraphs below it, one a line.
        marks: "best", "failed" or "" for each row, or nothing at all.
        styles: CSS for cells, row by row, or nothing at all.
        folded: True if a notebook shows the title alone until a reader opens it.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str
    title: str = ""
    note: str = ""
    marks: Sequence[str] = ()
    styles: Sequence[Sequence[str]] = ()
    folded: bool = False

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = _WIDEST) -> str:
        """Return the table in at most ``width`` columns, below its title and above its note, both wrapped."""
        lines = drawn(self.rich(), width=width) if self.rows or self.columns else []
        notes = [line for paragraph in self.note.splitlines() for line in wrap(visible(paragraph))]
        return "\n".join([*wrap(visible(self.title)), *lines, *notes])

    def rich(self) -> RichTable:
        """Return the columns and rows as a table of rich, without lines."""
        from rich.table import Table as RichTable

        made = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=bool(self.columns))
        for name, side in zip(self.columns or [""] * len(self.align), self.align, strict=True):
            made.add_column(
                plain(name), justify="right" if side == "r" else "left", no_wrap=side == "r", overflow="fold"
            )
        for at, row in enumerate(self.rows):
            made.add_row(*map(plain, row), style=_MARKS[self.marks[at] if self.marks else ""][0])
        return made

    def html(self) -> str:
        """Return the table as HTML; texts are escaped. A table without columns and rows is paragraphs."""
        if self.folded:
            summary = f"<details><summary>{markup.escape(self.title)}</summary>"
            return f"{summary}{self._html('')}</details>" if self.rows else ""
        if not self.columns and not self.rows:
            return "".join(f"<p>{markup.escape(line)}</p>" for line in (self.title, *self.note.splitlines()) if line)
        return self._html(self.title)

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown."""
        head = [*(self.columns or [""] * len(self.align))]
        sides = ["---:" if side == "r" else "---" for side in self.align]
        codes = [side == "c" for side in self.align]
        cells = [[_in_markdown(*pair) for pair in zip(row, codes, strict=True)] for row in self.rows]
        rows = [[_in_markdown(name, code=False) for name in head], *cells]
        lines = [f"| {' | '.join(row)} |" for row in [rows[0], sides, *rows[1:]]] if sides else []
        return "\n\n".join(filter(None, [self.title, "\n".join(lines), self.note]))

    def _html(self, caption: str) -> str:
        head = "".join(
            f'<th style="text-align:{"right" if side == "r" else "left"}">{_heading(name, side)}</th>'
            for name, side in zip(self.columns, self.align, strict=bool(self.columns))
        )
        body = []
        for at, row in enumerate(self.rows):
            whole = _MARKS[self.marks[at] if self.marks else ""][1]
            extra = self.styles[at] if self.styles else [whole] * len(row)
            cells = "".join(
                f'<td style="{_SIDES[side]};{more}">{_shown(cell, side)}</td>'
                for cell, side, more in zip(row, self.align, extra, strict=True)
            )
            body.append(f"<tr>{cells}</tr>")
        foot = "".join(f"<p>{markup.escape(line)}</p>" for line in self.note.splitlines())
        above = f'<caption style="text-align:left">{markup.escape(caption)}</caption>' if caption else ""
        over = f"<thead><tr>{head}</tr></thead>" if head else ""
        return f"<table>{above}{over}<tbody>{''.join(body)}</tbody></table>{foot}"


class Tabular:
    """A result that declares its tables; text and what notebooks show follow from them."""

    def tables(self) -> Iterable[Table]:
        """Return the tables of the result, in reading order."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

    def markdown(self) -> str:
        """Return the tables in GitHub's Markdown, to stand below the headline, as for a pull request's summary."""
        return "\n\n".join(filter(None, (table.markdown() for table in self._below_headline()))) + "\n"

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self.tables())

    @property
    def headline(self) -> str:
        """The title in one line."""
        return str(self).splitlines()[0]

    def about(self) -> Mapping[str, str]:
        """Return what ran, by name, for the head of a page."""
        return {}

    def sections(self) -> Sequence[Section]:
        """Return the sections of a page: one for each table."""
        return [Section(framed(table.html())) for table in self._below_headline()]

    def save_html(self, path: str | Path, *others: Tabular) -> Path:
        """Write the result, and others below it, as one HTML file that needs no network, and return its path."""
        return save_page(path, [self, *others])

    def _below_headline(self) -> list[Table]:
        """Return the tables; none repeats the headline as its title."""
        title = self.headline
        return [replace(one, title="") if one.title == title else one for one in self.tables()]


def cut(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` columns, with an ellipsis where something is missing."""
    return text if len(text) <= width else text[: width - 1] + "…"


def alike(columns: Sequence[str], rows: Sequence[Sequence[str]], plain: dict[str, str]) -> list[str]:
    """Return the columns without information: those where each of several rows has the text of ``plain``."""
    said = {name: {row[at] for row in rows} - {""} for at, name in enumerate(columns)}
    return [name for name in columns if len(rows) > 1 and said[name] == {plain.get(name)}]


def wrap(text: str) -> list[str]:
    """Return ``text`` as lines of at most `WIDTH` columns."""
    return textwrap.wrap(text, WIDTH, break_long_words=False)


def _in_markdown(cell: str, code: bool) -> str:
    """Return a cell of a table in Markdown; each line of code is a code span."""
    lines = cell.replace("|", "\\|").split("\n")
    return "<br>".join(f"`` {line.strip()} ``" if code and line.strip() else line for line in lines)


def _heading(name: str, side: str) -> str:
    """Return a column's name as HTML; one over numbers may be broken in its middle, so that the column stays narrow."""
    escaped = markup.escape(name)
    return escaped.replace("_", "_<wbr>").replace("/", "/<wbr>") if side == "r" else escaped


def _shown(cell: str, side: str) -> str:
    """Return a cell as HTML. In text, numbers with an exponent are not broken at its sign."""
    escaped = markup.escape(cell).replace("\n", "<br>" if side != "c" else "\n")
    return re.sub(r"[\d.]+e-\d+", r'<span style="white-space:nowrap">\g<0></span>', escaped) if side == "l" else escaped
