"""Pages of results: one HTML file that needs no network and follows the reader's light or dark theme."""

from __future__ import annotations

import html as markup
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from workbench.base.files import replace_file
from workbench.base.versions import versions

_STATIC = Path(__file__).with_name("static")


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        html: its HTML.
        styles: style sheets that it needs.
        scripts: JavaScript that it needs, which runs after all HTML; equal texts are included once.
    """

    html: str
    styles: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """A page: its title, what it is about, and its sections."""

    title: str
    sections: Sequence[Section]
    about: Mapping[str, str] = field(default_factory=dict)

    def html(self) -> str:
        """Return the page; title and facts are escaped."""
        styles = dict.fromkeys(text for one in self.sections for text in one.styles)
        scripts = dict.fromkeys(text for one in self.sections for text in one.scripts)
        joined = "\n".join(scripts)
        texts = {
            "title": markup.escape(self.title),
            "styles": "\n".join([static_text(_STATIC / "page.css"), *styles]),
            "body": "\n".join([definitions(self.about), *(one.html for one in self.sections)]),
            "scripts": f'<script type="module">\n{joined}\n</script>' if scripts else "",
        }
        return re.sub(r"<!--(\w+)-->", lambda place: texts[place[1]], static_text(_STATIC / "page.html"))

    def save(self, path: str | Path) -> Path:
        """Write the page to a file and return its path."""
        path = Path(path)
        replace_file(path, self.html())
        return path


class Shown(Protocol):
    """Protocol of a result that a page can show."""

    @property
    def headline(self) -> str:
        """The title in one line."""
        ...

    def about(self) -> Mapping[str, str]:
        """Return what ran, by name."""
        ...

    def sections(self) -> Sequence[Section]:
        """Return the sections of a page."""
        ...


def save_page(path: str | Path, results: Sequence[Shown]) -> Path:
    """Write one page with one or several results, the first one's title as its own, and return its path."""
    first, *others = results
    made = {
        "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "with": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    sections = [*first.sections()]
    for one in others:
        head = f"<h2>{markup.escape(one.headline)}</h2>{definitions(one.about())}"
        sections += [Section(head), *one.sections()]
    return Page(first.headline, sections, {**first.about(), **made}).save(path)


def definitions(facts: Mapping[str, str]) -> str:
    """Return names and texts as an HTML list; facts without text are left out."""
    rows = [f"<dt>{markup.escape(name)}</dt><dd>{markup.escape(text)}</dd>" for name, text in facts.items() if text]
    return f'<dl class="about">{"".join(rows)}</dl>' if rows else ""


def json_script(content: object, attributes: str = "") -> str:
    """Return a script element that holds JSON, for other scripts to read."""
    text = json.dumps(content).replace("<", "\\u003c")  # no text ends the element
    return f'<script type="application/json"{attributes}>{text}</script>'


def framed(html: str) -> str:
    """Return HTML of a result in the frame that the page's style sheet gives it."""
    return f'<div class="result">{html}</div>' if html else ""


def static_text(path: Path) -> str:
    """Return the text of a file that comes with the package."""
    return path.read_text(encoding="utf-8")
